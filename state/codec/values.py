"""Encodes stored values as JSON, which people and the tools of the Kinesis Storm spout can read.

`state.codec.shard_states` and `state.znodes.reports` are codecs of their own on top of this one.

A newer `format` and damaged bytes both raise `StoredDataError`. Neither counts as a missing value.
"""

from __future__ import annotations

import re
import threading
from typing import Any, TypeVar

import msgspec

from state.errors import (
    InvalidPositionError,
    InvalidSequenceNumberError,
    StateTooLargeError,
    StoredDataError,
)
from state.position import Position
from state.sequence_number import SequenceNumber

MAX_VALUE_BYTES = 512 * 1024
"""The limit for one value and for the values of one transaction. ZooKeeper drops the connection for
a request above 1 MB (`jute.maxbuffer`), and a request also has paths and headers.
"""

_DAMAGE = (
    msgspec.MsgspecError,
    InvalidSequenceNumberError,
    InvalidPositionError,
    UnicodeDecodeError,
)
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")

T = TypeVar("T")


class _Format(msgspec.Struct, frozen=True):
    format: int = 1


def encode_hook(value: object) -> str:
    """For msgspec: the text of a value that it does not know."""
    if isinstance(value, SequenceNumber | Position):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is not stored")


def decode_hook(kind: type, value: object) -> object:
    """For msgspec: the value of that text."""
    if kind is SequenceNumber and isinstance(value, str):
        return SequenceNumber.parse(value)
    if kind is Position and isinstance(value, str):
        return Position.parse(value)
    raise TypeError(f"expected {kind.__name__} as a string")


_ENCODER = msgspec.json.Encoder(enc_hook=encode_hook)
_FORMAT_DECODER = msgspec.json.Decoder(_Format)

# Created on first use, because the modules that define the other kinds import this one. One at a
# time: msgspec 0.22 caches what it knows of a struct before it knows its members, and a thread that
# decodes with that ends the process (SIGSEGV).
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}
_CREATION = threading.Lock()


def encode_unchecked(value: msgspec.Struct) -> bytes:
    """The bytes of a struct, of any size."""
    return _ENCODER.encode(value)


def encode(value: msgspec.Struct, path: str) -> bytes:
    """The bytes of a struct. Raises `StateTooLargeError`, with path, above `MAX_VALUE_BYTES`."""
    data = encode_unchecked(value)
    if len(data) > MAX_VALUE_BYTES:
        raise StateTooLargeError(
            f"the value of znode {path} would take {len(data)} bytes. The limit for one znode is "
            f"{MAX_VALUE_BYTES} bytes",
            "split the value into several znodes",
        )
    return data


def decode(data: bytes, kind: type[T], path: str, *, newest_format: int = 1) -> T:
    """What `encode` wrote. Raises `StoredDataError` for damaged bytes and for a newer format."""
    stored_format(data, kind, path, newest=newest_format)
    try:
        if kind not in _DECODERS:
            with _CREATION:
                _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=decode_hook)
        value: T = _DECODERS[kind].decode(data)
    except _DAMAGE as exc:
        raise _damaged(data, kind, path, exc) from exc
    return value


def stored_format(data: bytes, kind: type, path: str, *, newest: int) -> int:
    """The format of a stored value that was to be a `kind`. Raises as `decode` does."""
    # It comes first: a newer version may have changed every other field.
    try:
        found = _FORMAT_DECODER.decode(data).format
    except _DAMAGE as exc:
        raise _damaged(data, kind, path, exc) from exc
    if found > newest:
        raise StoredDataError(
            f"{path} has format {found}, written by a newer version of kinesis-spout, but this "
            f"version reads formats up to {newest}",
            "upgrade kinesis-spout on this machine",
        )
    return found


def _damaged(data: bytes, kind: type, path: str, exc: Exception) -> StoredDataError:
    name = kind.__name__.removeprefix("_").removeprefix("Stored")
    what = _WORD_START.sub(" ", name).lower()
    return damaged(f"{path} contains {data[:80]!r}, which is not a {what} ({exc})")


def damaged(what: str) -> StoredDataError:
    """The error of a value that nobody can take as it is."""
    return StoredDataError(what, "restore the znode from a backup, or reset the application")
