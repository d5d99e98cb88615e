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
    SchemeError,
    TextScheme,
    is_kpl_aggregate,
)
from tests.support.outcomes.scheme_agreement import decoded, record_of

AGGREGATE = KPL_MAGIC + b"message" + hashlib.md5(b"message", usedforsecurity=False).digest()
ALL: tuple[RecordScheme, ...] = (RawScheme(), TextScheme(), JsonScheme("id BIGINT"))


def test_raw_returns_the_bytes_unchanged() -> None:
    """Also an empty payload, and bytes that are not text."""
    for data in (b"", b"\x00\xff", KPL_MAGIC + b"own payload"):
        assert decoded(RawScheme(), data) == ((data,), None)


def test_text_is_strict_utf8() -> None:
    """NUL and a byte order mark are kept. Bytes that are not UTF-8 are malformed, not replaced."""
    assert decoded(TextScheme(), "Zürich\x00".encode()) == (("Zürich\x00",), None)
    assert decoded(TextScheme(), b"\xef\xbb\xbfx") == (("\ufeffx",), None)
    assert decoded(TextScheme(), b"") == (("",), None)
    for data in (b"\xff", b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80"):
        assert decoded(TextScheme(), data) == (None, "not valid UTF-8")


@pytest.mark.parametrize("scheme", ALL, ids=repr)
def test_an_aggregate_is_malformed_under_every_scheme(scheme: RecordScheme) -> None:
    """The reason names it, and it is never passed through as data."""
    assert decoded(scheme, AGGREGATE) == (None, "KPL aggregate that is not unpacked")


@pytest.mark.parametrize("scheme", ALL, ids=repr)
def test_schemes_are_values_that_can_be_pickled(scheme: RecordScheme) -> None:
    """A scheme is sent to workers by pickling and decodes the same there."""
    assert isinstance(scheme, RecordScheme)
    copy = pickle.loads(pickle.dumps(scheme))  # noqa: S301  # our own bytes
    assert copy == scheme
    assert hash(copy) == hash(scheme)


def test_a_malformed_record_is_named_without_its_payload() -> None:
    """The error has the record's id and the reason. Not even its chain has the bytes."""
    record = record_of(b"secret \xff")
    with pytest.raises(MalformedRecordError) as caught:
        TextScheme().decode(record)
    assert str(caught.value) == f"record {record.message_id}: not valid UTF-8"
    assert caught.value.reason == "not valid UTF-8"
    assert isinstance(caught.value, SchemeError)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own bytes
    assert (copy.reason, copy.message_id) == (caught.value.reason, record.message_id)


def test_the_message_id_names_shard_sequence_and_attempt() -> None:
    """The id's grammar is `shardId:sequence[.sub]:attempt`; a sub-sequence number of 0 is left
    out.
    """
    record = record_of(b"")
    sequence = record.sequence_number
    assert record.message_id == f"shardId-000000000000:{sequence}:1"
    assert dataclasses.replace(record, attempt=3).message_id == f"shardId-000000000000:{sequence}:3"
    assert (
        dataclasses.replace(record, sub_sequence_number=7).message_id
        == f"shardId-000000000000:{sequence}.7:1"
    )


def test_a_record_is_immutable_and_survives_pickling() -> None:
    """Records are sent between processes."""
    record = record_of(b"\x00payload")
    assert pickle.loads(pickle.dumps(record)) == record  # noqa: S301  # our own bytes
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.data = b""  # type: ignore[misc]  # what the test is about


def test_the_repr_shows_neither_payload_nor_partition_key() -> None:
    """A log line or an error with a record reveals no secret."""
    record = dataclasses.replace(record_of(b"card 4711"), partition_key="jane@example.org")
    assert "4711" not in repr(record)
    assert "jane" not in repr(record)


def test_an_aggregate_has_magic_number_message_and_right_checksum() -> None:
    """All three are needed. A payload that only begins with the magic number is data, and so is an
    envelope without a message: the KCL requires at least one byte.
    """
    message = b"\x0a\x01k\x1a\x07\x08\x00\x1a\x03abc"
    checksum = hashlib.md5(message, usedforsecurity=False).digest()
    assert is_kpl_aggregate(KPL_MAGIC + message + checksum)
    assert not is_kpl_aggregate(KPL_MAGIC + hashlib.md5(b"", usedforsecurity=False).digest())
    assert not is_kpl_aggregate(KPL_MAGIC + message + bytes(16))
    assert not is_kpl_aggregate(KPL_MAGIC + message)
    assert not is_kpl_aggregate(message + checksum)
    assert not is_kpl_aggregate(KPL_MAGIC)
    assert not is_kpl_aggregate(b"")
