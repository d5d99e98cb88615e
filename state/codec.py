"""Stored state to bytes and back: JSON, so that people and the ancestor's tools can read it.

A shard state is stored without its id (it is in the path), with the checkpoint as the ancestor stores it: a sequence
number, or SHARD_END of a finished shard, whose last number is then kept as `lastCheckpoint`. What the ancestor wrote,
`{"checkpoint": "<seq>"}` alone, is read as: all up to it acked, read on after it.

A newer `format` and damaged bytes are both `StoredDataError`, never "there is nothing".
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from state.errors import InvalidPositionError, InvalidSequenceNumberError, StateTooLargeError, StoredDataError
from state.plan import PLAN_FORMAT, PlanPointer, TaskEnd, TaskPlan
from state.position import TRIM_HORIZON, Position, PositionKind
from state.sequence_number import SequenceNumber
from state.shard_state import STATE_FORMAT, Lifecycle, ShardState, UnresolvedRecord
from state.state_store import OwnerInfo, StartPin, StreamIdentity
from state.unresolved_ranges import collapse_to_fit

MAX_VALUE_BYTES = 512 * 1024
"""A value above this is not written. ZooKeeper's own limit for a whole request is 1 MB, and it drops the connection above."""

_SHARD_END = PositionKind.SHARD_END.value
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
_ANCESTOR_NOTHING = ("", PositionKind.TRIM_HORIZON.value)  # the ancestor's state before its first checkpoint

T = TypeVar("T")


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What `batches/<planId>` holds of a plan; its tasks are the node's children."""

    created_ms: int
    tasks: int
    until_ms: int | None = None
    format: int = PLAN_FORMAT


class ShardList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The ancestor's list of shards."""

    shard_list: list[str]


class _Format(msgspec.Struct, frozen=True):
    format: int = 1


class _StoredShardState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    checkpoint: str | None = None
    last_checkpoint: SequenceNumber | None = None
    read_position: Position | None = None
    unresolved: tuple[UnresolvedRecord, ...] = ()
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    parents: tuple[str, ...] = ()
    settled_plan: str | None = None
    verified_until_ms: int | None = None
    at_tip: bool = False
    format: int = 0


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
_DECODERS: dict[type, msgspec.json.Decoder[object]] = {
    kind: msgspec.json.Decoder(kind, dec_hook=_decode_hook)
    for kind in (PlanHeader, PlanPointer, TaskPlan, TaskEnd, StreamIdentity, StartPin, OwnerInfo, ShardList, _StoredShardState)
}
_NEWEST_FORMAT: dict[type, int] = {_StoredShardState: STATE_FORMAT, PlanHeader: PLAN_FORMAT, TaskEnd: PLAN_FORMAT}


def encode(value: msgspec.Struct, path: str) -> bytes:
    """Bytes of any stored struct but a shard state; raises `StateTooLargeError` naming the path."""
    data = _ENCODER.encode(value)
    if len(data) > MAX_VALUE_BYTES:
        raise StateTooLargeError(
            f"{path} would hold {len(data)} bytes, more than the {MAX_VALUE_BYTES} that one node takes; divide it"
        )
    return data


def decode(data: bytes, kind: type[T], path: str) -> T:
    """The struct that `encode` wrote; raises `StoredDataError` for damaged bytes and newer formats."""
    try:
        stored_format = _FORMAT_DECODER.decode(data).format
        if stored_format > _NEWEST_FORMAT.get(kind, 1):
            raise StoredDataError(
                f"{path} has format {stored_format}, written by a newer version of kinesis-spout; this one reads up to "
                f"{_NEWEST_FORMAT.get(kind, 1)}; upgrade kinesis-spout here"
            )
        value = _DECODERS[kind].decode(data)
    except (msgspec.MsgspecError, InvalidSequenceNumberError, InvalidPositionError, UnicodeDecodeError) as exc:
        what = _WORD_START.sub(" ", kind.__name__.removeprefix("_Stored")).lower()
        raise StoredDataError(
            f"{path} holds {data[:80]!r}, which is no {what}: {exc}; restore it, or reset the application"
        ) from exc
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} has no decoder")
    return value


def encode_shard_state(state: ShardState, path: str, *, max_bytes: int = MAX_VALUE_BYTES) -> tuple[bytes, ShardState]:
    """Bytes of a state, and the state that they stand for: collapsed where its unresolved records do not fit."""
    data = _shard_state_bytes(state)
    if len(data) <= max_bytes:
        return data, state
    smaller = collapse_to_fit(state, lambda each: len(_shard_state_bytes(each)) <= max_bytes)
    if smaller is None:
        raise StateTooLargeError(
            f"{path} would hold {len(data)} bytes, more than the {max_bytes} that fit, also with its records as one range"
        )
    return _shard_state_bytes(smaller), smaller


def decode_shard_state(data: bytes, shard_id: str, path: str) -> ShardState:
    """The state of a shard, also one that the ancestor wrote; raises `StoredDataError`."""
    stored = decode(data, _StoredShardState, path)
    if stored.format == 0:
        return _from_ancestor(stored, shard_id, path)
    if stored.read_position is None:
        raise StoredDataError(f"{path} has format {stored.format} but no read position; restore it, or reset the application")
    finished = stored.checkpoint == _SHARD_END
    if finished != (stored.lifecycle is Lifecycle.FINISHED):
        raise StoredDataError(
            f"{path} is {stored.lifecycle} with checkpoint {stored.checkpoint}; restore it, or reset the application"
        )
    return ShardState(
        shard_id=shard_id,
        checkpoint=stored.last_checkpoint if finished else _sequence(stored.checkpoint, path),
        read_position=stored.read_position,
        unresolved=stored.unresolved,
        lifecycle=stored.lifecycle,
        parents=stored.parents,
        settled_plan=stored.settled_plan,
        verified_until_ms=stored.verified_until_ms,
        at_tip=stored.at_tip,
        format=stored.format,
    )


def _shard_state_bytes(state: ShardState) -> bytes:
    return _ENCODER.encode(
        _StoredShardState(
            checkpoint=state.checkpoint_text,
            last_checkpoint=state.checkpoint if state.finished else None,
            read_position=state.read_position,
            unresolved=state.unresolved,
            lifecycle=state.lifecycle,
            parents=state.parents,
            settled_plan=state.settled_plan,
            verified_until_ms=state.verified_until_ms,
            at_tip=state.at_tip,
            format=state.format,
        )
    )


def _from_ancestor(stored: _StoredShardState, shard_id: str, path: str) -> ShardState:
    if stored.checkpoint is None:
        raise StoredDataError(
            f"{path} has neither a format nor a checkpoint, so it is no shard state; restore it, or reset the application"
        )
    if stored.checkpoint == _SHARD_END:
        return ShardState(shard_id=shard_id, read_position=Position(PositionKind.SHARD_END), lifecycle=Lifecycle.FINISHED)
    if stored.checkpoint in _ANCESTOR_NOTHING:
        return ShardState(shard_id=shard_id, read_position=TRIM_HORIZON)
    checkpoint = _sequence(stored.checkpoint, path)
    if checkpoint is None:
        raise StoredDataError(f"{path} has no checkpoint")
    return ShardState(shard_id=shard_id, checkpoint=checkpoint, read_position=Position.after(checkpoint))


def _sequence(text: str | None, path: str) -> SequenceNumber | None:
    try:
        return None if text is None else SequenceNumber.parse(text)
    except InvalidSequenceNumberError as exc:
        raise StoredDataError(f"{path} has checkpoint {text!r}: {exc}; restore it, or reset the application") from exc
