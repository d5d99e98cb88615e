"""Which pages are scanned, and which are left to a parser of any CBOR."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest

from kinesis_spout.errors import MalformedResponseError
from kinesis_spout.service.cbor_record_scan import TEXT, scan_records
from kinesis_spout.service.get_records_cbor import decode_get_records_cbor

MS = 1_795_371_070_293


def record(number: int, **rest: Any) -> dict[str, Any]:
    """A record as the SDK for Java reads it."""
    return {
        "SequenceNumber": str(10**55 + number),
        "ApproximateArrivalTimestamp": cbor2.CBORTag(1, MS + number),
        "Data": b"\x00" * (number % 300),
        "PartitionKey": f"key-{number}",
    } | rest


def body(records: list[dict[str, Any]], **rest: Any) -> bytes:
    return cbor2.dumps({"Records": records, "NextShardIterator": "next"} | rest)


def records(count: int = 500) -> list[dict[str, Any]]:
    return [record(number) for number in range(count)]


REGULAR = {
    "as it is": lambda: body(records()),
    "beside an encryption type": lambda: body(
        [one | {"EncryptionType": "KMS"} for one in records()]
    ),
    "after other fields": lambda: cbor2.dumps(
        {"ChildShards": None, "MillisBehindLatest": 7, "Records": records()}
    ),
    "times without a tag": lambda: body(
        [one | {"ApproximateArrivalTimestamp": MS} for one in records()]
    ),
    "of indefinite length": lambda: cbor2.dumps(
        {"Records": records(), "NextShardIterator": "next"}, indefinite_containers=True
    ),
}


@pytest.mark.parametrize("page", REGULAR.values(), ids=REGULAR.keys())
def test_regular_pages_are_scanned(page: Any) -> None:
    """No Python code runs per record."""
    scanned = scan_records(page())
    assert scanned is not None
    assert scanned.count == 500
    begins, ends = scanned.spans[TEXT, b"PartitionKey"]
    assert [page()[begins[at] : ends[at]] for at in (0, -1)] == [b"key-0", b"key-499"]


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff",
        cbor2.dumps({"message": "no records"}),
        body([record(1, SequenceNumber="no number")]),
        body([record(1, ApproximateArrivalTimestamp="yesterday")]),
        body([record(n, ApproximateArrivalTimestamp=2**60) for n in range(500)]),
        body([*records(), record(500, PartitionKey=7)]),
    ],
)
def test_a_body_that_is_no_page_is_refused(bad: bytes) -> None:
    """Else a proxy's answer would look like an empty page at the shard's end."""
    with pytest.raises(MalformedResponseError, match="cannot be read as CBOR"):
        decode_get_records_cbor(bad)
