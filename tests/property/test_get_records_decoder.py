"""The decoder gives what botocore's own parser gives for the same body."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from botocore.parsers import JSONParser
from botocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.service.get_records_decoder import decode_get_records

_OUTPUT: Any = get_session().get_service_model("kinesis").operation_model("GetRecords").output_shape
_ARRIVALS = (
    st.integers(0, 4_000_000_000)
    | st.floats(0, 4e9, allow_nan=False)
    | st.integers(0, 4 * 10**12).map(lambda ms: ms / 1000)
    | st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1)).map(  # noqa: DTZ001  # naive on purpose: the zone is appended
        lambda moment: moment.isoformat() + "Z"
    )
    | st.floats(1, 4e9, allow_nan=False).map(repr)
)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    record: dict[str, Any] = {"SequenceNumber": str(draw(st.integers(0, 10**128)))}
    optional = {
        "Data": st.binary(max_size=200).map(lambda data: base64.b64encode(data).decode()),
        "PartitionKey": _TEXTS,
        "ApproximateArrivalTimestamp": _ARRIVALS,
        "EncryptionType": st.sampled_from(["NONE", "KMS", None]),
        "Unknown": st.recursive(
            st.none() | st.booleans() | _TEXTS,
            lambda inner: st.lists(inner, max_size=2),
            max_leaves=4,
        ),
    }
    for name, values in optional.items():
        if draw(st.integers(0, 4)):
            record[name] = draw(values | st.none())
    return dict(draw(st.permutations(list(record.items()))))


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    body: dict[str, Any] = {"Records": draw(st.lists(records(), max_size=8))}
    optional = {
        "NextShardIterator": _TEXTS | st.none(),
        "MillisBehindLatest": st.integers(0, 10**12),
        "ChildShards": st.lists(
            st.fixed_dictionaries(
                {
                    "ShardId": _TEXTS,
                    "ParentShards": st.lists(_TEXTS, max_size=2),
                    "HashKeyRange": st.just({}),
                }
            ),
            max_size=2,
        ),
        "Unknown": st.dictionaries(_TEXTS, _TEXTS, max_size=2),
    }
    for name, values in optional.items():
        if draw(st.booleans()):
            body[name] = draw(values)
    indent = draw(st.sampled_from([None, 1]))
    return json.dumps(body, ensure_ascii=draw(st.booleans()), indent=indent).encode()


def botocore_answer(body: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = JSONParser().parse(
        {"body": body, "status_code": 200, "headers": {}}, _OUTPUT
    )
    return answer


def utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


@given(bodies())
def test_decoding_gives_what_botocore_gives(body: bytes) -> None:
    """Escapes, unicode, missing, null and unknown fields, numbers and texts as times: field by
    field the same.
    """
    page, expected = decode_get_records(body), botocore_answer(body)

    assert page.records.to_pylist() == [
        {
            "sequenceNumber": record["SequenceNumber"],
            "partitionKey": record.get("PartitionKey"),
            "data": record.get("Data"),
            "approximateArrivalTimestamp": utc(record.get("ApproximateArrivalTimestamp")),
        }
        for record in expected["Records"]
    ]
    assert page.count == len(expected["Records"])
    data = [record.get("Data", b"") for record in expected["Records"]]
    assert page.columns.payload_bytes == sum(map(len, data))
    assert page.next_iterator == expected.get("NextShardIterator")
    assert page.millis_behind_latest == expected.get("MillisBehindLatest")
    assert [(child.shard_id, list(child.parents)) for child in page.child_shards] == [
        (child["ShardId"], child["ParentShards"]) for child in expected.get("ChildShards", [])
    ]


@given(st.lists(st.floats(0, 4e9, allow_nan=False), min_size=1, max_size=50), st.booleans())
def test_arrival_times_are_rounded_to_microseconds_as_botocore_rounds_them(
    seconds: list[float],
    many: bool,  # noqa: FBT001  # an input of the property
) -> None:
    """A double holds more digits than a microsecond has; both sides must drop the same ones. Large
    pages are rounded by Arrow, small ones in Python.
    """
    seconds = seconds * 200 if many else seconds
    body = json.dumps(
        {
            "Records": [
                {"SequenceNumber": "1", "Data": "", "ApproximateArrivalTimestamp": value}
                for value in seconds
            ]
        }
    )

    arrivals = (
        decode_get_records(body.encode()).records.column("approximateArrivalTimestamp").to_pylist()
    )

    expected = [
        utc(record["ApproximateArrivalTimestamp"])
        for record in botocore_answer(body.encode())["Records"]
    ]
    assert arrivals == expected
