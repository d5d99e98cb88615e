"""Encodes a shard's state, and decodes it; also one that the Kinesis Storm spout wrote.

The shard id is not stored in the value: it is in the path. Unresolved records are stored as rows
(`state.codec.unresolved`). The checkpoint is stored as the Kinesis Storm spout does: a sequence
number, or SHARD_END for a finished shard. The last sequence number of a finished shard is stored as
`lastCheckpoint`.

A state of the Kinesis Storm spout is `{"checkpoint": "<seq>"}` alone, without a format. It means
that every record up to `<seq>` is acked, and that reading goes on after it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict

from state.codec.unresolved import StoredRecord, from_rows, shared_reasons, to_rows
from state.codec.unresolved_ranges import collapse_to_fit
from state.codec.values import MAX_VALUE_BYTES, decode, encode_unchecked
from state.errors import InvalidSequenceNumberError, StateTooLargeError, StoredDataError
from state.position import TRIM_HORIZON, Position, PositionKind
from state.sequence_number import SequenceNumber
from state.shard_state import STATE_FORMAT, Lifecycle, ShardState

_SHARD_END = PositionKind.SHARD_END.value
# The checkpoint that the Kinesis Storm spout stores for a shard without acked records.
_STORM_SPOUT_NONE = ("", PositionKind.TRIM_HORIZON.value)


class _StoredShardState(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The fields of a `ShardState`, with the checkpoint as a text and the unresolved records as
    rows; and what is stored beside these.
    """

    checkpoint: str | None = None
    last_checkpoint: SequenceNumber | None = None
    read_position: Position | None = None
    unresolved: tuple[StoredRecord, ...] = ()
    reasons: tuple[str, ...] = ()
    user_records: bool = False
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    parents: tuple[str, ...] = ()
    settled_plan: str | None = None
    verified_until_ms: int | None = None
    at_tip: bool = False
    format: int = 0


def encode_shard_state(
    state: ShardState, path: str, *, max_bytes: int = MAX_VALUE_BYTES
) -> tuple[bytes, ShardState]:
    """The bytes of a state, and the state that they stand for.

    The latter differs from `state` if that does not fit into `max_bytes`: its unresolved records
    are then merged into ranges. Raises `StateTooLargeError` if one range does not fit either.
    """
    data = _shard_state_bytes(state)
    if len(data) <= max_bytes:
        return data, state
    smaller = collapse_to_fit(state, lambda each: len(_shard_state_bytes(each)) <= max_bytes)
    if smaller is None:
        raise StateTooLargeError(
            f"{path} would take {len(data)} bytes even with its records as one range. The limit is "
            f"{max_bytes} bytes"
        )
    return _shard_state_bytes(smaller), smaller


def decode_shard_state(data: bytes, shard_id: str, path: str) -> ShardState:
    """The state of a shard, also one that the Kinesis Storm spout wrote. Raises `StoredDataError`
    for damaged bytes, a newer format, and fields that contradict each other.
    """
    stored = decode(data, _StoredShardState, path, newest_format=STATE_FORMAT)
    if stored.format == 0:
        return _from_storm_spout(stored, shard_id, path)
    if stored.read_position is None:
        raise StoredDataError(
            f"{path} has format {stored.format} but no read position",
            "restore it, or reset the application",
        )
    finished = stored.checkpoint == _SHARD_END
    if finished != (stored.lifecycle is Lifecycle.FINISHED):
        raise StoredDataError(
            f"{path} contradicts itself: it is {stored.lifecycle} with checkpoint "
            f"{stored.checkpoint}",
            "restore it, or reset the application",
        )
    fields = asdict(stored)
    last, reasons = fields.pop("last_checkpoint"), fields.pop("reasons")
    user_records = fields.pop("user_records")
    fields["checkpoint"] = last if finished else _sequence(stored.checkpoint, path)
    fields["unresolved"] = from_rows(stored.unresolved, reasons, path, user_records=user_records)
    return ShardState(shard_id=shard_id, **fields)


def _shard_state_bytes(state: ShardState) -> bytes:
    reasons = shared_reasons(state.unresolved)
    fields = asdict(state)
    del fields["shard_id"]
    fields["checkpoint"] = state.checkpoint_text
    fields["unresolved"] = to_rows(state.unresolved, reasons)
    stored = _StoredShardState(
        last_checkpoint=state.checkpoint if state.finished else None,
        reasons=reasons,
        user_records=bool(state.unresolved),
        **fields,
    )
    return encode_unchecked(stored)


def _from_storm_spout(stored: _StoredShardState, shard_id: str, path: str) -> ShardState:
    if stored.checkpoint is None:
        raise StoredDataError(
            f"{path} has neither a format nor a checkpoint, so it is not a shard state",
            "restore it, or reset the application",
        )
    if stored.checkpoint == _SHARD_END:
        return ShardState(
            shard_id=shard_id,
            read_position=Position(PositionKind.SHARD_END),
            lifecycle=Lifecycle.FINISHED,
        )
    if stored.checkpoint in _STORM_SPOUT_NONE:
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
            f"{path} has a bad checkpoint ({exc})", "restore it, or reset the application"
        ) from exc
