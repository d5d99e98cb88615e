"""Moves the shards of an application, also back to where they were at a time. Blocks on the service
and on the store.

Back at a time, each shard has the position that the history has of it, before which every record
was acked then (`state.moves`). What was unresolved then is read again, too. A shard that is
younger goes back to its beginning, so a reshard since the time needs no care: parents that were
read to their ends since go back into their middle, and children wait for them again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kinesis_spout.checkpoints.located import ShardSearch, for_each_shard
from kinesis_spout.checkpoints.moves import (
    Goal,
    Move,
    MoveRefusedError,
    RequestedPosition,
    gone_move,
    move_of,
    unknown_shard,
    unlisted,
)
from kinesis_spout.checkpoints.recorded_move import check_bound_stream, write_states
from kinesis_spout.clock import Clock
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.shards.catalog import LISTED_LATE_MS
from kinesis_spout.shards.data_loss import is_there, never_read
from kinesis_spout.shards.lineage import ShardLineage
from kinesis_spout.shards.start_position import new_shards, start_position
from state.errors import ConflictError
from state.moves import past_at, resume_position
from state.position import TRIM_HORIZON, Position
from state.shard_state import ShardState
from state.store.history import HistoryEntry, HistoryStore
from state.store.shard_states import StoredState
from state.znodes.topics import StoreTopics

MAX_PASSES = 20  # over a history that is written meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationMove:
    """What is to be written: a move of each shard, and the stored states that they are based on. A
    shard that is new since the application's last listing has none. `cause`: the command, for the
    history.
    """

    cause: str
    moves: Sequence[Move]
    stored: Mapping[str, StoredState]

    @property
    def changes_nothing(self) -> bool:
        """Whether each shard is stored already as it would be written."""
        stored = {shard: each.state for shard, each in self.stored.items()}
        return all(stored.get(one.after.shard_id) == one.after for one in self.moves)


class _Progress:
    """What an application has stored, and what the service lists.

    `states`: also the first states of listed shards that have none. `now_ms`: the service's time.
    `horizon_ms`: that less the retention. `pin`: None before the application's first start.

    Made, it raises `StreamMismatchError`, and errors of the service and the store.
    """

    def __init__(self, client: KinesisClient, store: StoreTopics, clock: Clock) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        self.summary = client.describe()
        self.now_ms = self.summary.now_ms(clock.now_ms())
        known = store.identity.read() or self.summary.identity
        self.horizon_ms = known.horizon_ms(self.summary.retention_ms, self.now_ms)
        check_bound_stream(store, self.summary.identity)
        self.pin = store.identity.read_start()
        self.stored = dict(store.shard_states.load())
        self.listed = ShardLineage.of(client.list_shards(), {}).listed
        self.states = {shard: each.state for shard, each in self.stored.items()}
        if self.pin is not None:
            # As the next owner would store them. They are written together with the moved ones: a
            # moved shard may be verified up to now, and whoever reads that takes every shard for
            # tracked up to now.
            read_ms = [state.verified_until_ms for state in self.states.values()]
            known_ms = max([self.pin.time_ms, *(ms for ms in read_ms if ms is not None)])
            since_ms = min(known_ms - LISTED_LATE_MS, self.now_ms)
            listed = list(self.listed.values())
            fresh = new_shards(listed, self.states, self.pin, tracked_since_ms=since_ms)
            self.states |= {state.shard_id: state for state in fresh}
        self.lineage = ShardLineage(self.listed, self.states)

    def moves_to(self, goals: Mapping[str, Goal], max_counted: int) -> list[Move]:
        """What moving each shard to its own goal does, in their order. Raises as `find_moves`."""

        def find(shard_id: str) -> Move:
            state, shard, goal = self.states[shard_id], self.listed.get(shard_id), goals[shard_id]
            if shard is not None:
                times = self.now_ms, self.horizon_ms
                search = ShardSearch(self._client, shard, self._clock, *times, max_counted)
                return move_of(search, state, goal)
            if goal.was_there or state.end_was_read or not self._is_gone(shard_id):
                return unlisted(state)
            return gone_move(state, horizon_ms=self.horizon_ms)

        return for_each_shard(find, goals)

    def gone_moves(self) -> dict[str, Move]:
        """By shard, the moves of those that are gone, and whose loss a job would report, though no
        state says that they were not read to their ends.
        """
        if self.pin is None:
            return {}
        stored = {shard: each.state for shard, each in self.stored.items()}
        lineage = ShardLineage(self.listed, stored)
        never = never_read(
            lineage,
            self.pin,
            has_begun=lambda: self._store.shard_list.read() is not None,
            horizon_ms=self.horizon_ms,
        )
        gone = [
            *(
                ShardState(shard_id=one, read_position=start_position(one, self.pin))
                for one in never
            ),
            *(stored[one] for one in lineage.out_of_sight(self.horizon_ms)),
        ]
        return {
            state.shard_id: gone_move(state, horizon_ms=self.horizon_ms)
            for state in gone
            if self._is_gone(state.shard_id)
        }

    def chosen(self, shard_ids: Sequence[str]) -> list[str]:
        """These shards, or all if none is named, parents before children. Raises
        `MoveRefusedError` for a name that is not a shard with a state, or is one that was read to
        its end and is not listed any more.
        """
        for shard_id in shard_ids:
            if shard_id not in self.states:
                raise unknown_shard(shard_id, self.states)
            if shard_id not in self.listed and self.states[shard_id].end_was_read:
                raise MoveRefusedError(
                    f"the stream no longer lists shard {shard_id}, so its records cannot be read",
                    "remove that shard from --shard",
                )
        wanted = shard_ids or self.states
        return [shard_id for shard_id in self.lineage.oldest_first() if shard_id in wanted]

    def _is_gone(self, shard_id: str) -> bool:
        """Whether a shard that is not listed is gone. Asks the service: while a stream is changed
        the list may be incomplete.
        """
        return self.summary.status == "ACTIVE" and not is_there(self._client, shard_id)


def past_position(requested: RequestedPosition, now_ms: int) -> Position:
    """What it means at `now_ms`, the service's time. Raises `MoveRefusedError` for a time that is
    not over.
    """
    position = requested.at(now_ms)
    if position.timestamp_ms is not None and position.timestamp_ms > now_ms:
        raise MoveRefusedError(
            f"{position} is in the future: Kinesis's clock shows {Position.at_timestamp(now_ms)}",
            "pass an earlier time",
        )
    return position


def find_moves(
    client: KinesisClient,
    store: StoreTopics,
    requested: RequestedPosition,
    shard_ids: Sequence[str],
    *,
    clock: Clock,
    max_counted: int,
) -> ApplicationMove:
    """What moving these shards does, or all of the application if none is named. Writes nothing.

    Raises `MoveRefusedError`, `StreamMismatchError`, and errors of the service and the store.
    """
    progress = _Progress(client, store, clock)
    position = past_position(requested, progress.now_ms)
    goals = dict.fromkeys(progress.chosen(shard_ids), Goal(position))
    found = progress.moves_to(goals, max_counted)
    gone = {} if shard_ids else progress.gone_moves()
    return ApplicationMove(
        cause="set",
        moves=[*(gone.pop(one.after.shard_id, one) for one in found), *gone.values()],
        stored=progress.stored,
    )


def write_moves(store: StoreTopics, found: ApplicationMove, now_ms: Callable[[], int]) -> None:
    """Close the open plan, and write the moved states. The caller owns all of the application.
    `now_ms`: the service's time, for the history.

    Stopped at any time, it leaves each shard as it was before or as it is after. Raises
    `ConflictError` where a state has changed since `find_moves`.
    """
    after = [move.after for move in found.moves]
    write_states(store, found.cause, found.stored, after, now_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind(ApplicationMove):
    """A move to a past time. `requested_ms`: the time that was asked for. `past_ms`: that of the
    entry that the application goes back to, which is not later. `lost`: shards that are not listed
    any more, with the positions that they cannot go back to.
    """

    requested_ms: int
    past_ms: int
    lost: Mapping[str, Position]


def find_rewind(
    client: KinesisClient,
    store: StoreTopics,
    to: RequestedPosition,
    *,
    clock: Clock,
    max_counted: int,
) -> Rewind:
    """What going back to `to`, which is a time, does. Writes nothing.

    Raises `MoveRefusedError`, `StreamMismatchError`, and errors of the service and the store.
    """
    progress = _Progress(client, store, clock)
    requested = past_position(to, progress.now_ms)
    entries = read_history(store.history)
    past = past_at(entries, requested.timestamp_ms or 0) if entries else None
    if past is None:
        raise MoveRefusedError(
            "the application's checkpoint history starts only at "
            f"{Position.at_timestamp(entries[0].time_ms)}"
            if entries
            else "the application has no stored checkpoint history; only a running job writes the "
            "history",
            f"move the application with `kinesis-spout checkpoint set --to {requested}`",
        )

    def goal(shard_id: str) -> Position:
        """Where a shard goes back to: where it was, or where it begins if the application did not
        have it then. A start that was imported since says nothing of that time: it may lie after
        the shard's first records.
        """
        if shard_id in past.positions:
            return past.positions[shard_id]
        if progress.pin is None or progress.pin.time_ms > past.time_ms:
            return TRIM_HORIZON
        return start_position(shard_id, progress.pin)

    def since_ms(shard_id: str) -> int:
        """A time before which the shard had no records, as far as history and stream tell."""
        unknown_ms = 0 if shard_id in past.positions else past.time_ms
        absent_ms = past.absent_until_ms.get(shard_id, unknown_ms)
        return max(progress.summary.created_ms, absent_ms - LISTED_LATE_MS)

    goals = {
        shard: Goal(goal(shard), was_there=True, since_ms=since_ms(shard))
        for shard in progress.chosen(())
    }
    gone = sorted({*past.positions, *past.later} - progress.listed.keys())
    lost = {shard: goal(shard) for shard in gone if not goal(shard).is_end}
    for shard in lost.keys() & progress.stored.keys():
        if resume_position(progress.stored[shard].state) == lost[shard]:
            del lost[shard]  # it stays
    return Rewind(
        cause="rewind",
        moves=progress.moves_to(goals, max_counted),
        stored=progress.stored,
        requested_ms=requested.timestamp_ms or 0,
        past_ms=past.time_ms,
        lost=lost,
    )


def read_history(history: HistoryStore) -> list[HistoryEntry]:
    """All entries, in their order; also beside a process that writes. Raises `ConflictError` if
    that continues writing.
    """
    for _ in range(MAX_PASSES):
        marks = history.index().marks
        entries = history.read(marks)
        whole = [entry for entry in entries if entry is not None]
        if len(whole) == len(marks):
            return whole
    raise ConflictError(
        "the checkpoint history changed during each attempt to read it",
        "run the command again",
    )
