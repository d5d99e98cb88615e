"""Pages with aggregates, written byte by byte, as rows of user records."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.aggregation.unpacking import MAX_ROWS, Unpacker
from kinesis_spout.service.shard_info import HASH_KEYS, HashRange
from tests.support.aggregates.wire import aggregate, number, page, sealed, string, user

if TYPE_CHECKING:
    import pyarrow as pa

# Written down from the format description: one key "k", and the records "a" and "".
BY_HAND = bytes.fromhex(
    "f3899ac2"  # magic number
    "0a016b"  # partition_key_table: "k"
    "1a05 0800 1a0161"  # records: partition_key_index 0, data "a"
    "1a04 0800 1a00"  # records: partition_key_index 0, data ""
)
BY_HAND += hashlib.md5(BY_HAND[4:], usedforsecurity=False).digest()

Row = tuple[str, int, str | None, bytes]


def rows(batches: list[pa.RecordBatch]) -> list[Row]:
    """Sequence number, sub-sequence number, key and data of each row."""
    names = ("sequenceNumber", "subSequenceNumber", "partitionKey", "data")
    return [tuple(row[name] for name in names) for one in batches for row in one.to_pylist()]


def unpacked(
    payloads: list[bytes], hash_range: HashRange | None = None, keys: list[str | None] | None = None
) -> list[Row]:
    return rows(list(Unpacker(lambda: hash_range).unpack(page(payloads, keys=keys))))


def test_a_page_without_the_magic_number_is_handed_over_as_it_is() -> None:
    """It is the same object, and nobody asks for the shard's range, which may cost a call."""
    plain = page([b"x", b"", bytes([0xF3, 0x89])])

    def never() -> HashRange:
        raise AssertionError

    assert next(iter(Unpacker(never).unpack(plain))) is plain


RULES = {
    "a wrong checksum": BY_HAND[:-1] + b"\0",
    "no message": sealed(b""),
    "a message that is cut off": sealed(BY_HAND[4:-17]),
    "a record that is no message": aggregate([b"k"], [b"\xff"]),
    "a record without a key": aggregate([b"k"], [user(0, b"a"), string(3, b"b")]),
    "a record without data": aggregate([b"k"], [number(1, 0)]),
    "an index outside the table of keys": aggregate([b"k"], [user(0, b"a"), user(1, b"b")]),
    "an index of 64 bits": aggregate([b"k"], [user(2**63 + 1, b"a")]),
    "an index outside the explicit keys": aggregate([b"k"], [user(0, b"a", 1)], [b"5"]),
    "an explicit key that is no number": aggregate([b"k"], [user(0, b"a", 0)], [b"+5"]),
    "an explicit key of 2^128": aggregate([b"k"], [user(0, b"a", 0)], [str(HASH_KEYS).encode()]),
    "a key that is not UTF-8": aggregate([b"\xff"], [user(0, b"a")]),
    "a key that Kinesis would refuse": aggregate([b"k" * 1025], [user(0, b"a")]),
}


@pytest.mark.parametrize("damaged", RULES.values(), ids=RULES)
def test_what_is_not_an_aggregate_as_a_whole_is_a_plain_record(damaged: bytes) -> None:
    """Nothing of it is lost, and the records beside it are unpacked."""
    assert unpacked([BY_HAND, damaged, BY_HAND]) == [
        ("100", 0, "k", b"a"),
        ("100", 1, "k", b""),
        ("101", 0, "outer", damaged),
        ("102", 0, "k", b"a"),
        ("102", 1, "k", b""),
    ]


def test_batches_have_bounded_numbers_of_rows() -> None:
    """Whether one aggregate has many records, or many aggregates have few."""
    many = aggregate([b"k" * 1000], [user(0, b"")] * (2 * MAX_ROWS + 1))
    batches = list(Unpacker(lambda: None).unpack(page([BY_HAND] * 3 + [many] + [BY_HAND])))
    assert [one.num_rows for one in batches] == [MAX_ROWS, MAX_ROWS, 7, 2]
    assert batches[1].slice(0, 1).to_pylist()[0]["subSequenceNumber"] == MAX_ROWS - 6
