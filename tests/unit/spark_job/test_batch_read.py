"""The batch read: which range of each shard is read, the part of a shard's pages that is in it, and
the filters that are taken over from Spark. The records of made-up pages arrived at the time that is
their number.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from kinesis_spout.errors import ConfigError, DataLossError
from kinesis_spout.reading.page import Page
from kinesis_spout.service.shard_info import HashRange, ShardInfo
from kinesis_spout.testing import ManualClock
from spark_job.batch_read.batch_reader import RangeFeed, complete_listing
from spark_job.batch_read.batch_settings import BatchSettings
from spark_job.batch_read.shard_ranges import (
    HINT_MARGIN_MS,
    TIP_MARGIN_MS,
    LoadPin,
    PushedFilters,
    ShardRange,
    grouped,
    settled_in_s,
    shard_ranges,
)
from spark_job.rows import ARROW_SCHEMA
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from tests.support.spout.spout_pages import page_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter


def shard(name: str, *, last: int | None = None, hash_keys: tuple[int, int] = (0, 1)) -> ShardInfo:
    """A shard whose first number is 1; `last`: the number that it is listed with as closed."""
    return ShardInfo(
        shard_id=name,
        parents=(),
        hash_key_range=HashRange(*hash_keys),
        starting_sequence=SequenceNumber(1),
        ending_sequence=None if last is None else SequenceNumber(last),
    )


def test_children_that_are_listed_late_are_waited_for() -> None:
    whole = (
        shard("parent", last=9, hash_keys=(0, 2**128 - 1)),
        shard("low", hash_keys=(0, 2**127 - 1)),
        shard("high", hash_keys=(2**127, 2**128 - 1)),
    )
    listings = iter([whole[:1], whole[:2], whole, whole[:1]])
    client: Any = SimpleNamespace(list_shards=lambda: next(listings))
    assert complete_listing(client, ManualClock()) == whole


def test_a_number_below_the_start_of_a_closed_shard_is_not_its_end() -> None:
    """An emulator lists one. Records are above it."""
    assert shard("a", last=0).last_sequence is None
    assert shard("a", last=1).last_sequence == SequenceNumber(1)


FOREVER_MS = 10**9
WHOLE_SHARD = ShardRange(shard_id="shard-0", start=TRIM_HORIZON, until_ms=FOREVER_MS)


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


def test_the_first_record_that_arrived_too_late_ends_the_range() -> None:
    """Also where one after it arrived in time: then ranges that share an end share no record."""
    feed = feed_of(replace(WHOLE_SHARD, until_ms=4))
    assert numbers(feed, [page_of([1, 2, 3, 4, 2])]) == [1, 2, 3]
    assert feed.is_done


def test_a_page_that_comes_later_than_the_retention_is_reported_once() -> None:
    one = replace(WHOLE_SHARD, covered_ms=5)
    pages = [page_of([9], time_ms=2_000), page_of([10], at_tip=True, time_ms=9_000)]
    with pytest.raises(DataLossError, match="expired before the task read"):
        numbers(feed_of(one), pages)
    assert numbers(feed_of(one, failOnDataLoss="false"), pages) == [9, 10]
    assert numbers(feed_of(WHOLE_SHARD), pages) == [9, 10]  # TRIM_HORIZON promises what is there


def test_a_shard_that_is_gone_is_done_and_reported_where_the_start_names_something() -> None:
    gone = Page(shard_id="shard-0", gone=True)
    feed = feed_of(WHOLE_SHARD)
    assert numbers(feed, [gone]) == []
    assert feed.is_done
    for start in (
        replace(WHOLE_SHARD, covered_ms=5),
        replace(WHOLE_SHARD, start=Position.at(sequence(5))),
    ):
        with pytest.raises(DataLossError, match="the shard no longer exists in Kinesis"):
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

    before = feed_of(replace(WHOLE_SHARD, end=begin(sequence(low))))
    between = feed_of(replace(WHOLE_SHARD, start=begin(sequence(low)), end=end(sequence(high))))
    after = feed_of(replace(WHOLE_SHARD, start=end(sequence(high))))
    assert numbers(before, pages(0)) == [n for n in stream if not is_after(n, begin, low)]
    assert numbers(between, pages(low)) == [
        n for n in stream if is_after(n, begin, low) and not is_after(n, end, high)
    ]
    assert numbers(after, pages(high)) == [n for n in stream if is_after(n, end, high)]


HOUR_MS = 3_600_000
LOADED_MS = 1_800_000_000_000
PIN = LoadPin.at(LOADED_MS, LOADED_MS - 100 * HOUR_MS)
LATEST_MS = LOADED_MS + 1_000  # the Date header is cut to the second


SHARDS = tuple(shard(f"shardId-{number}") for number in range(3))
BACKWARDS = {"shardIds": "shardId-0", "startingPosition": "AFTER:5", "endingPosition": "AT:5"}


def ranges(
    filters: PushedFilters | None = None, *, now_ms: int = LOADED_MS, **options: str
) -> list[ShardRange]:
    settings = BatchSettings.from_options({"streamName": "orders"} | options)
    return shard_ranges(settings, SHARDS, PIN, filters or PushedFilters(), service_time_ms=now_ms)


def pushed(*filters: Any) -> PushedFilters:
    return PushedFilters.of(filters)[0]


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def test_by_default_each_shard_is_read_from_its_oldest_record_to_the_load() -> None:
    """An end at a record is no later than that. Shards that JSON does not name are read as a whole;
    those that a filter excludes are not read.
    """
    whole = [
        ShardRange(
            shard_id=one.shard_id,
            start=TRIM_HORIZON,
            until_ms=LATEST_MS,
            hash_range=one.hash_key_range,
        )
        for one in SHARDS
    ]
    assert ranges() == whole
    start, end = Position.at(SequenceNumber(5)), Position.after(SequenceNumber(9))
    assert ranges(shardIds="shardId-1", startingPosition="AT:5", endingPosition="AFTER:9") == [
        replace(whole[1], start=start, end=end)
    ]
    one = '{"shardId-1": "AT:5"}'
    assert ranges(STARTINGPOSITION=one) == [whole[0], replace(whole[1], start=start), whole[2]]
    assert ranges(pushed(EqualTo(("shardId",), "shardId-2"))) == whole[2:]
    assert ranges(pushed(EqualTo(("streamName",), "other"))) == []


def test_times_ago_are_counted_from_the_load_whenever_the_action_runs() -> None:
    """Nothing is missed from before the stream was created. A range without time is not read."""
    early, late = (
        ranges(now_ms=now_ms, startingPosition="-2h", endingPosition="-1h")
        for now_ms in (LOADED_MS, LOADED_MS + 9 * HOUR_MS)
    )
    assert early == late
    assert early[0].start == Position.at_timestamp(LATEST_MS - 2 * HOUR_MS)
    assert early[0].until_ms == LATEST_MS - HOUR_MS
    assert early[0].covered_ms == LATEST_MS - 2 * HOUR_MS
    assert ranges(startingPosition="-900h")[0].covered_ms == PIN.created_ms
    assert ranges(startingPosition="LATEST") == []
    assert ranges(startingPosition="-1h", endingPosition="-1h") == []


def test_filters_on_times_narrow_the_range_and_what_must_not_have_expired() -> None:
    """With a margin."""
    arrival = ("approximateArrivalTimestamp",)
    filters = pushed(
        GreaterThanOrEqual(arrival, at(LATEST_MS - 2 * HOUR_MS)),
        GreaterThanOrEqual(arrival, at(LATEST_MS - 3 * HOUR_MS)),
        LessThan(arrival, at(LATEST_MS - HOUR_MS)),
    )
    start_ms = LATEST_MS - 2 * HOUR_MS - HINT_MARGIN_MS
    (plain, *_), (timed, *_) = ranges(filters), ranges(filters, startingPosition="-9h")
    assert plain.start == timed.start == Position.at_timestamp(start_ms)
    assert plain.until_ms == LATEST_MS - HOUR_MS + HINT_MARGIN_MS
    assert (plain.covered_ms, timed.covered_ms) == (None, start_ms)
    (wider, *_) = ranges(filters, startingPosition="-90m", endingPosition="-80m")
    assert wider.start == Position.at_timestamp(LATEST_MS - 90 * 60_000)
    assert wider.until_ms == LATEST_MS - 80 * 60_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shardIds": "shardId-9"}, "option shardIds names shard 'shardId-9', which the stream"),
        ({"startingPosition": '{"x": "LATEST"}'}, "option startingPosition names shard 'x'"),
        ({"endingPosition": '{"x": "LATEST"}'}, "option endingPosition names shard 'x'"),
        ({"startingPosition": "AT:5"}, "belongs to a single"),
        ({"endingPosition": "AFTER:5"}, "belongs to a single"),
        (
            {"startingPosition": "-1h", "endingPosition": "-2h"},
            "would end at -2h, which is before its start at -1h",
        ),
        (BACKWARDS, "before its start"),
        ({"endingPosition": at(LOADED_MS + HOUR_MS).isoformat()}, "which is in the future"),
        ({"streamNam": "x"}, "did you mean streamName"),
        (
            {"applicationName": "a"},
            r"applicationName applies only to a streaming query.*readStream",
        ),
        ({"shardIds": " , "}, "pass shard ids separated by commas"),
        ({"endingPosition": "TRIM_HORIZON"}, "cannot end at TRIM_HORIZON"),
        ({"endingPosition": '{"a": "TRIM_HORIZON"}'}, "cannot end at TRIM_HORIZON"),
        ({"endingPosition": "AT:5.2"}, "inside an aggregate"),
        ({"endingPosition": '{"a": "AFTER:5.1"}'}, "inside an aggregate"),
        ({"startingPosition": "SHARD_END"}, "option startingPosition: SHARD_END cannot"),
        ({"endingPosition": "+1h"}, r"option endingPosition: '\+1h' is not a position; use LATEST"),
        ({"endingPosition": "SHARD_END"}, "option endingPosition: SHARD_END cannot be set"),
    ],
)
def test_an_option_or_a_range_that_cannot_be_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ranges(**options)


def test_the_action_waits_until_tips_show_the_whole_range_and_tasks_are_dealt_shards() -> None:
    read = ranges()
    assert settled_in_s(read, LOADED_MS) == (1_000 + TIP_MARGIN_MS) / 1000
    assert settled_in_s(read, LOADED_MS + HOUR_MS) == 0
    assert settled_in_s([], LOADED_MS) == 0
    assert grouped(read, 64) == [(one,) for one in read]
    assert grouped(read, 2) == [(read[0], read[2]), (read[1],)]
    assert grouped([], 2) == []


ARRIVAL = ("approximateArrivalTimestamp",)
SHARD = ("shardId",)
STREAM = ("streamName",)
T = datetime(2026, 1, 31, 12, tzinfo=UTC)
ELSEWHERE = T.astimezone(timezone(timedelta(hours=5, minutes=30)))


def rows(*arrivals: datetime | None) -> pa.RecordBatch:
    columns = [
        pa.array(arrivals, field.type)
        if field.name == ARRIVAL[0]
        else pa.nulls(len(arrivals), field.type)
        for field in ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def kept(pushed: PushedFilters, *arrivals: datetime | None) -> list[datetime]:
    times: list[datetime] = pushed.apply(rows(*arrivals)).column(ARRIVAL[0]).to_pylist()
    return times


def test_shards_and_streams_that_all_filters_name_are_read() -> None:
    pushed, left = PushedFilters.of(
        [
            IsNotNull(SHARD),
            IsNotNull(STREAM),
            In(SHARD, ("a", "b")),
            EqualTo(STREAM, "orders"),
            EqualNullSafe(SHARD, "b"),
        ]
    )
    assert left == []
    assert [pushed.admits("shardId", shard) for shard in ("a", "b", "c")] == [False, True, False]
    assert [pushed.admits("streamName", name) for name in ("orders", "other")] == [True, False]


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(SHARD, "a")),
        In(SHARD, ("a", None)),
        EqualTo(("partitionKey",), "k"),
        GreaterThan(ARRIVAL, T.replace(tzinfo=None)),
    ],
)
def test_other_filters_are_left_to_spark(one: Filter) -> None:
    assert PushedFilters.of([one]) == (PushedFilters(), [one])


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (EqualTo(ARRIVAL, T), [T]),
        (GreaterThan(ARRIVAL, T), [T + timedelta(milliseconds=1)]),
        (GreaterThanOrEqual(ARRIVAL, T), [T, T + timedelta(milliseconds=1)]),
        (LessThan(ARRIVAL, T), [T - timedelta(milliseconds=1)]),
        (LessThanOrEqual(ARRIVAL, T), [T - timedelta(milliseconds=1), T]),
        (LessThan(ARRIVAL, ELSEWHERE), [T - timedelta(milliseconds=1)]),
    ],
)
def test_arrival_times_are_compared_exactly(one: Filter, expected: list[datetime]) -> None:
    """A time of another zone is the same time."""
    pushed, left = PushedFilters.of([one])
    assert left == []
    millisecond = timedelta(milliseconds=1)
    assert kept(pushed, T - millisecond, T, T + millisecond, None) == expected
