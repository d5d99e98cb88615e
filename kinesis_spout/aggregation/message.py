"""The protobuf message in an aggregate, and the bytes around it.

The format is public: `aggregation-format.md` of awslabs/amazon-kinesis-producer. An aggregate is
the magic number, a message `AggregatedRecord`, and the MD5 of the message's bytes:

    message AggregatedRecord {
      repeated string partition_key_table = 1;
      repeated string explicit_hash_key_table = 2;
      repeated Record records = 3;
    }
    message Record {
      required uint64 partition_key_index = 1;
      optional uint64 explicit_hash_key_index = 2;
      required bytes data = 3;
      repeated Tag tags = 4;
    }
    message Tag { required string key = 1; optional string value = 2; }

`Aggregate` has the records as bytes, and the keys too: on the wire, a message, a string and bytes
are the same. So parsing an aggregate creates no object of protobuf for each user record
(benchmarks/aggregates.py measures it); `unpacking` reads the bytes of all records side by side.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from scheme.record import KPL_CHECKSUM_BYTES, KPL_MAGIC

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "kinesis_spout"
_REQUIRED, _OPTIONAL, _REPEATED = (
    _Field.LABEL_REQUIRED,
    _Field.LABEL_OPTIONAL,
    _Field.LABEL_REPEATED,
)
_UINT64, _BYTES, _STRING = _Field.TYPE_UINT64, _Field.TYPE_BYTES, _Field.TYPE_STRING
_MESSAGES: dict[str, list[tuple[str, int, int, Any]]] = {
    "Tag": [("key", 1, _REQUIRED, _STRING), ("value", 2, _OPTIONAL, _STRING)],
    "Record": [
        ("partition_key_index", 1, _REQUIRED, _UINT64),
        ("explicit_hash_key_index", 2, _OPTIONAL, _UINT64),
        ("data", 3, _REQUIRED, _BYTES),
        ("tags", 4, _REPEATED, "Tag"),
    ],
    "Aggregate": [
        ("partition_key_table", 1, _REPEATED, _BYTES),
        ("explicit_hash_key_table", 2, _REPEATED, _BYTES),
        ("records", 3, _REPEATED, _BYTES),
    ],
}


def _message_classes() -> dict[str, Any]:
    """A class for each message. In a pool of their own: the names of other libraries' messages do
    not matter.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="kinesis_spout/aggregation.proto", package=_PACKAGE, syntax="proto2"
    )
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, label, kind in fields:
            field = described.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _message_classes()
Aggregate, Record = _CLASSES["Aggregate"], _CLASSES["Record"]


def parsed(message: Any, octets: bytes | memoryview) -> Any | None:
    """A message of this class; None where protobuf does not parse the bytes."""
    try:
        return message.FromString(octets)
    except DecodeError:
        return None


def message_in(payload: memoryview) -> memoryview | None:
    """The message of a payload that begins with the magic number; None for a payload that is no
    aggregate: it is too short to hold a message, or the checksum is another one.
    """
    if len(payload) <= len(KPL_MAGIC) + KPL_CHECKSUM_BYTES:
        return None
    message = payload[len(KPL_MAGIC) : -KPL_CHECKSUM_BYTES]
    if hashlib.md5(message, usedforsecurity=False).digest() != payload[-KPL_CHECKSUM_BYTES:]:
        return None
    return message


def encoded_record(
    partition_key_index: int, explicit_hash_key_index: int | None, data: bytes
) -> bytes:
    """A message `Record`. Without an object of protobuf, which takes longer than all else that
    packing does with a record.
    """
    index = varint(partition_key_index)
    if explicit_hash_key_index is not None:
        index = b"%b\x10%b" % (index, varint(explicit_hash_key_index))
    return b"\x08%b\x1a%b%b" % (index, varint(len(data)), data)


@lru_cache(maxsize=4096)  # of sizes and indices, which come again and again
def varint(number: int) -> bytes:
    """A number as protobuf has it: seven bits a byte, the lowest first."""
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def sealed(message: bytes) -> bytes:
    """The aggregate of a message: with the magic number and the checksum."""
    checksum = hashlib.md5(message, usedforsecurity=False).digest()
    return b"".join((KPL_MAGIC, message, checksum))
