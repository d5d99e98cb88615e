"""A page and its parts: the records before a limit of bytes, a time, or a sequence number, and
those after it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace

import pytest

from kinesis_spout.reading.page import Page
from kinesis_spout.service.get_records_decoder import decode_get_records
from state.plan import ChildShard
from state.sequence_number import SequenceNumber


def page_of(*arrivals_ms: int) -> Page:
    """A page at the end of its shard, with records 1, 2, 3 of that many bytes."""
    records = [
        {
            "SequenceNumber": str(number),
            "PartitionKey": "k",
            "Data": b64encode(b"x" * number).decode(),
            "ApproximateArrivalTimestamp": ms / 1000,
        }
        for number, ms in enumerate(arrivals_ms, 1)
    ]
    decoded = decode_get_records(json.dumps({"Records": records, "MillisBehindLatest": 0}).encode())
    return Page(
        shard_id="shardId-000000000000",
        columns=decoded.columns,
        count=decoded.count,
        first=decoded.first,
        last=decoded.last,
        last_arrival_ms=decoded.last_arrival_ms,
        payload_bytes=decoded.payload_bytes,
        millis_behind_latest=0,
        child_shards=(),
        next_iterator=None,
        ended=True,
        at_tip=True,
        service_time_ms=None,
    )


def columns_of(page: Page, *, form: str) -> Page:
    if form == "Arrow":
        page.columns.to_arrow()
    return page


@pytest.mark.parametrize("form", ["lists", "Arrow"])
def test_a_head_says_what_it_holds(form: str) -> None:
    page = columns_of(page_of(1_000, 2_000, 2_001), form=form)
    head = page.head(2)
    assert (head.count, head.records.num_rows, head.payload_bytes, head.last_arrival_ms) == (
        2,
        2,
        3,
        2_000,
    )
    assert (head.first, head.last) == (SequenceNumber(1), SequenceNumber(2))
    assert head.columns.lists().numbers == ["1", "2"]


def test_a_head_is_followed_by_the_records_that_it_leaves_out() -> None:
    """So it is neither the tip nor the end, and the next iterator would skip them."""
    child = ChildShard(shard_id="shardId-000000000001", parents=("shardId-000000000000",))
    page = page_of(1_000, 2_000)
    head = page.head(1)
    assert (page.ended, page.at_tip) == (True, True)
    assert (head.ended, head.at_tip, head.gone) == (False, False, False)
    head = replace(
        page, ended=False, next_iterator="n", child_shards=(child,), millis_behind_latest=5
    ).head(1)
    assert (head.next_iterator, head.child_shards, head.millis_behind_latest) == (None, (), 0)
    assert (head.shard_id, head.service_time_ms) == (page.shard_id, page.service_time_ms)


def test_a_head_that_leaves_nothing_out_is_the_page_itself() -> None:
    """With its tip, its end and its iterator."""
    for page in (page_of(1_000, 2_000), page_of(), Page.empty("a", gone=True)):
        assert page.head(page.count) is page
        assert page.head(10_000) is page


@pytest.mark.parametrize("arrivals_ms", [(), (1_000,), (1_000, 2_000, 2_000)])
def test_all_records_of_a_page_that_holds_nothing_later_arrived_by_then(
    arrivals_ms: tuple[int, ...],
) -> None:
    """A record of that very millisecond is in time."""
    assert page_of(*arrivals_ms).arrived_by(2_000) == len(arrivals_ms)


def test_records_after_a_late_one_do_not_count_even_if_they_arrived_earlier() -> None:
    """Positions are in the shard's order, so that nothing is skipped by the next run."""
    assert page_of(1_000, 2_001, 1_500).arrived_by(2_000) == 1
    assert page_of(1_000, 2_000, 2_001).arrived_by(2_000) == 2
    assert page_of(2_001).arrived_by(2_000) == 0


@pytest.mark.parametrize("form", ["lists", "Arrow"])
def test_the_records_after_a_head_are_a_page_that_says_what_the_whole_page_said(form: str) -> None:
    """They are followed by what followed the page: its tip, end, children and iterator."""
    child = ChildShard(shard_id="shardId-000000000001", parents=("shardId-000000000000",))
    page = columns_of(page_of(1_000, 2_000, 3_000), form=form)
    page = replace(page, next_iterator="n", child_shards=(child,), service_time_ms=7)
    rest = page.after(1)
    assert (rest.count, rest.records.num_rows, rest.payload_bytes) == (2, 2, 5)
    assert (rest.first, rest.last, rest.last_arrival_ms) == (
        SequenceNumber(2),
        SequenceNumber(3),
        3_000,
    )
    assert rest.columns.lists().numbers == ["2", "3"]
    assert (rest.ended, rest.at_tip, rest.next_iterator, rest.child_shards) == (
        True,
        True,
        "n",
        (child,),
    )
    assert rest.service_time_ms == 7
    assert rest.after(1).columns.lists().numbers == ["3"]
    assert rest.head(1).columns.lists().numbers == ["2"]


def test_the_page_after_no_records_is_the_page_itself() -> None:
    for page in (page_of(1_000, 2_000), page_of()):
        assert page.after(0) is page


@pytest.mark.parametrize(("last", "count"), [(0, 0), (1, 1), (2, 2), (3, 3), (10, 3)])
def test_the_records_up_to_a_number_are_counted(last: int, count: int) -> None:
    """Numbers compare as numbers: 10 is after 3."""
    assert page_of(1_000, 2_000, 3_000).up_to(SequenceNumber(last)) == count


def test_the_records_up_to_a_number_that_no_record_has_are_those_before_it() -> None:
    """The service has lost it, or its number lies between two others."""
    page = page_of(1_000, 2_000, 3_000).after(1)
    assert page.up_to(SequenceNumber(1)) == 0
    rest = Page.empty("a")
    assert rest.up_to(SequenceNumber(1)) == 0
    aggregate = SequenceNumber(2, 5)
    assert page_of(1_000, 2_000, 3_000).up_to(aggregate) == 2
