"""Arrival times of GetRecords answers. Bodies, whole and malformed:
`tests/contract/test_page_decoders.py`. Lists and Arrow have the same values:
`tests/property/test_get_records.py`.
"""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import cbor2
import pyarrow as pa
import pytest

from kinesis_spout.errors import UnreadableRecordError
from kinesis_spout.service.get_records_cbor import decode_get_records_cbor
from kinesis_spout.service.get_records_decoder import (
    ARRIVAL_TYPE,
    RecordColumns,
    RecordLists,
    decode_get_records,
)


def body_of(*records: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"Records": list(records)} | rest).encode()


def record_of(sequence: str = "1", data: bytes = b"x", **rest: Any) -> dict[str, Any]:
    return {
        "SequenceNumber": sequence,
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": "k",
    } | rest


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        (1.5e9, 1_500_000_000_000),
        (253_402_300_799.5, 253_402_300_799_500),
        (-62_135_596_800, -62_135_596_800_000),
        ("1.5", 1500),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 1000),
    ],
)
def test_an_arrival_time_may_be_written_as_text(written: object, milliseconds: int) -> None:
    """Emulators do so; botocore accepts all of these forms. So are the first and the last time that
    can be.
    """
    page = decode_get_records(body_of(record_of(ApproximateArrivalTimestamp=written)))
    assert page.last_arrival_ms == milliseconds


@pytest.mark.parametrize("count", [3, 300], ids=["few", "many"])
@pytest.mark.parametrize(
    "time",
    [253_402_300_800, -62_135_596_800.001, 1e300, "1e15", "20000-01-01T00:00:00Z"],
)
def test_the_first_record_with_a_time_outside_the_years_1_to_9999_is_named(
    time: object, count: int
) -> None:
    """In CBOR, too. The records before it are counted: they can be read."""
    times = [1.5] * (count - 2) + [time, time]
    records = [
        record_of(str(number), ApproximateArrivalTimestamp=time)
        for number, time in enumerate(times, 1)
    ]
    with pytest.raises(UnreadableRecordError, match=r"arrival time.*years 1 to 9999") as caught:
        decode_get_records(body_of(*records))
    assert (caught.value.number, caught.value.index) == (str(count - 1), count - 2)
    if isinstance(time, float):
        in_cbor = cbor2.dumps({"Records": [one | {"Data": b""} for one in records]})
        with pytest.raises(UnreadableRecordError) as caught:
            decode_get_records_cbor(in_cbor)
        assert (caught.value.number, caught.value.index) == (str(count - 1), count - 2)
    at = caught.value.at("stream orders at http://here", "s")
    assert f"record {count - 1} of shard s of stream orders at http://here has" in str(at)
    assert str(pickle.loads(pickle.dumps(at))) == str(at)  # noqa: S301  # our own bytes


def test_a_missing_arrival_is_zero_in_lists_and_null_in_arrow() -> None:
    """The spout needs times; a missing one must not keep a record from being acked."""
    made = RecordColumns(
        ["1", "2"], [None, "k"], [None, b"x"], pa.array([None, 5_000], ARRIVAL_TYPE)
    )
    lists = RecordLists(["1", "2"], [None, "k"], [None, b"x"], [0, 5])
    assert made.lists() == lists
    assert RecordColumns.of(made.part(0).to_arrow()).lists() == lists
    assert made.payload_bytes == 1
    assert made.to_arrow().to_pylist()[0] == {
        "sequenceNumber": "1",
        "partitionKey": None,
        "data": None,
        "approximateArrivalTimestamp": None,
    }
