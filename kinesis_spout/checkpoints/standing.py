"""How a record stands in an application: acked, unresolved, or not read yet. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from state.moves.moved_state import is_before
from state.position import PositionKind

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState, UnresolvedRecord


class Standing(StrEnum):
    """`ACKED`: its application is done with it, or it was skipped. `SKIPPED`: it arrived before the
    time from which the shard is read. `UNKNOWN`: it lies in a range of unresolved records, which
    may hold others. The shard's reading begins later or goes on: `UNREAD`.
    """

    ACKED = "acked"
    UNRESOLVED = "unresolved"
    UNKNOWN = "unresolved or acked"
    UNREAD = "not read yet"
    SKIPPED = "before the start"


@dataclass(frozen=True, slots=True)
class RecordStanding:
    """`record`: the entry of an unresolved record, or of the range that it lies in."""

    standing: Standing
    record: UnresolvedRecord | None = None


def standing_of(
    state: ShardState, number: SequenceNumber, arrival_ms: int | None
) -> RecordStanding:
    """How the record stands in the shard's state. A record of an open plan is not read yet.

    `arrival_ms`: None if it is not known, as of a record that has expired.
    """
    for record in state.unresolved:
        is_inside = record.first <= number <= record.last
        is_whole = record.whole and not record.last.sub and record.last.shares_record(number)
        if is_inside or is_whole:
            alone = record.count == 1 and record.first == record.last
            return RecordStanding(Standing.UNRESOLVED if alone else Standing.UNKNOWN, record)
    start_ms = state.read_position.timestamp_ms
    if state.read_position.kind is PositionKind.AT_TIMESTAMP and start_ms is not None:
        is_early = arrival_ms is not None and arrival_ms < start_ms
        return RecordStanding(Standing.SKIPPED if is_early else Standing.UNREAD)
    is_passed = is_before(number, state.read_position)
    return RecordStanding(Standing.ACKED if is_passed else Standing.UNREAD)
