"""Stored values to bytes and back: JSON, so that people and the ancestor's tools can read it.

Shard states have a codec of their own (`shard_state_codec`), and so have reports (`report_codec`),
over this one.

A newer `format` and damaged bytes are both `StoredDataError`, never "there is nothing".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from state.errors import (
    InvalidPositionError,
    InvalidSequenceNumberError,
    StateTooLargeError,
    StoredDataError,
)
from state.plan import PLAN_FORMAT, TaskPlan, TaskResult
from state.position import Position
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_VALUE_BYTES = 512 * 1024
"""A value above this is not written. ZooKeeper's own limit for a whole request is 1 MB, and it
drops the connection above.
"""

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")

T = TypeVar("T")


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What `batches/<planId>` holds of a plan; its tasks are the node's children."""

    created_ms: int
    tasks: int
    until_ms: int | None = None
    outages: int = msgspec.field(default=0, name="storms")  # the name in ZooKeeper stays
    format: int = PLAN_FORMAT


class _Format(msgspec.Struct, frozen=True):
    format: int = 1


def _encode_hook(value: object) -> str:
    if isinstance(value, SequenceNumber | Position):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is not stored")


def _decode_hook(kind: type, value: object) -> object:
    if kind is SequenceNumber and isinstance(value, str):
        return SequenceNumber.parse(value)
    if kind is Position and isinstance(value, str):
        return Position.parse(value)
    raise TypeError(f"expected {kind.__name__} as a text")


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_hook)
_FORMAT_DECODER = msgspec.json.Decoder(_Format)
_NEWEST_FORMAT: Mapping[type, int] = {
    PlanHeader: PLAN_FORMAT,
    TaskPlan: PLAN_FORMAT,
    TaskResult: PLAN_FORMAT,
}


_DECODERS: dict[
    type, msgspec.json.Decoder[Any]
] = {}  # made when first used: a kind's own module imports this one


def encode_unchecked(value: msgspec.Struct) -> bytes:
    """Bytes of a stored struct, however many."""
    return _ENCODER.encode(value)


def encode(value: msgspec.Struct, path: str) -> bytes:
    """Bytes of a stored struct; raises `StateTooLargeError` naming the path."""
    data = encode_unchecked(value)
    if len(data) > MAX_VALUE_BYTES:
        raise StateTooLargeError(
            f"{path} would hold {len(data)} bytes, more than the {MAX_VALUE_BYTES} that one node "
            "takes; divide it"
        )
    return data


def decode(data: bytes, kind: type[T], path: str, *, newest_format: int | None = None) -> T:
    """The struct that `encode` wrote; raises `StoredDataError` for damaged bytes and
    newer formats.
    """
    newest = _NEWEST_FORMAT.get(kind, 1) if newest_format is None else newest_format
    try:
        stored_format = _FORMAT_DECODER.decode(data).format
        if stored_format > newest:
            raise StoredDataError(
                f"{path} has format {stored_format}, written by a newer version of kinesis-spout; "
                "this one reads up to "
                f"{newest}; upgrade kinesis-spout here"
            )
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=_decode_hook)
        value: T = _DECODERS[kind].decode(data)
    except (
        msgspec.MsgspecError,
        InvalidSequenceNumberError,
        InvalidPositionError,
        UnicodeDecodeError,
    ) as exc:
        what = _WORD_START.sub(" ", kind.__name__.removeprefix("_Stored")).lower()
        raise StoredDataError(
            f"{path} holds {data[:80]!r}, which is no {what}: {exc}; restore it, or reset the "
            "application"
        ) from exc
    return value
