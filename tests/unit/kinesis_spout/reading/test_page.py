"""Ending at a time: what a page has of records that arrived later."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from kinesis_spout.reading.page import Page, cut_page
from kinesis_spout.service.get_records_decoder import decode_get_records
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


@pytest.mark.parametrize("arrivals_ms", [(), (1_000,), (1_000, 2_000, 2_000)])
def test_a_page_that_holds_nothing_later_is_not_cut(arrivals_ms: tuple[int, ...]) -> None:
    """A record of that very millisecond is in time."""
    assert cut_page(page_of(*arrivals_ms), 2_000) is None


def test_what_is_left_says_what_it_holds() -> None:
    """And that more follows: it is neither the tip nor the end."""
    cut = cut_page(page_of(1_000, 2_000, 2_001), 2_000)
    assert cut is not None
    assert (cut.count, cut.records.num_rows, cut.payload_bytes, cut.last_arrival_ms) == (
        2,
        2,
        3,
        2_000,
    )
    assert (cut.first, cut.last) == (SequenceNumber(1), SequenceNumber(2))
    assert (cut.ended, cut.at_tip) == (False, False)


def test_what_follows_a_late_record_is_not_taken_even_if_it_arrived_earlier() -> None:
    """Positions are in the shard's order, so that nothing is skipped by the next run."""
    cut = cut_page(page_of(1_000, 2_001, 1_500), 2_000)
    assert cut is not None
    assert cut.last == SequenceNumber(1)


def test_nothing_may_be_left() -> None:
    cut = cut_page(page_of(2_001), 2_000)
    assert cut is not None
    assert (cut.count, cut.first, cut.last, cut.last_arrival_ms, cut.payload_bytes) == (
        0,
        None,
        None,
        None,
        0,
    )
