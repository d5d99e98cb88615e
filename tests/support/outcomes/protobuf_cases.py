"""Protobuf payloads, good, damaged and hostile, for the contract of schemes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pool, text_format, timestamp_pb2, type_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from scheme import ProtobufScheme
from scheme.payload_scheme import DOES_NOT_FIT
from scheme.protobuf_scheme import NOT_COMPLETE, NOT_PROTOBUF, OUT_OF_RANGE, TOO_DEEP
from tests.support.outcomes.scheme_case import SchemeCase

FIELDS = """
name: "shop.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
enum_type { name: "Kind" value { name: "NONE" number: 0 } value { name: "SALE" number: 1 } }
message_type {
  name: "Order"
  field { name: "big" number: 1 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "u32" number: 2 type: TYPE_FIXED32 label: LABEL_OPTIONAL }
  field { name: "i32" number: 3 type: TYPE_SINT32 label: LABEL_OPTIONAL }
  field { name: "weight" number: 4 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "kind" number: 5 type: TYPE_ENUM type_name: ".shop.Kind" label: LABEL_OPTIONAL }
  field { name: "at" number: 6 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp"
          label: LABEL_OPTIONAL }
  field { name: "names" number: 7 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "counts" number: 8 type: TYPE_MESSAGE type_name: ".shop.Order.CountsEntry"
          label: LABEL_REPEATED }
  field { name: "note" number: 9 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true
          oneof_index: 1 }
  field { name: "card" number: 10 type: TYPE_BYTES label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "cash" number: 11 type: TYPE_BOOL label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "tree" number: 12 type: TYPE_MESSAGE type_name: ".shop.Tree" label: LABEL_OPTIONAL }
  field { name: "nothing" number: 13 type: TYPE_MESSAGE type_name: ".shop.Empty"
          label: LABEL_OPTIONAL }
  oneof_decl { name: "paid" } oneof_decl { name: "_note" }
  nested_type {
    name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
  }
}
message_type { name: "Empty" }
message_type {
  name: "Tree"
  field { name: "n" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "more" number: 2 type: TYPE_MESSAGE type_name: ".shop.Tree" label: LABEL_REPEATED }
}
"""
OLD_FIELDS = """
name: "old.proto" package: "old" syntax: "proto2"
message_type {
  name: "Old"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_REQUIRED }
  field { name: "size" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "text" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
}
"""


def files(text: str) -> FileDescriptorSet:
    times = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    return FileDescriptorSet(file=[times, text_format.Parse(text, FileDescriptorProto())])


def message_class(descriptors: FileDescriptorSet, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors.file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


Order = message_class(files(FIELDS), "shop.Order")
Old = message_class(files(OLD_FIELDS), "old.Old")

_FULL = Order(
    big=(1 << 64) - 1,
    u32=(1 << 32) - 1,
    i32=-5,
    weight=0.5,
    kind=1,
    names=["secret Zürich", ""],
    counts={7: -(1 << 63), -1: 0},
    note="",
    cash=False,
    tree={"n": 1, "more": [{"n": 2}]},
)
_FULL.at.seconds, _FULL.at.nanos = -1, 999_999_999
_FULL_ROW = (
    Decimal((1 << 64) - 1),
    (1 << 32) - 1,
    -5,
    0.5,
    "SALE",
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ["secret Zürich", ""],
    {-1: 0, 7: -(1 << 63)},
    "",
    None,
    False,
    {"n": 1, "more": [{"n": 2}]},
)
_NO_ROW: tuple[Any, ...] = (Decimal(0), 0, 0, 0.0, "NONE", None, [], {}, None, None, None, None)
FULL = _FULL.SerializeToString(deterministic=True)


def _nested(levels: int) -> bytes:
    """The field `tree` with so many trees within each other, written by hand."""
    inner = b""
    for _ in range(levels):
        inner = b"\x12" + _varint(len(inner)) + inner
    return b"\x62" + _varint(len(inner)) + inner


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


PROTOBUF_CASES = (
    SchemeCase(
        name="protobuf",
        scheme=ProtobufScheme(Order, recursion_depth=1),
        good={
            FULL: _FULL_ROW,
            b"": _NO_ROW,
            # A number that the enum does not name, and a field that the message does not.
            b"\x28\x07\xa0\x06\x01": (*_NO_ROW[:4], "7", *_NO_ROW[5:]),
        },
        damaged={
            FULL[:-1]: NOT_PROTOBUF,
            b"\x3a\x07secret\xff": NOT_PROTOBUF,
            b"\x08" + b"\xff" * 10 + b"\x01": NOT_PROTOBUF,
            _nested(2): TOO_DEEP,
            _nested(5000): NOT_PROTOBUF,
            b"\x32\x08\x08" + _varint(1 << 45): OUT_OF_RANGE,
            b"\x32\x06\x10" + _varint(1_000_000_000): OUT_OF_RANGE,
        },
        hostile=[
            _nested(20),
            b"\x62\x00" * 100_000,
            b"\x0b" * 100_000,
            b"\x3a\xff\xff\xff\xff\x0f",
        ],
    ),
    SchemeCase(
        name="protobuf of proto2",
        scheme=ProtobufScheme(files(OLD_FIELDS).SerializeToString(), "old.Old"),
        good={Old(id=1).SerializeToString(): (1, None, None)},
        damaged={b"": NOT_COMPLETE, b"\x08\x01\x1a\x01\xff": DOES_NOT_FIT},
    ),
    SchemeCase(
        name="protobuf by a generated class",
        scheme=ProtobufScheme(type_pb2.EnumValue),
        good={type_pb2.EnumValue(name="A", number=3).SerializeToString(): ("A", 3, [])},
        damaged={b"\x0a": NOT_PROTOBUF},
    ),
)
