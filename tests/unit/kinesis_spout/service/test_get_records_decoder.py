"""Decoding of GetRecords answers, and the bodies that are refused."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import cbor2
import pytest

from kinesis_spout.errors import MalformedResponseError, UnreadableRecordError
from kinesis_spout.service.get_records_cbor import decode_get_records_cbor
from kinesis_spout.service.get_records_decoder import decode_get_records
from state.sequence_number import SequenceNumber


def body_of(*records: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"Records": list(records)} | rest).encode()


def record_of(sequence: str = "1", data: bytes = b"x", **rest: Any) -> dict[str, Any]:
    return {
        "SequenceNumber": sequence,
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": "k",
    } | rest


def test_a_page_has_its_first_and_last_number_and_its_last_arrival() -> None:
    """Positions and data-loss checks are derived from these three."""
    page = decode_get_records(
        body_of(
            record_of("5", ApproximateArrivalTimestamp=1.5),
            record_of("12", ApproximateArrivalTimestamp=2.25),
        )
    )
    assert (page.first, page.last, page.last_arrival_ms) == (
        SequenceNumber(5),
        SequenceNumber(12),
        2250,
    )


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("1.5", 1500),
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 1000),
    ],
)
def test_an_arrival_time_may_be_written_as_text(written: str, milliseconds: int) -> None:
    """Emulators do so; botocore accepts all of these forms."""
    page = decode_get_records(body_of(record_of(ApproximateArrivalTimestamp=written)))
    assert page.last_arrival_ms == milliseconds


def test_an_exponent_in_the_arrival_time_is_a_number() -> None:
    """Some services write times as 1.7E9."""
    page = decode_get_records(
        b'{"Records":[{"SequenceNumber":"1","Data":"","ApproximateArrivalTimestamp":1.5E9}]}'
    )
    assert page.last_arrival_ms == 1_500_000_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>502</html>",
        body_of(record_of())[:-9],
        b'{"Records": {}}',
        b"[]",
        b"{}",
        b'{"message": "hello from a proxy"}',
        b'{"Records": null}',
        b"\xff\xfe",
        body_of({"Data": "", "PartitionKey": "k"}),
        body_of(record_of("-1")),
        body_of({"SequenceNumber": "1", "Data": "%%%%"}),
        body_of({"SequenceNumber": "1", "Data": "YQ"}),
        body_of(record_of(ApproximateArrivalTimestamp="tomorrow")),
        body_of(record_of(ApproximateArrivalTimestamp=1e300)),
    ],
)
def test_a_body_outside_the_contract_is_refused_as_a_whole(body: bytes) -> None:
    """Half a page would silently lose the other half."""
    with pytest.raises(MalformedResponseError, match="answer to GetRecords cannot be read"):
        decode_get_records(body)


@pytest.mark.parametrize("count", [3, 300], ids=["few", "many"])
@pytest.mark.parametrize(
    "time",
    [253_402_300_800, -62_135_596_800.001, 1e15, -1e15, 1e300, "1e15", "20000-01-01T00:00:00Z"],
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


@pytest.mark.parametrize("time", [253_402_300_799.5, -62_135_596_800])
def test_the_first_and_the_last_time_that_can_be_are_read(time: float) -> None:
    page = decode_get_records(body_of(record_of(ApproximateArrivalTimestamp=time)))
    assert page.last_arrival_ms == round(time * 1000)


def test_the_error_of_a_malformed_body_holds_none_of_its_data() -> None:
    """Records may be secret; errors are logged."""
    with pytest.raises(MalformedResponseError) as caught:
        decode_get_records(
            b'{"Records":[{"SequenceNumber":"1","Data":"dG9wLXNlY3JldA","PartitionKey":"hidden-key"}]}'
        )
    assert "hidden-key" not in str(caught.value)
    assert "dG9w" not in str(caught.value)
