"""Records and their ids, RawScheme and TextScheme record by record, and malformed records."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle

import pytest

from scheme import (
    KPL_MAGIC,
    JsonScheme,
    MalformedRecordError,
    RawScheme,
    RecordScheme,
    TextScheme,
    is_kpl_aggregate,
)
from tests.support.outcomes.scheme_agreement import decoded, record_of

AGGREGATE = KPL_MAGIC + b"message" + hashlib.md5(b"message", usedforsecurity=False).digest()
ALL: tuple[RecordScheme, ...] = (RawScheme(), TextScheme(), JsonScheme("id BIGINT"))


def test_text_is_strict_utf8() -> None:
    """NUL and a byte order mark are kept. Bytes that are not UTF-8 are malformed, not replaced.
    RawScheme takes any bytes.
    """
    assert decoded(RawScheme(), b"\x00\xff") == ((b"\x00\xff",), None)
    assert decoded(TextScheme(), "Zürich\x00".encode()) == (("Zürich\x00",), None)
    assert decoded(TextScheme(), b"\xef\xbb\xbfx") == (("\ufeffx",), None)
    for data in (b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80"):
        assert decoded(TextScheme(), data) == (None, "not valid UTF-8")


@pytest.mark.parametrize("scheme", ALL, ids=repr)
def test_an_aggregate_is_malformed_under_every_scheme(scheme: RecordScheme) -> None:
    """The reason names it, and it is never passed through as data; also on workers, to which
    schemes are sent.
    """
    copy = pickle.loads(pickle.dumps(scheme))  # noqa: S301  # our own bytes
    assert copy == scheme
    assert decoded(copy, AGGREGATE) == (None, "KPL aggregate that is not unpacked")


def test_a_malformed_record_is_named_without_its_payload() -> None:
    """The error has the record's id and the reason. Not even its chain has the bytes."""
    record = record_of(b"secret \xff")
    with pytest.raises(MalformedRecordError) as caught:
        TextScheme().decode(record)
    assert str(caught.value) == f"record {record.message_id}: not valid UTF-8"
    assert caught.value.reason == "not valid UTF-8"
    assert "secret" not in repr(dataclasses.replace(record, partition_key="secret"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own bytes
    assert (copy.reason, copy.message_id) == (caught.value.reason, record.message_id)


def test_the_message_id_names_shard_sequence_and_attempt() -> None:
    """Its grammar is `shardId:sequence[.sub]:attempt`; a sub-sequence number of 0 is left out."""
    record = record_of(b"")
    start = f"shardId-000000000000:{record.sequence_number}"
    assert record.message_id == f"{start}:1"
    again = dataclasses.replace(record, attempt=3, sub_sequence_number=7)
    assert again.message_id == f"{start}.7:3"


def test_an_aggregate_has_magic_number_message_and_right_checksum() -> None:
    """All three are needed. A payload that only begins with the magic number is data, and so is an
    envelope without a message: the KCL requires at least one byte.
    """
    message = b"\x0a\x01k\x1a\x07\x08\x00\x1a\x03abc"
    checksum = hashlib.md5(message, usedforsecurity=False).digest()
    assert is_kpl_aggregate(KPL_MAGIC + message + checksum)
    assert not is_kpl_aggregate(KPL_MAGIC + hashlib.md5(b"", usedforsecurity=False).digest())
    assert not is_kpl_aggregate(KPL_MAGIC + message + bytes(16))
    assert not is_kpl_aggregate(message + checksum)
    assert not is_kpl_aggregate(KPL_MAGIC)
