"""Aggregates written byte by byte, and pages of records. Nothing of the code under test is used for
the bytes: they follow aggregation-format.md of awslabs/amazon-kinesis-producer.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

from kinesis_spout.service.get_records_decoder import PAGE_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = bytes([0xF3, 0x89, 0x9A, 0xC2])


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
    octets = bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def string(field: int, value: bytes) -> bytes:
    """A field of wire type 2: string, bytes or message."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field: int, value: int) -> bytes:
    """A field of wire type 0."""
    return varint(field << 3) + varint(value)


def user(key: int, data: bytes, explicit: int | None = None) -> bytes:
    """A message `Record`."""
    explicit_field = b"" if explicit is None else number(2, explicit)
    return number(1, key) + explicit_field + string(3, data)


def aggregate(
    keys: Sequence[bytes], records: Sequence[bytes], explicit: Sequence[bytes] = ()
) -> bytes:
    """The payload of a Kinesis record, of encoded `Record` messages."""
    message = b"".join(
        [
            *(string(1, key) for key in keys),
            *(string(2, key) for key in explicit),
            *(string(3, record) for record in records),
        ]
    )
    return sealed(message)


def sealed(message: bytes) -> bytes:
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


def aggregate_of(data: Sequence[bytes], keys: Sequence[str] = ("key",)) -> bytes:
    """An aggregate with these user records, whose keys take turns."""
    users = [user(index % len(keys), one) for index, one in enumerate(data)]
    return aggregate([key.encode() for key in keys], users)


def page(payloads: Sequence[bytes], *, keys: Sequence[str | None] | None = None) -> pa.RecordBatch:
    """Records with the sequence numbers 100, 101 ... that arrived at as many microseconds."""
    numbers = range(100, 100 + len(payloads))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([str(one) for one in numbers], pa.string()),
            pa.array(["outer"] * len(payloads) if keys is None else keys, pa.string()),
            pa.array(payloads, pa.binary()),
            pa.array(numbers, pa.int64()).cast(PAGE_SCHEMA.field(3).type),
        ],
        schema=PAGE_SCHEMA,
    )
