"""Records and their ids, and the test for an aggregate."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle

import pytest

from scheme import KPL_MAGIC, Record, is_kpl_aggregate
from tests.support.outcomes.scheme_agreement import record_of


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
    """All three are needed. A payload that only begins with the magic number is data."""
    message = b"\x0a\x01k\x1a\x07\x08\x00\x1a\x03abc"
    checksum = hashlib.md5(message, usedforsecurity=False).digest()
    assert is_kpl_aggregate(KPL_MAGIC + message + checksum)
    assert not is_kpl_aggregate(KPL_MAGIC + message + bytes(16))
    assert not is_kpl_aggregate(KPL_MAGIC + message)
    assert not is_kpl_aggregate(message + checksum)
    assert not is_kpl_aggregate(KPL_MAGIC)
    assert not is_kpl_aggregate(b"")


def test_an_envelope_without_a_message_is_data() -> None:
    """The KCL requires at least one byte between magic number and checksum."""
    assert not is_kpl_aggregate(KPL_MAGIC + hashlib.md5(b"", usedforsecurity=False).digest())


def test_the_magic_number_is_the_kpls() -> None:
    """Its value is in the KPL's specification of the aggregation format."""
    assert bytes.fromhex("f3899ac2") == KPL_MAGIC
    assert isinstance(record_of(KPL_MAGIC), Record)
