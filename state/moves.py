"""An operator's moves: a shard's state moved to another read position, and the history of an
application, where each shard was at which time, to go back to. Pure.

Moved states. Every record before `read_position` is acked or unresolved, and stays so:

    record                  moved back                          moved forward
    before both positions   as it was                           as it was
    between the two         not read any more: an unresolved    skipped: it counts as acked from
                            one is dropped, and is read again   now on
    after both positions    not read                            not read

A range of unresolved records has no known records between its ends. So a position within one cannot
be kept to: the shard is moved to the first record of the range (`position_outside_ranges`). Nothing
is claimed of a moved shard that is not known.

History. What consumes the stream writes entries: the service's time, and for each shard a position
before which every record was acked by then (`resume_position`). So an entry is never ahead of the
truth of its time. One that is missing makes an application that goes back go further back. It
repeats records, and loses none. Earlier versions also wrote entries of only those shards that had
changed since the entry before.

    the wanted time is         a shard goes back to
    before the first entry     nothing: nobody knows where it was
    at or after an entry       its position in the last entry up to that time that has one
    before a shard's first     its beginning: it is younger

An operator's move is an entry with a cause, or two where some shards go back and others forward. It
is the only one in which a shard may go back, so what goes back is written before the states are
moved (`kinesis_spout.checkpoints.recorded_move`). The order of the entries is that in which they
were written. "The last entry up to a time" is the last one in this order whose time is not later;
so an entry of a clock that was ahead counts as soon as a later entry does. The time of an entry is
rather too late than too early, and never earlier than that of the entry before it. Just before that
of a move, nobody knows which of the two was first: a shard goes back to the earlier of its
positions before and after the move.

Thinning. Entries are dropped where the gap that this leaves is smallest in proportion to its age:
what is left is fine for the last minutes and coarse for days. The positions of a dropped entry are
in the next one, too, so they count from a later time on, and nothing is claimed too early. An entry
is neither dropped before a move nor is a move: one can go back to just before it. Where there are
too many moves for that, the oldest entries are dropped, whatever they are: the history begins
later. Entries of some shards only, and the one before them, stay until they are all over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.position import TRIM_HORIZON, Position, PositionKind
from state.store.history import HistoryEntry, OperatorMove

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from state.plan import Plan
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState, UnresolvedRecord
    from state.store.history import HistoryMark

MAX_ENTRIES = 256
MIN_ENTRIES = 32
MAX_POSITIONS = 500_000  # in all entries together, if more than `MIN_ENTRIES` are kept
# The time of an entry is later than what it tells by no more than this: a margin of a second, since
# the service's Date header is cut to whole seconds, and the way of an answer.
MAX_LATE_MS = 5_000
_YOUNGEST_AGE_MS = 10_000
MAX_LOOKED_AT = 32  # entries, by somebody who only looks
MAX_POSITIONS_LOOKED_AT = 50_000  # in all of them together
_ALL_USERS = float("inf")


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
    return replace(
        state,
        checkpoint=_checkpoint(state, to, kept),
        read_position=to,
        unresolved=kept,
        verified_until_ms=verified_until_ms,
        at_tip=False,
    )


def never_settling(state: ShardState, plan: Plan | None) -> ShardState:
    """The state, into which `plan` is never settled. The plan must be closed.

    Settling refuses a plan that read from another position. But the shard may come to that position
    again before the plan is settled: a standalone spout reads up to it. So the state says that the
    plan is settled already.
    """
    if plan is None or state.shard_id not in plan.slices:
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
    return number.sequence <= sequence.sequence


def _ends_before(record: UnresolvedRecord, to: Position) -> bool:
    if record.whole and not record.last.sub and to.sequence is not None and to.sequence.sub:
        # All of the aggregate's user records are unresolved, also those after the position.
        return record.last.sequence < to.sequence.sequence
    return is_before(record.last, to)


def _checkpoint(
    state: ShardState, to: Position, kept: tuple[UnresolvedRecord, ...]
) -> SequenceNumber | None:
    """The last Kinesis record that is known to lie, with all of its user records, before the
    position and before all unresolved records; None without one.
    """

    def is_passed(number: SequenceNumber) -> bool:
        if to.sequence is not None and (to.sequence.sub or to.kind is PositionKind.AT):
            return number.sequence < to.sequence.sequence
        return is_before(number, to)

    known = [state.checkpoint, to.sequence if to.kind is PositionKind.AFTER else None]
    valid = [
        number
        for number in known
        if number is not None
        and not number.sub
        and is_passed(number)
        and not (kept and kept[0].first.sequence <= number.sequence)
    ]
    return max(valid, default=None)


@dataclass(frozen=True, slots=True)
class Past:
    """Where an application was: the positions of an entry of `time_ms`, and of those before it.
    `later`: shards that are in later entries only. `absent_until_ms`: by shard, the time of the
    last entry that did not have it yet. A shard of the first entry is not in it.
    """

    time_ms: int
    positions: Mapping[str, Position]
    later: frozenset[str] = frozenset()
    absent_until_ms: Mapping[str, int] = field(default_factory=dict)


def resume_position(state: ShardState) -> Position:
    """The position before which every record of the shard is acked: that of the first unresolved
    record, or the read position.
    """
    if state.unresolved:
        return Position.at(state.unresolved[0].first)
    return state.read_position


def earlier(position: Position, other: Position) -> Position:
    """The earlier of two positions of a shard. The oldest record if nobody knows which one is: a
    time and a sequence number cannot be compared.
    """
    if position == other or position.kind is PositionKind.TRIM_HORIZON or other.is_end:
        return position
    if other.kind is PositionKind.TRIM_HORIZON or position.is_end:
        return other
    if position.sequence is not None and other.sequence is not None:
        return min(position, other, key=_place)
    if position.timestamp_ms is not None and other.timestamp_ms is not None:
        return min(position, other, key=lambda each: each.timestamp_ms or 0)
    return TRIM_HORIZON


def past_at(entries: Sequence[HistoryEntry], time_ms: int) -> Past | None:
    """Where the application was at `time_ms`, as far as the entries tell, which are in their order;
    None for a time before the first one.
    """
    last = max((at for at, entry in enumerate(entries) if entry.time_ms <= time_ms), default=-1)
    first = max((at for at in range(last + 1) if entries[at].full), default=None)
    if first is None:
        return None
    positions = _positions_after({}, *entries[first : last + 1])
    for entry in entries[last + 1 :]:
        if entry.cause is not None and entry.time_ms <= time_ms + MAX_LATE_MS:
            positions = {
                shard: earlier(at, entry.positions[shard])
                for shard, at in positions.items()
                if shard in entry.positions
            }
    later = {shard for entry in entries[last + 1 :] for shard in entry.positions} - positions.keys()
    absent_ms: dict[str, int] = {}
    known = set(entries[0].positions)
    for before, entry in pairwise(entries):
        absent_ms |= dict.fromkeys(entry.positions.keys() - known, before.time_ms)
        known |= entry.positions.keys()
    return Past(entries[last].time_ms, positions, frozenset(later), absent_ms)


def _positions_after(known: dict[str, Position], *entries: HistoryEntry) -> dict[str, Position]:
    for entry in entries:
        known = {**({} if entry.full else known), **entry.positions}
    return known


def changes(
    entries: Sequence[HistoryEntry],
) -> Iterator[tuple[HistoryEntry, dict[str, tuple[Position | None, Position | None]]]]:
    """Each entry with what it changed: by shard, the position before (None: not known) and after
    (None: the shard's state was removed).
    """
    known: dict[str, Position] = {}
    for entry in entries:
        before, known = known, _positions_after(known, entry)
        shards = {**before, **known} if entry.full else entry.positions
        yield (
            entry,
            {
                shard: (before.get(shard), known.get(shard))
                for shard in sorted(shards)
                if before.get(shard) != known.get(shard)
            },
        )


def max_entries(shards: int) -> int:
    """How many entries are kept of an application with so many shards."""
    return max(MIN_ENTRIES, min(MAX_ENTRIES, MAX_POSITIONS // max(shards, 1)))


def to_drop(
    marks: Sequence[HistoryMark], *, now_ms: int, horizon_ms: int | None, max_kept: int
) -> list[HistoryMark]:
    """The entries to remove, in order. At most `max_kept` with all shards are kept.

    `horizon_ms`: the service's time less the retention. Of the entries before it, the last one with
    all shards stays: it tells where the application was then.
    """
    full = [at for at, mark in enumerate(marks) if mark.full]
    over = (at for at in full if horizon_ms is not None and marks[at].time_ms <= horizon_ms)
    begin = max(over, default=0)
    excess = len(full) - max_kept
    costs = ((_cost(marks, at, now_ms), at) for at in range(1, len(marks) - 1))
    candidates = [at for cost, at in sorted(costs) if cost < _ALL_USERS]
    if len(candidates) < excess:
        begin = max(begin, full[excess])
    drops = [*range(begin)]
    for at in candidates:
        if len(drops) >= excess:
            break
        if not any(abs(at - other) < 2 for other in drops):
            drops.append(at)
    return [marks[at] for at in sorted(drops)]


def worth_reading(marks: Sequence[HistoryMark], shards: int) -> list[HistoryMark]:
    """The entries that tell of the newest move and of the newest changes, in their order: few, as
    somebody who only looks reads them at each look.
    """
    most = max(2, min(MAX_LOOKED_AT, MAX_POSITIONS_LOOKED_AT // max(shards, 1)))
    newest = max(0, len(marks) - most)
    wanted = set(range(newest, len(marks)))
    found = _newest_moves([mark.moved for mark in marks])
    if found is not None:
        first, last = found
        begin = max((at for at in range(first) if marks[at].full), default=first)
        wanted |= {last, *range(max(begin, last - most), last)}
    return [marks[at] for at in sorted(wanted)]


def newest_move(entries: Sequence[HistoryEntry]) -> OperatorMove | None:
    """The last move among the entries, and which shards it has set back, and forward. Moves that
    follow each other count as one.
    """
    found = _newest_moves([entry.cause is not None for entry in entries])
    if found is None:
        return None
    first, last = found
    before = _positions_after({}, *entries[:first])
    moved = {
        shard: earlier(before[shard], at) == at
        for shard, at in entries[last].positions.items()
        if shard in before and before[shard] != at
    }
    return OperatorMove(
        cause=entries[last].cause or "",
        time_ms=entries[last].time_ms,
        back=frozenset(shard for shard, is_back in moved.items() if is_back),
        forward=frozenset(shard for shard, is_back in moved.items() if not is_back),
    )


def _newest_moves(moved: Sequence[bool]) -> tuple[int, int] | None:
    """The first and the last of the newest moves that follow each other."""
    last = max((at for at, is_move in enumerate(moved) if is_move), default=None)
    if last is None:
        return None
    return max((at + 1 for at in range(last) if not moved[at]), default=0), last


def held_since_ms(
    entries: Sequence[HistoryEntry], states: Mapping[str, ShardState]
) -> dict[str, int]:
    """By shard with unresolved records, the earliest time by which the first of them was
    unresolved. `entries`: the newest ones. A move ends what they tell.
    """
    wanted = {shard: resume_position(state) for shard, state in states.items() if state.unresolved}
    found: dict[str, int] = {}
    for entry in reversed(entries):
        if entry.cause is not None:
            break
        for shard, position in tuple(wanted.items()):
            at = entry.positions.get(shard)
            if at == position:
                found[shard] = entry.time_ms
            elif at is not None or entry.full:
                del wanted[shard]
    return found


def _cost(marks: Sequence[HistoryMark], at: int, now_ms: int) -> float:
    """The gap that the entry leaves, in proportion to its age; infinite if it stays."""
    before, mark, after = marks[at - 1 : at + 2]
    if mark.moved or after.moved or not mark.full or not after.full:
        return _ALL_USERS
    return (after.time_ms - before.time_ms) / (max(0, now_ms - mark.time_ms) + _YOUNGEST_AGE_MS)


def _place(position: Position) -> tuple[int, float, bool]:
    number = position.sequence
    if number is None:
        raise ValueError(f"position {position} has no sequence number")
    is_after = position.kind is PositionKind.AFTER
    return number.sequence, number.sub or (_ALL_USERS if is_after else 0), is_after
