"""The part of a shard's pages that is in a range. The records of these pages arrived at the time
that is their number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kinesis_spout.errors import DataLossError
from kinesis_spout.reading.page import Page
from spark_job.batch_read.batch_settings import BatchSettings
from spark_job.batch_read.range_reader import RangeFeed
from spark_job.batch_read.shard_ranges import ShardRange
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from tests.support.spout.spout_pages import page_of

if TYPE_CHECKING:
    from collections.abc import Iterable

FOREVER_MS = 10**9
WHOLE = ShardRange(shard_id="shard-0", start=TRIM_HORIZON, until_ms=FOREVER_MS)


def feed_of(one: ShardRange, **options: str) -> RangeFeed:
    settings = BatchSettings.from_options({"streamName": "orders"} | options)
    return RangeFeed(one, settings, retention_ms=1_000)


def numbers(feed: RangeFeed, pages: Iterable[Page]) -> list[int]:
    """What the feed gives until it is done."""
    found: list[int] = []
    for page in pages:
        part = feed.accept(page)
        if part is not None:
            assert part.count == part.records.num_rows
            found += map(int, part.records.column("sequenceNumber").to_pylist())
        if feed.is_done:
            break
    return found


def sequence(number: int) -> SequenceNumber:
    return SequenceNumber(number)


@pytest.mark.parametrize("last", [page_of([3], at_tip=True), page_of([3], ended=True)])
def test_a_shard_is_read_to_its_tip_or_end(last: Page) -> None:
    feed = feed_of(WHOLE)
    assert numbers(feed, [page_of([1, 2]), page_of([]), last]) == [1, 2, 3]
    assert feed.is_done


def test_the_first_record_that_arrived_too_late_ends_the_range() -> None:
    """Also where one after it arrived in time: then ranges that share an end share no record."""
    feed = feed_of(replace(WHOLE, until_ms=4))
    assert numbers(feed, [page_of([1, 2, 3, 4, 2])]) == [1, 2, 3]
    assert feed.is_done


def test_a_record_that_the_range_starts_after_must_be_there() -> None:
    one = replace(WHOLE, start=Position.after(sequence(5)))
    assert feed_of(one).first_position == Position.at(sequence(5))
    assert numbers(feed_of(one), [page_of([]), page_of([5]), page_of([6], at_tip=True)]) == [6]
    for pages in ([page_of([6], at_tip=True)], [page_of([], at_tip=True)]):
        with pytest.raises(DataLossError, match="record 5 is not there any more"):
            numbers(feed_of(one), pages)
        left = numbers(feed_of(one, failOnDataLoss="false"), pages)
        assert left == ([6] if pages[0].count else [])


def test_a_page_that_comes_later_than_the_retention_is_reported_once() -> None:
    one = replace(WHOLE, covered_ms=5)
    pages = [page_of([9], time_ms=2_000), page_of([10], at_tip=True, time_ms=9_000)]
    with pytest.raises(DataLossError, match="expired before they were read"):
        numbers(feed_of(one), pages)
    assert numbers(feed_of(one, failOnDataLoss="false"), pages) == [9, 10]
    assert numbers(feed_of(WHOLE), pages) == [9, 10]  # TRIM_HORIZON promises what is there


def test_a_shard_that_is_gone_is_done_and_reported_where_the_start_names_something() -> None:
    gone = Page(shard_id="shard-0", gone=True)
    feed = feed_of(WHOLE)
    assert numbers(feed, [gone]) == []
    assert feed.is_done
    for start in (replace(WHOLE, covered_ms=5), replace(WHOLE, start=Position.at(sequence(5)))):
        with pytest.raises(DataLossError, match="does not know the shard any more"):
            numbers(feed_of(start), [gone])


@given(st.data())
def test_a_range_has_the_records_between_its_positions_however_they_come_in_pages(
    data: st.DataObject,
) -> None:
    """Two ranges that share a position have each record once."""
    stream = data.draw(st.lists(st.integers(1, 60), unique=True, min_size=1).map(sorted))
    low, high = sorted(
        data.draw(st.tuples(st.sampled_from(stream), st.sampled_from(stream))),
    )
    kinds = st.sampled_from((Position.at, Position.after))
    begin, end = data.draw(kinds), data.draw(kinds)
    assume(low < high or (begin, end) != (Position.after, Position.at))
    sizes = data.draw(st.lists(st.integers(0, 9)))

    def is_after(number: int, kind: object, place: int) -> bool:
        return number > place or (number == place and kind == Position.at)

    def pages(start: int) -> list[Page]:
        left = [number for number in stream if number >= start]
        made = []
        for size in (*sizes, len(left)):
            made.append(page_of(left[:size]))
            left = left[size:]
        return [*made, page_of([], at_tip=True)]

    before = feed_of(replace(WHOLE, end=begin(sequence(low))))
    between = feed_of(replace(WHOLE, start=begin(sequence(low)), end=end(sequence(high))))
    after = feed_of(replace(WHOLE, start=end(sequence(high))))
    assert numbers(before, pages(0)) == [n for n in stream if not is_after(n, begin, low)]
    assert numbers(between, pages(low)) == [
        n for n in stream if is_after(n, begin, low) and not is_after(n, end, high)
    ]
    assert numbers(after, pages(high)) == [n for n in stream if is_after(n, end, high)]
