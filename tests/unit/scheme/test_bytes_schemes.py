"""RawScheme and TextScheme record by record, and the errors of malformed records."""

from __future__ import annotations

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
