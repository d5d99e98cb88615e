"""Payloads as they are found on Kinesis: compressed ones, CloudWatch Logs and DynamoDB."""

from __future__ import annotations

import gzip
import json
import zlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from scheme import CloudWatchLogsScheme, Compressed, DynamoDbScheme, JsonScheme
from scheme.cloudwatch_logs import NOT_CLOUDWATCH, TOO_MANY_ROWS
from scheme.compressed import TOO_LARGE, UNKNOWN_CODEC
from scheme.dynamodb import NOT_A_CHANGE, NOT_AN_ATTRIBUTE, TIME_RANGE
from scheme.record_scheme import KPL_AGGREGATE
from tests.support.outcomes.scheme_case import AGGREGATE, SchemeCase

MIB = 1024 * 1024


def gzipped(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def zstd(text: bytes) -> bytes:
    return bytes(pa.compress(text, codec="zstd", asbytes=True))


def cloudwatch(*messages: str, **changed: Any) -> bytes:
    """A record of a subscription with these log events, as CloudWatch Logs writes it."""
    fields = {
        "messageType": "DATA_MESSAGE",
        "owner": "123456789012",
        "logGroup": "/aws/lambda/orders",
        "logStream": "2026/01/31/[$LATEST]0123",
        "subscriptionFilters": ["Destination"],
        "logEvents": [
            {"id": f"3195310660696698337880902507980421114328961542429822156{index}",
             "timestamp": 1_769_860_800_000 + index, "message": message}
            for index, message in enumerate(messages)
        ],
    }  # fmt: skip
    return gzipped(json.dumps(fields | changed).encode())


def log_row(index: int, message: str, as_json: str | None = None) -> tuple[Any, ...]:
    """The row of an event of `cloudwatch`."""
    return (
        *("123456789012", "/aws/lambda/orders", "2026/01/31/[$LATEST]0123", ["Destination"]),
        f"3195310660696698337880902507980421114328961542429822156{index}",
        datetime(2026, 1, 31, 12, 0, 0, index * 1000, tzinfo=UTC),
        message,
        as_json,
    )


CONTROL = cloudwatch(
    "CWL CONTROL MESSAGE: Checking health of destination Kinesis stream.",
    messageType="CONTROL_MESSAGE",
    owner="CloudwatchLogs",
    logGroup="",
    logStream="",
)


def change(
    new: dict[str, Any] | None = None, old: dict[str, Any] | None = None, **changed: Any
) -> bytes:
    """A change record with these images, as DynamoDB writes it. `changed` are fields of its part
    `dynamodb`; None leaves one out.
    """
    image = new or old or {}
    inner = {
        "ApproximateCreationDateTime": 1_720_740_233_012_995,
        "Keys": {"id": image.get("id", {"S": "a"})},
        "NewImage": new,
        "OldImage": old,
        "SizeBytes": 99,
        "ApproximateCreationDateTimePrecision": "MICROSECOND",
    } | changed
    return json.dumps(
        {
            "awsRegion": "us-east-1",
            "eventID": "b015b5f0-c095-4b50-8ad0-4279aa3d88c6",
            "eventName": "REMOVE" if new is None else "MODIFY" if old else "INSERT",
            "userIdentity": None,
            "recordFormat": "application/json",
            "tableName": "orders",
            "dynamodb": {name: value for name, value in inner.items() if value is not None},
            "eventSource": "aws:dynamodb",
        }
    ).encode()


MICROSECONDS = datetime(2024, 7, 11, 23, 23, 53, 12_995, tzinfo=UTC), "MICROSECOND"
MILLISECONDS = datetime(2024, 7, 11, 23, 23, 53, 12_000, tzinfo=UTC), "MILLISECOND"


def change_row(
    name: str, keys: Any, new: Any, old: Any, created: tuple[datetime, str] = MICROSECONDS
) -> tuple[Any, ...]:
    """The row of `change`."""
    event_id = "b015b5f0-c095-4b50-8ad0-4279aa3d88c6"
    return (name, keys, new, old, *created, event_id, "orders", "us-east-1", None, 99)


def nested(levels: int) -> dict[str, Any]:
    attribute: dict[str, Any] = {"N": "1"}
    for _ in range(levels):
        attribute = {"L": [attribute]}
    return attribute


ITEM = {
    "id": {"S": "a"},
    "total": {"N": "12345678901234567890123456789012345.678"},
    "blob": {"B": "AAE="},
    "is_new": {"BOOL": True},
    "none": {"NULL": True},
    "tags": {"SS": ["x", "y"]},
    "sizes": {"NS": ["1", "2.50", "1E+3"]},
    "blobs": {"BS": ["AAE="]},
    "lines": {"L": [{"M": {"sku": {"S": "s"}, "qty": {"N": "2"}}}]},
    "rates": {"M": {"eur": {"N": "1.5"}}},
    "at": {"S": "2026-01-31T12:00:00Z"},
}
TYPED = DynamoDbScheme(
    "id STRING NOT NULL, total DECIMAL(38,3), blob BINARY, is_new BOOLEAN, none STRING, tags "
    "ARRAY<STRING>, sizes ARRAY<DOUBLE>, blobs ARRAY<BINARY>, lines ARRAY<STRUCT<sku: STRING, qty: "
    "INT>>, rates MAP<STRING, DECIMAL(4,2)>, at TIMESTAMP, x BIGINT"
)
PLAIN_ITEM = {
    "id": "a",
    "total": Decimal("12345678901234567890123456789012345.678"),
    "blob": b"\x00\x01",
    "is_new": True,
    "none": None,
    "tags": ["x", "y"],
    "sizes": [1.0, 2.5, 1000.0],
    "blobs": [b"\x00\x01"],
    "lines": [{"sku": "s", "qty": 2}],
    "rates": {"eur": Decimal("1.50")},
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "x": None,
}
TEXT_ITEM = (
    '{"id":"a","total":12345678901234567890123456789012345.678,"blob":"AAE=","is_new":true,'
    '"none":null,"tags":["x","y"],"sizes":[1,2.50,1000],"blobs":["AAE="],'
    '"lines":[{"sku":"s","qty":2}],"rates":{"eur":1.5},"at":"2026-01-31T12:00:00Z"}'
)
NO_ITEM = dict.fromkeys(PLAIN_ITEM)
A_ITEM, B_ITEM = NO_ITEM | {"id": "a"}, NO_ITEM | {"id": "b"}
BAD_ATTRIBUTES = (
    *({"N": number} for number in ("", "x", "NaN", "Infinity", "1e126", "1E-131", "1" * 39, "0x1")),
    *({"S": "secret", "N": "1"}, {}, {"X": "secret"}, {"S": 5}, {"N": 5}, {"NULL": False}),
    *({"B": "secret!"}, {"BOOL": "true"}, {"SS": [5]}, {"L": {}}, {"M": [1]}, {"L": ["secret"]}),
    nested(32),
)

_JSON = JsonScheme("id BIGINT NOT NULL")
_TEXT = b'{"id": 1}'
_GZIP = gzipped(_TEXT)
_DAMAGED = "the {} data is damaged, cut off or followed by other data"
_EVENT = {"id": "0", "timestamp": 0, "message": "secret"}

PAYLOAD_CASES = (
    SchemeCase(
        name="compressed json",
        scheme=Compressed(_JSON),
        good={
            _GZIP: (1,),
            zlib.compress(_TEXT): (1,),
            zlib.compress(_TEXT, 0): (1,),
            zstd(_TEXT): (1,),
            gzipped(b'{"id":') + gzipped(b"2}"): (2,),
            zstd(b'{"id":') + zstd(b"2}"): (2,),
        },
        damaged={
            b"": UNKNOWN_CODEC,
            _TEXT: UNKNOWN_CODEC,
            _GZIP[:-1]: _DAMAGED.format("gzip"),
            _GZIP[:-8] + bytes(8): _DAMAGED.format("gzip"),
            _GZIP + b"x": _DAMAGED.format("gzip"),
            zlib.compress(_TEXT)[:-1]: _DAMAGED.format("zlib"),
            zlib.compress(_TEXT) + b"x": _DAMAGED.format("zlib"),
            zstd(_TEXT)[:-1]: _DAMAGED.format("zstd"),
            zstd(_TEXT) + b"x": _DAMAGED.format("zstd"),
            gzipped(b"{}"): "field 'id' is missing",
            gzipped(AGGREGATE): KPL_AGGREGATE,
            gzipped(bytes(20 * MIB)): TOO_LARGE,
            zlib.compress(bytes(20 * MIB)): TOO_LARGE,
            zstd(bytes(20 * MIB)): TOO_LARGE,
        },
        hostile=(gzipped(b"") * 50_000, zstd(b"") * 50_000, gzipped(_GZIP)),
    ),
    SchemeCase(
        name="compressed rows",
        scheme=Compressed(CloudWatchLogsScheme(), "zstd", max_bytes=1000),
        good={zstd(cloudwatch("a")): (log_row(0, "a"),), zstd(CONTROL): ()},
        damaged={
            cloudwatch("a"): _DAMAGED.format("zstd"),
            b"": _DAMAGED.format("zstd"),
            zstd(b"x" * 1001): TOO_LARGE,
            zstd(b"x" * 1000): _DAMAGED.format("gzip"),
            zstd(AGGREGATE): KPL_AGGREGATE,
        },
    ),
    SchemeCase(
        name="cloudwatch logs",
        scheme=CloudWatchLogsScheme(),
        good={
            CONTROL: (),
            cloudwatch(): (),
            cloudwatch("text\n", '{"a": 1}\n', "[1]", "12", "{x", " {}", "Zürich \x00"): (
                log_row(0, "text\n"),
                log_row(1, '{"a": 1}\n', '{"a": 1}\n'),
                log_row(2, "[1]", "[1]"),
                log_row(3, "12"),
                log_row(4, "{x"),
                log_row(5, " {}"),
                log_row(6, "Zürich \x00"),
            ),
            cloudwatch("a", policyLevel="ACCOUNT_LEVEL_POLICY"): (log_row(0, "a"),),
        },
        damaged={
            b"": _DAMAGED.format("gzip"),
            b'{"messageType": "secret"}': _DAMAGED.format("gzip"),
            cloudwatch("a")[:-9]: _DAMAGED.format("gzip"),
            gzipped(b"secret"): NOT_CLOUDWATCH,
            gzipped(b"[]"): NOT_CLOUDWATCH,
            cloudwatch("a", messageType="secret"): NOT_CLOUDWATCH,
            cloudwatch("a", owner=None): NOT_CLOUDWATCH,
            cloudwatch(logEvents=[_EVENT, {**_EVENT, "timestamp": "0"}]): NOT_CLOUDWATCH,
            cloudwatch(logEvents=[_EVENT, {"id": "1", "timestamp": 0}]): NOT_CLOUDWATCH,
            cloudwatch(logEvents=[{**_EVENT, "timestamp": 1 << 62}]): NOT_CLOUDWATCH,
            cloudwatch(logEvents=[{**_EVENT, "timestamp": -(1 << 70)}]): NOT_CLOUDWATCH,
            cloudwatch(logEvents=[{**_EVENT, "message": "\ud800"}]): NOT_CLOUDWATCH,
            cloudwatch(*"ab" * 40, logGroup="g" * MIB): TOO_MANY_ROWS,
            gzipped(bytes(11 * MIB)): TOO_LARGE,
        },
        hostile=(
            gzipped(b"[" * 5 * MIB),
            gzipped(b'{"logEvents":' * 100_000),
            cloudwatch("[" * 100_000, '{"a":' * 50_000, '{"a":NaN}', '{"a":"\\ud800"}'),
            cloudwatch(*[""] * 5_000),
        ),
    ),
    SchemeCase(
        name="dynamodb",
        scheme=TYPED,
        good={
            change(ITEM): change_row("INSERT", A_ITEM, PLAIN_ITEM, None),
            change({"id": {"S": "b"}, "other": {"N": "1"}}, {"id": {"S": "b"}}): change_row(
                "MODIFY", B_ITEM, B_ITEM, B_ITEM
            ),
            change(None, {"id": {"S": "a"}}, ApproximateCreationDateTimePrecision=None): change_row(
                "REMOVE", A_ITEM, None, A_ITEM
            ),
        },
        damaged={
            b"": NOT_A_CHANGE,
            b"[]": NOT_A_CHANGE,
            cloudwatch("a"): NOT_A_CHANGE,
            change(ITEM, ApproximateCreationDateTime="secret"): NOT_A_CHANGE,
            change(ITEM, ApproximateCreationDateTime=1 << 60): TIME_RANGE,
            change(ITEM, ApproximateCreationDateTimePrecision="NANOSECOND"): NOT_A_CHANGE,
            change(ITEM, SizeBytes=1 << 70): NOT_A_CHANGE,
            change(ITEM, SizeBytes=-(1 << 70)): NOT_A_CHANGE,
            change({"total": {"N": "1"}}): "field 'newImage.id' is missing",
            change({"id": {"S": "a"}, "total": {"N": "0.0001"}}): (
                "field 'newImage.total' is not a DECIMAL(38,3)"
            ),
            change(None, {"id": {"S": "a"}, "lines": {"L": [{"M": {"qty": {"N": "1.5"}}}]}}): (
                "field 'oldImage.lines[].qty' is not an INT"
            ),
            change({"id": {"S": "a"}, "blob": {"S": "AAE="}}): (
                "field 'newImage.blob' is not a BINARY"
            ),
            change({"id": {"B": "AAE="}}): "field 'keys.id' is not a STRING",
            **{change({"id": {"S": "a"}, "x": bad}): NOT_AN_ATTRIBUTE for bad in BAD_ATTRIBUTES},
        },
        hostile=(
            b'{"dynamodb":' * 50_000,
            change({"id": {"S": "a"}, "sizes": {"NS": ["1E+125"] * 50_000}}),
            change({"id": {"S": "a"}, "x": {"N": "9" * 1_000_000}}),
        ),
    ),
    SchemeCase(
        name="dynamodb without a schema",
        scheme=DynamoDbScheme(),
        good={
            change(ITEM): change_row("INSERT", '{"id":"a"}', TEXT_ITEM, None),
            change(
                {"id": {"N": "1E-20"}},
                ApproximateCreationDateTime=1_720_740_233_012,
                ApproximateCreationDateTimePrecision="MILLISECOND",
            ): change_row(
                "INSERT",
                '{"id":0.00000000000000000001}',
                '{"id":0.00000000000000000001}',
                None,
                MILLISECONDS,
            ),
            change(
                {"id": {"N": "-0"}, "x": nested(31)},
                ApproximateCreationDateTime=1_720_740_233_012,
                ApproximateCreationDateTimePrecision=None,
            ): change_row(
                "INSERT",
                '{"id":-0}',
                '{"id":-0,"x":' + "[" * 31 + "1" + "]" * 31 + "}",
                None,
                MILLISECONDS,
            ),
        },
        damaged={
            b"{}": NOT_A_CHANGE,
            **{change({"id": {"S": "a"}, "x": bad}): NOT_AN_ATTRIBUTE for bad in BAD_ATTRIBUTES},
        },
    ),
)
