"""A shard's state, moved to another read position by an operator. Pure.

Theory of operation. Every record before `read_position` is acked or unresolved, and stays so:

    record                  moved back                          moved forward
    before both positions   as it was                           as it was
    between the two         not read any more: an unresolved    skipped: it counts as acked from
                            one is dropped, and is read again   now on
    after both positions    not read                            not read

A range of unresolved records has no known records between its ends. So a position within one cannot
be kept to: the shard is moved to the first record of the range (`position_outside_ranges`).

Nothing is claimed of a moved shard that is not known. The checkpoint is a number that is known to
lie before the position and before all unresolved records; None without one. The shard is not at its
tip. The caller says what is verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.position import Position, PositionKind
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord

if TYPE_CHECKING:
    from state.plan import Plan
    from state.sequence_number import SequenceNumber


def position_outside_ranges(state: ShardState, to: Position) -> Position:
    """`to`, or the first record of the range of unresolved records that `to` lies within. An
    aggregate that is unresolved as a whole is such a range of user records.
    """
    within = (
        record
        for record in state.unresolved
        if is_before(record.first, to) and not _ends_before(record, to)
    )
    return next((Position.at(record.first) for record in within), to)


def moved_state(state: ShardState, to: Position, *, verified_until_ms: int | None) -> ShardState:
    """The state of a shard that is read from `to` on. `state` itself if it is read from there
    already and nothing is dropped.

    `to`: outside the ranges of the unresolved records (`position_outside_ranges`). A time lies
    after all that was read: pass it only if the service has no record from that time on.
    `verified_until_ms`: the service time before which no record can be missed from there.
    """
    kept = tuple(record for record in state.unresolved if _ends_before(record, to))
    if to == state.read_position and kept == state.unresolved:
        return state
    lifecycle = Lifecycle.ACTIVE
    if to.is_end:
        lifecycle = Lifecycle.DRAINED if kept else Lifecycle.FINISHED
    return replace(
        state,
        checkpoint=_checkpoint(state, to, kept),
        read_position=to,
        unresolved=kept,
        lifecycle=lifecycle,
        verified_until_ms=verified_until_ms,
        at_tip=False,
    )


def never_settling(state: ShardState, plan: Plan | None) -> ShardState:
    """The state, into which `plan` is never settled. The plan must be closed.

    A plan that read from another position does not fit the state, and settling refuses it. A plan
    that read from this position would fit: the state says that it is settled already.
    """
    planned = None if plan is None else plan.slices.get(state.shard_id)
    if plan is None or planned is None or planned.position != state.read_position:
        return state
    return replace(state, settled_plan=plan.plan_id)


def is_before(number: SequenceNumber, position: Position) -> bool:
    """Whether a record with this number is not read any more from `position` on. All are before a
    time and before the shard's end; none is before TRIM_HORIZON.
    """
    sequence = position.sequence
    if sequence is None:
        return position.kind is not PositionKind.TRIM_HORIZON
    if position.kind is PositionKind.AT:
        return number < sequence
    return number.sequence <= sequence.sequence if not sequence.sub else number <= sequence


def _ends_before(record: UnresolvedRecord, to: Position) -> bool:
    if record.whole and not record.last.sub and to.sequence is not None and to.sequence.sub:
        # All of the aggregate's user records are unresolved, also those after the position.
        return record.last.sequence < to.sequence.sequence
    return is_before(record.last, to)


def _checkpoint(
    state: ShardState, to: Position, kept: tuple[UnresolvedRecord, ...]
) -> SequenceNumber | None:
    known = [state.checkpoint]
    if to.kind is PositionKind.AFTER:
        known.append(to.sequence)
    valid = [
        number
        for number in known
        if number is not None
        and not number.sub
        and _is_passed(number, to)
        and not (kept and kept[0].first.sequence <= number.sequence)
    ]
    return max(valid, default=None)


def _is_passed(number: SequenceNumber, to: Position) -> bool:
    """Whether a Kinesis record lies before the position with all of its user records."""
    if to.sequence is not None and (to.sequence.sub or to.kind is PositionKind.AT):
        return number.sequence < to.sequence.sequence
    return is_before(number, to)
