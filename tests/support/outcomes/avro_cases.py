"""Avro payloads, good, damaged and hostile, for the contract of schemes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro

from scheme import AvroScheme
from scheme.avro_scheme import NOT_AVRO, NOT_RESOLVED
from scheme.avro_types import OUT_OF_RANGE, TOO_LARGE
from scheme.payload_scheme import DOES_NOT_FIT
from tests.support.outcomes.scheme_case import SchemeCase

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "customer", "type": "string"},
        {"name": "total", "type": ["null", "double"], "default": None},
        {"name": "weight", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "currency", "type": {"type": "enum", "name": "Cur", "symbols": ["EUR", "USD"]}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "wall", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "sku", "type": {"type": "fixed", "name": "Sku", "size": 2}},
                        {"name": "raw", "type": "bytes"},
                    ],
                },
            },
        },
        {"name": "first", "type": ["null", "Item"]},
    ],
}
_FLAT_NAMES = (
    *("id", "count", "customer", "total", "weight", "paid", "currency", "placed", "wall", "day"),
    *("first",),
)
FLAT = ORDER | {
    "fields": [
        *(field for field in ORDER["fields"] if field["name"] in _FLAT_NAMES[:-1]),
        {"name": "first", "type": [ORDER["fields"][-2]["type"]["items"], "null"]},
    ]
}
"""The fields of an order that are no arrays or maps."""


def flat(value: dict[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in _FLAT_NAMES}


PRICE: dict[str, Any] = {
    "type": "record",
    "name": "Price",
    "fields": [
        {
            "name": "n",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        },
        {
            "name": "key",
            "type": ["null", "long", "string", {"type": "enum", "name": "E", "symbols": ["A"]}],
        },
    ],
}
OLD: dict[str, Any] = {
    "type": "record",
    "name": "V",
    "fields": [
        {"name": "gone", "type": {"type": "array", "items": "string"}},
        {"name": "n", "type": "int"},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
    ],
}
NEW: dict[str, Any] = {
    "type": "record",
    "name": "V",
    "fields": [
        {"name": "added", "type": "bytes", "default": "\u00ff"},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A"]}},
        {"name": "n", "type": "float"},
    ],
}


def written(schema: Any, value: Any) -> bytes:
    """The value in Avro's binary encoding, without a container."""
    target = BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


GOOD = {
    "id": -(1 << 63),
    "count": 3,
    "customer": "secret Zürich",
    "total": 2.5,
    "weight": 0.5,
    "paid": True,
    "currency": "USD",
    "placed": datetime(2026, 11, 26, 12, 0, 0, 5000, tzinfo=UTC),
    "wall": datetime(1960, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001  # a wall-clock time has no zone
    "day": date(1, 1, 1),
    "tags": {"b": 1, "a": 2},
    "items": [{"sku": b"ab", "raw": b""}, {"sku": b"\x00\xff", "raw": b"secret"}],
    "first": {"sku": b"ab", "raw": b"x"},
}
EMPTY = GOOD | {"total": None, "day": None, "tags": {}, "items": [], "first": None}
ORDER_BYTES = written(ORDER, GOOD)


def row(value: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(value[field["name"]] for field in ORDER["fields"])


def _changed(name: str, type_: Any, value: Any) -> bytes:
    """An order with one field of another type, whose bytes the schema does not exclude."""
    fields = [
        field | {"type": type_} if field["name"] == name else field for field in ORDER["fields"]
    ]
    return written(ORDER | {"fields": fields}, EMPTY | {name: value})


AVRO_CASES = (
    SchemeCase(
        name="avro side by side",
        scheme=AvroScheme(FLAT),
        good={
            written(FLAT, flat(GOOD)): tuple(flat(GOOD).values()),
            written(FLAT, flat(EMPTY)): tuple(flat(EMPTY).values()),
        },
        damaged={
            b"": NOT_AVRO,
            written(FLAT, flat(GOOD))[:-1]: NOT_AVRO,
            written(FLAT, flat(EMPTY)) + b"\x00": NOT_AVRO,
        },
        hostile=[b"\x80" * 1_000_000],
    ),
    SchemeCase(
        name="avro",
        scheme=AvroScheme(ORDER),
        good={ORDER_BYTES: row(GOOD), written(ORDER, EMPTY): row(EMPTY)},
        damaged={
            b"": NOT_AVRO,
            ORDER_BYTES[:-1]: NOT_AVRO,
            ORDER_BYTES + b"\x00": NOT_AVRO,
            ORDER_BYTES.replace(b"secret Z\xc3", b"secret Z\xff"): NOT_AVRO,
            _changed("currency", "int", -1): NOT_AVRO,
            _changed("currency", "int", 2): NOT_AVRO,
            _changed("count", "long", 1 << 31): DOES_NOT_FIT,
            _changed("placed", "long", 1 << 60): OUT_OF_RANGE,
            _changed("wall", "long", -(1 << 60)): OUT_OF_RANGE,
        },
        hostile=[
            ORDER_BYTES[:-3] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" * 3,
            b"\x80" * 1_000_000,
            b"\x00\x00" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"x" * 1000,
        ],
    ),
    SchemeCase(
        name="avro decimals and unions",
        scheme=AvroScheme(PRICE),
        good={
            written(PRICE, {"n": Decimal("-99.99"), "key": None}): (Decimal("-99.99"), None),
            written(PRICE, {"n": Decimal("0.00"), "key": 7}): (
                Decimal("0.00"),
                {"member0": 7, "member1": None, "member2": None},
            ),
            b"\x02\x64\x06\x00": (
                Decimal("1.00"),
                {"member0": None, "member1": None, "member2": "A"},
            ),
        },
        damaged={b"\x04\x40\x00\x00": TOO_LARGE, b"\x00\x07": NOT_AVRO, b"\x00\x01": NOT_AVRO},
        hostile=[b"\x80\x80\x80\x01" + b"\x7f" * 1_000_000],
    ),
    SchemeCase(
        name="avro with a reader's schema",
        scheme=AvroScheme(OLD, NEW),
        good={written(OLD, {"gone": ["x"] * 9, "n": 7, "kind": "A"}): (b"\xff", "A", 7.0)},
        damaged={
            written(OLD, {"gone": [], "n": 7, "kind": "B"}): NOT_RESOLVED,
            written(OLD, {"gone": ["x"], "n": 7, "kind": "A"})[:-1]: NOT_AVRO,
            b"\x01\x01\x00\x0e\x00": NOT_AVRO,
        },
        hostile=[b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" * 100],
    ),
    SchemeCase(
        name="avro without a record",
        scheme=AvroScheme('"string"'),
        good={b"\x02x": ("x",)},
        damaged={b"\x04x": NOT_AVRO},
    ),
)
