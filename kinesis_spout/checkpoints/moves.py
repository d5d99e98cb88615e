"""What moving shards to another position does. Blocks on the service; writes nothing.

Each shard is moved by itself. A wanted time is looked up in the stream, so that a shard goes to a
sequence number and the records before it can be told from those after it:

    the shard has                        it is moved to
    a record from the time on            the first one
    none, and it is closed               its end, whatever its children have
    none, and it is open                 the time: the next record is the first one
    records, all younger than the time   its first one: a child that began later is read whole
    nothing as old, by the retention     TRIM_HORIZON

A position that the service refuses is not in the shard: nothing was read from there. A shard with
such a position can be moved like every other, as one before its oldest record.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

from msgspec import structs

from kinesis_spout.checkpoints.located import END, NONE, Counted, Located, ShardSearch
from kinesis_spout.config import did_you_mean
from kinesis_spout.errors import RequestRefusedError, ShardNotFoundError
from kinesis_spout.shards.data_loss import expired_unread
from kinesis_spout.shards.start_position import pinned
from state.errors import InvalidPositionError, RemediedError
from state.moves import moved_state, position_outside_ranges
from state.position import SHARD_END, TRIM_HORIZON, Position, PositionKind, StartingPosition
from state.shard_state import ShardState, given_up


class RequestedPosition(StartingPosition):
    """A starting position, or SHARD_END."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `LATEST`, `-2h`, `14:00` or any position. Raises `InvalidPositionError`."""
        if text.strip() == PositionKind.SHARD_END:
            return cls(text.strip(), SHARD_END)
        try:
            return super().parse(text)
        except InvalidPositionError as exc:
            # The grammar of starts, to which this adds one.
            raise InvalidPositionError(
                f"{text.strip()!r} is not a position",
                "use TRIM_HORIZON, LATEST, -2h, 14:00, 2026-01-31T12:00:00Z, AT:<sequence>, "
                "AFTER:<sequence> or SHARD_END",
            ) from exc

    def __str__(self) -> str:
        return self.text

    @property
    def belongs_to_one_shard(self) -> bool:
        """Whether it means something in one shard only: a sequence number, or a shard's end."""
        at = self.position
        return at is not None and (at.is_end or at.sequence is not None)

    def at(self, now_ms: int) -> Position:
        """The position that it means at `now_ms`, the service's time."""
        return pinned(self, now_ms)


class MoveRefusedError(RemediedError):
    """A shard cannot be moved to the position."""


def unknown_shard(shard_id: str, known: Collection[str]) -> MoveRefusedError:
    """The refusal of a shard that the application does not have."""
    hint = did_you_mean(shard_id, known, f"pass one of the shards {', '.join(sorted(known))}")
    return MoveRefusedError(f"the application has no state for shard {shard_id}", hint)


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a shard is to be moved. `was_there`: it was there once, as the history says. So the
    position is one of the shard, and the records from there on may have expired since. `since_ms`:
    of TRIM_HORIZON then, the time before which the shard had no records; None if it is not asked.
    """

    position: Position
    was_there: bool = False
    since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One shard, before and after.

    - `skipped`: records that are not read then, and were to be read. `repeated`: records that are
      read then, and were read already. Unresolved records that are read again are among these.
    - `dropped`: unresolved records that are read again instead of retried.
    - `arrival_ms`: the arrival of the first record that is read then; None without one.
    - `lost_until_ms`: records that arrived before this may have expired, though the goal was to
      read them again; None if there are none.
    - `expired_ms`: from when to when records arrived that were to be read, and have expired. They
      are in no count, and their number is not known. None if all are there. The move
      accepts that loss.
    - `gone`: the service does not have the shard any more, and it was not read to its end.
    - `notes`: what the operator would not expect, a sentence each.
    """

    before: ShardState
    after: ShardState
    skipped: Counted = NONE
    repeated: Counted = NONE
    dropped: int = 0
    arrival_ms: int | None = None
    lost_until_ms: int | None = None
    expired_ms: tuple[int, int] | None = None
    gone: bool = False
    notes: tuple[str, ...] = ()

    @property
    def skips(self) -> bool:
        return self.skipped != NONE

    @property
    def accepts_loss(self) -> bool:
        """Whether a job would report data loss without the move, and does not with it."""
        return self.gone or self.expired_ms is not None


def unlisted(state: ShardState) -> Move:
    """The move of a shard that the service does not list any more: none."""
    note = "the stream no longer lists the shard, so its state does not change"
    return Move(before=state, after=state, notes=(note,))


def gone_move(state: ShardState, *, horizon_ms: int) -> Move:
    """The move of a shard that the service does not have any more: its children do not wait for the
    rest of it.
    """
    return Move(
        before=state,
        after=given_up(state),
        gone=True,
        expired_ms=expired_unread(state, horizon_ms),
        notes=(
            "the shard expired before Kinesis listed its child shards, so the child shards' "
            "records are not read"
            if state.end_was_read
            else "the stream no longer lists the shard, so its unread records cannot be read",
        ),
    )


def move_of(search: ShardSearch, state: ShardState, goal: Goal) -> Move:
    """What moving the shard to the goal does. Raises `MoveRefusedError`, and errors of the
    service.
    """
    notes: list[str] = []
    try:
        try:
            _check(search, goal, notes)
            found = resolved(search, goal.position)
        except RequestRefusedError:
            if not goal.was_there:
                raise
            notes.append(
                f"Kinesis refuses {goal.position}, which was the shard's position at the --to "
                "time. The shard moves to its oldest record"
            )
            goal = replace(goal, position=TRIM_HORIZON)
            found = resolved(search, TRIM_HORIZON)
        lost_ms = lost_until(search, goal, found)
        try:
            origin = search.locate(state.read_position)
        except RequestRefusedError:
            origin = None
            notes.append(
                f"Kinesis refuses the shard's position {state.read_position}. All records of the "
                "shard count as unread"
            )
        found = _reached(search, state, found, origin, notes)
        unread = origin or search.locate(TRIM_HORIZON)
    except ShardNotFoundError:
        return unlisted(state)
    verified_ms = verified_until(found, search.now_ms)
    expired_ms = expired_unread(state, search.horizon_ms)
    after = moved_state(state, found.position, verified_until_ms=verified_ms)
    if after == state and expired_ms is not None:
        # The shard continues at its position, and a job does not report the expired records again.
        after = structs.replace(state, verified_until_ms=verified_ms)
    return Move(
        before=state,
        after=after,
        skipped=search.count(unread, found),
        repeated=NONE if origin is None else search.count(found, origin),
        dropped=state.unresolved_count - after.unresolved_count,
        arrival_ms=found.arrival_ms,
        lost_until_ms=None if after == state else lost_ms,
        expired_ms=expired_ms,
        notes=tuple(notes),
    )


def _reached(
    search: ShardSearch, state: ShardState, found: Located, origin: Located | None, notes: list[str]
) -> Located:
    """Where a shard with this state can be moved to, as near to `found` as is possible. `origin`:
    where it continues; None where the service refuses its position. Adds to `notes`.
    """
    outside = position_outside_ranges(state, found.position)
    if outside != found.position:
        notes.append(
            f"{found.position} is inside a range of failed records. The shard moves to the first "
            "record of the range"
        )
        found = search.locate(outside)
    left = moved_state(state, found.position, verified_until_ms=None).unresolved
    dropped = [record for record in state.unresolved if record not in left]
    first = found.first
    if not any(first is None or one.last.sequence < first.sequence for one in dropped):
        return found
    # Those that have expired become dead letters only as unresolved records.
    if first is None:
        if origin is not None:
            notes.append("the shard has no record left to repeat, so its state does not change")
            return origin
        # Nothing is in the shard, so a time lies behind all that was read of it.
        behind = Located(Position.at_timestamp(search.horizon_ms), None)
        return END if found.at_shard_end else behind
    notes.append(
        "the oldest unresolved records of the shard have expired; these records stay unresolved"
    )
    return Located(position_outside_ranges(state, Position.at(first)), first, found.arrival_ms)


def resolved(search: ShardSearch, wanted: Position) -> Located:
    """The position as the stream has it, by the module's table. Raises as `ShardSearch.locate`."""
    found = search.locate(wanted)
    if wanted.timestamp_ms is None:
        return found
    if wanted.timestamp_ms < search.horizon_ms:
        return replace(found, position=TRIM_HORIZON)
    if found.first is not None:
        return replace(found, position=Position.at(found.first))
    return END if found.at_shard_end else found


def verified_until(found: Located, now_ms: int) -> int:
    """The time before which no record is missed from there on: from TRIM_HORIZON on, none that is
    there now, as at a start.
    """
    if found.arrival_ms is None or found.position == TRIM_HORIZON:
        return now_ms
    return found.arrival_ms


def lost_until(search: ShardSearch, goal: Goal, found: Located) -> int | None:
    """See `Move.lost_until_ms`."""
    number, time_ms = goal.position.sequence, goal.position.timestamp_ms
    if goal.position.is_end or (number is not None and not goal.was_there):
        return None
    if number is not None:
        first = search.locate(Position.at(number.whole)).first
        has_expired = first is None or not first.shares_record(number)
    else:
        # The oldest record of that time is not the oldest one of today.
        oldest_ms = goal.since_ms if time_ms is None else time_ms
        has_expired = oldest_ms is not None and oldest_ms < search.horizon_ms
    if not has_expired:
        return None
    return search.horizon_ms if found.arrival_ms is None else found.arrival_ms


def _check(search: ShardSearch, goal: Goal, notes: list[str]) -> None:
    """Refuse an end that an open shard does not have, and a sequence number that no record of the
    shard has, unless later records are there. Adds to `notes`.
    """
    shard = search.shard
    if goal.position.is_end and not shard.is_closed:
        raise MoveRefusedError(
            f"shard {shard.shard_id} is open, so its end (SHARD_END) is not known yet",
            "pass LATEST to skip the records that the shard contains now",
        )
    sequence = goal.position.sequence
    if sequence is None or goal.was_there:
        return
    missing = f"shard {shard.shard_id} has no record {sequence.whole}"
    first, why = None, f"{missing}: its sequence numbers start at {shard.starting_sequence}"
    if sequence.whole >= shard.starting_sequence:
        why = f"{missing} and no later record"
        try:
            first = search.locate(Position.at(sequence.whole)).first
        except RequestRefusedError as exc:
            why = f"{missing}: {exc.message}"
    if first is None:
        remedy = "pass the sequence number of one of the shard's records, or a time"
        raise MoveRefusedError(why, remedy)
    if not first.shares_record(sequence):
        is_oldest = first == search.locate(TRIM_HORIZON).first
        notes.append(
            f"record {sequence.whole} has expired or was never in the shard; the oldest record is "
            f"{first}"
            if is_oldest
            else f"record {sequence.whole} is not in the shard; the next record is {first}"
        )
