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

CHILD = ChildShard(shard_id="shardId-000000000001", parents=("shardId-000000000000",))


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
    return Page.of(decoded, "shardId-000000000000", next_iterator=None, ended=True, at_tip=True)


def columns_of(page: Page, *, form: str) -> Page:
    if form == "Arrow":
        page.columns.to_arrow()
    return page


def facts(page: Page) -> tuple[object, ...]:
    """What it says of its records: their count, bytes, last arrival and numbers."""
    assert page.records.num_rows == page.count
    numbers = page.columns.lists().numbers
    assert (str(page.first), str(page.last)) == (numbers[0], numbers[-1])
    return page.count, page.payload_bytes, page.last_arrival_ms, numbers


@pytest.mark.parametrize("form", ["lists", "Arrow"])
def test_the_parts_of_a_page_say_what_they_hold(form: str) -> None:
    """A head is followed by the records that it leaves out: it is neither the tip nor the end, and
    the next iterator would skip them. The rest is followed by what followed the page.
    """
    page = columns_of(page_of(1_000, 2_000, 2_001), form=form)
    page = replace(
        page,
        next_iterator="n",
        child_shards=(CHILD,),
        service_time_ms=7,
        millis_behind_latest=5,
    )
    head, rest = page.head(2), page.after(1)
    assert facts(head) == (2, 3, 2_000, ["1", "2"])
    assert facts(rest) == (2, 5, 2_001, ["2", "3"])
    assert (head.ended, head.at_tip, head.gone) == (False, False, False)
    assert (head.next_iterator, head.child_shards, head.millis_behind_latest) == (None, (), 0)
    assert (rest.ended, rest.at_tip) == (True, True)
    assert (rest.next_iterator, rest.child_shards) == ("n", (CHILD,))
    assert {one.shard_id for one in (head, rest)} == {page.shard_id}
    assert {one.service_time_ms for one in (head, rest)} == {7}
    assert rest.after(1).columns.lists().numbers == ["3"]
    assert rest.head(1).columns.lists().numbers == ["2"]
