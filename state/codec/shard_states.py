"""A shard's state to bytes and back.

It is stored without its id (that is in the path), its unresolved records as rows
(`unresolved_codec`), and with the checkpoint as the ancestor stores it: a sequence number, or
SHARD_END of a finished shard, whose last number is then kept as `lastCheckpoint`. What the ancestor
wrote, `{"checkpoint": "<seq>"}` alone, is read as: all up to it acked, read on after it.
"""

from __future__ import annotations

import msgspec

from state.codec.unresolved import StoredRecord, from_rows, shared_reasons, to_rows
from state.codec.unresolved_ranges import collapse_to_fit
from state.codec.values import MAX_VALUE_BYTES, decode, encode_unchecked
from state.errors import InvalidSequenceNumberError, StateTooLargeError, StoredDataError
from state.position import TRIM_HORIZON, Position, PositionKind
from state.sequence_number import SequenceNumber
from state.shard_state import STATE_FORMAT, Lifecycle, ShardState

_SHARD_END = PositionKind.SHARD_END.value
_ANCESTOR_NOTHING = (
    "",
    PositionKind.TRIM_HORIZON.value,
)  # the ancestor's state before its first checkpoint


class _StoredShardState(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    checkpoint: str | None = None
    last_checkpoint: SequenceNumber | None = None
    read_position: Position | None = None
    unresolved: tuple[StoredRecord, ...] = ()
    reasons: tuple[str, ...] = ()
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    parents: tuple[str, ...] = ()
    settled_plan: str | None = None
    verified_until_ms: int | None = None
    at_tip: bool = False
    format: int = 0


def encode_shard_state(
    state: ShardState, path: str, *, max_bytes: int = MAX_VALUE_BYTES
) -> tuple[bytes, ShardState]:
    """Bytes of a state, and the state that they stand for: collapsed where its unresolved records
    do not fit.
    """
    data = _shard_state_bytes(state)
    if len(data) <= max_bytes:
        return data, state
    smaller = collapse_to_fit(state, lambda each: len(_shard_state_bytes(each)) <= max_bytes)
    if smaller is None:
        raise StateTooLargeError(
            f"{path} would hold {len(data)} bytes, more than the {max_bytes} that fit, also with "
            "its records as one range"
        )
    return _shard_state_bytes(smaller), smaller


def decode_shard_state(data: bytes, shard_id: str, path: str) -> ShardState:
    """The state of a shard, also one that the ancestor wrote; raises `StoredDataError`."""
    stored = decode(data, _StoredShardState, path, newest_format=STATE_FORMAT)
    if stored.format == 0:
        return _from_ancestor(stored, shard_id, path)
    if stored.read_position is None:
        raise StoredDataError(
            f"{path} has format {stored.format} but no read position; restore it, or reset the "
            "application"
        )
    finished = stored.checkpoint == _SHARD_END
    if finished != (stored.lifecycle is Lifecycle.FINISHED):
        raise StoredDataError(
            f"{path} is {stored.lifecycle} with checkpoint {stored.checkpoint}; restore it, or "
            "reset the application"
        )
    return ShardState(
        shard_id=shard_id,
        checkpoint=stored.last_checkpoint if finished else _sequence(stored.checkpoint, path),
        read_position=stored.read_position,
        unresolved=from_rows(stored.unresolved, stored.reasons, path),
        lifecycle=stored.lifecycle,
        parents=stored.parents,
        settled_plan=stored.settled_plan,
        verified_until_ms=stored.verified_until_ms,
        at_tip=stored.at_tip,
        format=stored.format,
    )


def _shard_state_bytes(state: ShardState) -> bytes:
    reasons = shared_reasons(state.unresolved)
    return encode_unchecked(
        _StoredShardState(
            checkpoint=state.checkpoint_text,
            last_checkpoint=state.checkpoint if state.finished else None,
            read_position=state.read_position,
            unresolved=to_rows(state.unresolved, reasons),
            reasons=reasons,
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
            f"{path} has neither a format nor a checkpoint, so it is no shard state; restore it, "
            "or reset the application"
        )
    if stored.checkpoint == _SHARD_END:
        return ShardState(
            shard_id=shard_id,
            read_position=Position(PositionKind.SHARD_END),
            lifecycle=Lifecycle.FINISHED,
        )
    if stored.checkpoint in _ANCESTOR_NOTHING:
        return ShardState(shard_id=shard_id, read_position=TRIM_HORIZON)
    checkpoint = _sequence(stored.checkpoint, path)
    if checkpoint is None:
        raise StoredDataError(f"{path} has no checkpoint")
    return ShardState(
        shard_id=shard_id, checkpoint=checkpoint, read_position=Position.after(checkpoint)
    )


def _sequence(text: str | None, path: str) -> SequenceNumber | None:
    try:
        return None if text is None else SequenceNumber.parse(text)
    except InvalidSequenceNumberError as exc:
        raise StoredDataError(
            f"{path} has checkpoint {text!r}: {exc}; restore it, or reset the application"
        ) from exc
