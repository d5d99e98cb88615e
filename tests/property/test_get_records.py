"""GetRecords, decoded: JSON gives what botocore's own parser gives for the same body, and CBOR the
values that were encoded, in whatever form.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.parsers import JSONParser
from botocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.errors import MalformedResponseError
from kinesis_spout.service.get_records_cbor import decode_get_records_cbor
from kinesis_spout.service.get_records_decoder import decode_get_records

_MANY = 150  # records; fewer are not scanned
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_CHILDREN = st.lists(
    st.fixed_dictionaries(
        {
            "ShardId": _TEXTS,
            "ParentShards": st.lists(_TEXTS, max_size=2),
            "HashKeyRange": st.just({}),
        }
    ),
    max_size=2,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ORDER = ("SequenceNumber", "ApproximateArrivalTimestamp", "Data", "PartitionKey")


def head(major: int, value: int, width: int = 0) -> bytes:
    """The head of an item; `width` asks for more bytes than are needed."""
    for bits, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if size >= width and value < 256**size and not (width == 0 and value < 24):
            return bytes([major << 5 | bits]) + value.to_bytes(size, "big")
    return bytes([major << 5 | value])


def string(value: str | bytes, width: int = 0) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return head(3 if isinstance(value, str) else 2, len(raw), width) + raw


def chunked(value: str | bytes) -> bytes:
    """Of indefinite length, in two parts."""
    cut = len(value) // 2
    return (
        (b"\x7f" if isinstance(value, str) else b"\x5f")
        + string(value[:cut])
        + string(value[cut:])
        + b"\xff"
    )


def container(major: int, items: list[bytes], *, indefinite: bool, per_item: int = 1) -> bytes:
    if indefinite:
        return bytes([major << 5 | 31]) + b"".join(items) + b"\xff"
    return head(major, len(items) // per_item) + b"".join(items)


def item(value: Any) -> bytes:
    if value is None:
        return b"\xf6"
    if isinstance(value, str | bytes):
        return string(value)
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, list):
        return container(4, [item(one) for one in value], indefinite=False)
    pairs = [part for pair in value.items() for part in map(item, pair)]
    return container(5, pairs, indefinite=False, per_item=2)


_TIMES = {
    "tagged": lambda ms: b"\xc1\x1b" + struct.pack(">Q", ms),
    "plain": lambda ms: b"\x1b" + struct.pack(">Q", ms),
    "double": lambda ms: b"\xc1\xfb" + struct.pack(">d", ms),
    "short": lambda ms: b"\xc1" + head(0, ms),
    "seconds": lambda ms: b"\xc1\xfb" + struct.pack(">d", ms / 1000),
}


@dataclass(frozen=True)
class Layout:
    """How the records of a page are written."""

    order: tuple[str, ...]
    time: str
    indefinite: bool
    width: int
    encryption: bool

    def record(self, row: dict[str, Any], odd: str = "") -> bytes:
        names = [name for name in self.order if not (odd == "missing" and name == "PartitionKey")]
        parts: list[bytes] = []
        for name in reversed(names) if odd == "reversed" else names:
            parts += [string(name), self._value(name, row, odd)]
        if self.encryption:
            parts += [string("EncryptionType"), string("NONE")]
        if odd == "unknown":
            parts += [string("Unknown"), item({"Records": [{"SequenceNumber": "9"}]})]
        indefinite = self.indefinite != (odd == "other length")
        return container(5, parts, indefinite=indefinite, per_item=2)

    def _value(self, name: str, row: dict[str, Any], odd: str) -> bytes:
        value = row[name]
        if name == "ApproximateArrivalTimestamp":
            return _TIMES["double" if odd == "other time" else self.time](value)
        if odd == "chunked":
            return chunked(value)
        if odd == "null" and name == "PartitionKey":
            return b"\xf6"
        if odd == "record in it" and name == "Data":
            return string(self.record(row))
        return string(value, self.width)


LAYOUTS = st.builds(
    Layout,
    order=st.permutations(_ORDER).map(tuple),
    time=st.sampled_from(sorted(_TIMES)),
    indefinite=st.booleans(),
    width=st.sampled_from([0, 0, 1, 2, 4, 8]),
    encryption=st.booleans(),
)
ROWS = st.fixed_dictionaries(
    {
        "SequenceNumber": st.integers(0, 10**60).map(str),
        "PartitionKey": _TEXTS,
        "Data": st.binary(max_size=300),
        "ApproximateArrivalTimestamp": st.integers(10**12, 4 * 10**12),
    }
)
ODD = ("", "missing", "reversed", "unknown", "other length", "other time", "chunked", "null")


@st.composite
def pages(draw: st.DrawFn) -> tuple[bytes, list[dict[str, Any]], dict[str, Any]]:
    """A body, its records' values, and what is beside them."""
    layout: Layout = draw(LAYOUTS)
    rows = [dict(row) for row in draw(st.lists(ROWS, max_size=4))]
    rows *= draw(st.sampled_from([1, _MANY]))
    odd = draw(st.sampled_from([*ODD, "record in it"]))
    which = draw(st.integers(0, max(0, len(rows) - 1)))
    records = [layout.record(row, odd if at == which else "") for at, row in enumerate(rows)]
    if rows and odd in ("missing", "null"):
        rows[which] = rows[which] | {"PartitionKey": None}
    if rows and odd == "record in it":
        rows[which] = rows[which] | {"Data": layout.record(rows[which])}
    beside = draw(
        st.fixed_dictionaries(
            {"MillisBehindLatest": st.integers(0, 10**12) | st.sampled_from([2**53 + 1, None])},
            optional={
                "NextShardIterator": _TEXTS | st.none(),
                "ContinuationSequenceNumber": st.sampled_from(["7", None]),
                "ChildShards": _CHILDREN | st.none(),
                "Unknown": _TEXTS | st.integers(0, 2**40) | st.binary(max_size=9),
            },
        )
    )
    array = container(4, records, indefinite=draw(st.booleans()))
    encoded = {"Records": array} | {name: item(value) for name, value in beside.items()}
    names = draw(st.permutations(sorted(encoded)))
    parts = [part for name in names for part in (string(name), encoded[name])]
    return container(5, parts, indefinite=draw(st.booleans()), per_item=2), rows, beside


def moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


@given(pages())
def test_a_page_has_the_values_that_were_encoded(
    page: tuple[bytes, list[dict[str, Any]], dict[str, Any]],
) -> None:
    """Definite and indefinite lengths, orders of keys, unknown, missing and null fields, forms of
    times and heads, payloads that look like records: alike in all records or in one of them.
    """
    body, rows, beside = page
    decoded = decode_get_records_cbor(body)
    decoded.records.validate(full=True)
    assert decoded.records.to_pylist() == [
        {
            "sequenceNumber": row["SequenceNumber"],
            "partitionKey": row["PartitionKey"],
            "data": row["Data"],
            "approximateArrivalTimestamp": moment(row["ApproximateArrivalTimestamp"]),
        }
        for row in rows
    ]
    assert (decoded.count, decoded.next_iterator, decoded.millis_behind_latest) == (
        len(rows),
        beside.get("NextShardIterator"),
        beside["MillisBehindLatest"],
    )
    ends = [str(end.sequence) if end else None for end in (decoded.first, decoded.last)]
    assert ends == ([rows[0]["SequenceNumber"], rows[-1]["SequenceNumber"]] if rows else [None] * 2)
    assert decoded.columns.payload_bytes == sum(len(row["Data"]) for row in rows)
    assert [(child.shard_id, list(child.parents)) for child in decoded.child_shards] == [
        (child["ShardId"], child["ParentShards"]) for child in beside.get("ChildShards") or []
    ]


@given(pages(), st.floats(0, 1, exclude_max=True), st.integers(0, 255))
def test_a_damaged_page_is_refused_or_read(
    page: tuple[bytes, list[dict[str, Any]], dict[str, Any]], where: float, octet: int
) -> None:
    """A changed byte gives another page, or the one error that callers know."""
    body = bytearray(page[0])
    body[int(len(body) * where)] = octet
    try:
        decoded = decode_get_records_cbor(bytes(body))
    except MalformedResponseError:
        return
    decoded.records.validate(full=True)
    assert decoded.records.num_rows == decoded.count


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


@st.composite
def json_records(draw: st.DrawFn) -> dict[str, Any]:
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
    records = draw(st.lists(json_records(), max_size=8)) * draw(st.sampled_from([1, 1, 1, 300]))
    body: dict[str, Any] = {"Records": records}
    optional = {
        "NextShardIterator": _TEXTS | st.none(),
        "ContinuationSequenceNumber": st.sampled_from(["7", None]),
        "MillisBehindLatest": st.integers(0, 10**12) | st.sampled_from([2**53 + 1, -1, None]),
        "ChildShards": _CHILDREN,
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
    field the same. A double holds more digits than a microsecond has. The columns of a page of
    a thousand records are made otherwise than those of a small one.
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
