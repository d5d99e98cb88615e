"""Moves the shards of an application. Blocks on the service and on the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kinesis_spout.application.open_plan import closed_plan
from kinesis_spout.checkpoints.located import ShardSearch, for_each_shard
from kinesis_spout.checkpoints.moves import (
    Goal,
    Move,
    MoveRefusedError,
    gone_move,
    move_of,
    unknown_shard,
    unlisted,
)
from kinesis_spout.checkpoints.recorded_move import ServiceTime, recorded_move
from kinesis_spout.shards.catalog import LISTED_LATE_MS
from kinesis_spout.shards.data_loss import is_there, never_read
from kinesis_spout.shards.lineage import ShardLineage
from kinesis_spout.shards.start_position import new_shards, start_position
from state.failpoint import failpoint
from state.moves.moved_state import never_settling
from state.position import Position
from state.shard_state import ShardState
from state.store.shard_states import StateChange, StoredState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.checkpoints.requested_position import RequestedPosition
    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
    from state.store.identity import StartPin
    from state.znodes.topics import StoreTopics


@dataclass(frozen=True, slots=True)
class ApplicationMove:
    """What is to be written: a move of each shard, and the stored states that they are based on. A
    shard that is new since the application's last listing has none. `service_time`: for the
    history, at the time of writing.
    """

    moves: Sequence[Move]
    stored: Mapping[str, StoredState]
    service_time: ServiceTime

    @property
    def changes_nothing(self) -> bool:
        """Whether each shard is stored already as it would be written."""
        stored = {shard: each.state for shard, each in self.stored.items()}
        return all(stored.get(one.after.shard_id) == one.after for one in self.moves)


@dataclass(frozen=True, slots=True)
class ApplicationProgress:
    """What an application has stored, and what the service lists. `states`: also the first states
    of listed shards that have none. `now_ms`: the service's time. `service_time`: as of
    `ApplicationMove`. `pin`: None before the application's first start.
    """

    summary: StreamSummary
    now_ms: int
    service_time: ServiceTime
    pin: StartPin | None
    stored: Mapping[str, StoredState]
    listed: Mapping[str, ShardInfo]
    states: Mapping[str, ShardState]

    @property
    def horizon_ms(self) -> int:
        """Records that arrived before this time have expired."""
        return self.now_ms - self.summary.retention_ms

    @property
    def lineage(self) -> ShardLineage:
        return ShardLineage(self.listed, self.states)


def find_progress(client: KinesisClient, store: StoreTopics, clock: Clock) -> ApplicationProgress:
    """Raises `StreamMismatchError`, and errors of the service and the store."""
    summary = client.describe()
    now_ms = summary.now_ms(clock.now_ms())
    service_time = ServiceTime(client, clock, now_ms)
    check_bound_stream(store, summary)
    pin, stored = store.identity.read_start(), dict(store.shard_states.load())
    listed = ShardLineage.of(client.list_shards(), {}).listed
    states = _with_new_shards(pin, stored, listed, now_ms)
    return ApplicationProgress(summary, now_ms, service_time, pin, stored, listed, states)


def check_past(position: Position, now_ms: int) -> None:
    """Raise `MoveRefusedError` for a time that is not over."""
    if position.timestamp_ms is not None and position.timestamp_ms > now_ms:
        raise MoveRefusedError(
            f"{position} is in the future of the service, whose clock says "
            f"{Position.at_timestamp(now_ms)}",
            "use LATEST or an earlier time",
        )


def find_moves(
    client: KinesisClient,
    store: StoreTopics,
    requested: RequestedPosition,
    shard_ids: Sequence[str],
    *,
    clock: Clock,
    max_counted: int,
) -> ApplicationMove:
    """What moving these shards does, or all shards of the application if none is named. Writes
    nothing.

    Raises `MoveRefusedError`, `StreamMismatchError`, and errors of the service and the store.
    """
    progress = find_progress(client, store, clock)
    position = requested.at(progress.now_ms)
    check_past(position, progress.now_ms)
    goals = {shard_id: Goal(position) for shard_id in _chosen(progress, shard_ids)}
    found = moves_to(client, progress, goals, clock=clock, max_counted=max_counted)
    gone = {} if shard_ids else _gone_moves(client, store, progress)
    moves = [gone.pop(one.after.shard_id, one) for one in found.moves]
    return replace(found, moves=[*moves, *gone.values()])


def moves_to(
    client: KinesisClient,
    progress: ApplicationProgress,
    goals: Mapping[str, Goal],
    *,
    clock: Clock,
    max_counted: int,
) -> ApplicationMove:
    """What moving each of these shards to its own goal does, in their order. Writes nothing. Raises
    as `find_moves`.
    """
    horizon_ms, lineage = progress.horizon_ms, progress.lineage
    named = {parent for shard in progress.states for parent in lineage.parents(shard)}

    def find(shard_id: str) -> Move:
        state, shard = progress.states[shard_id], progress.listed.get(shard_id)
        if shard is None:
            if goals[shard_id].was_there or not _is_gone(client, progress, state):
                return unlisted(state)
            return gone_move(state, horizon_ms=horizon_ms, has_children=shard_id in named)
        return move_of(
            ShardSearch(client, shard, clock),
            shard,
            state,
            goals[shard_id],
            now_ms=progress.now_ms,
            horizon_ms=horizon_ms,
            max_counted=max_counted,
        )

    moves = for_each_shard(find, goals)
    return ApplicationMove(moves, progress.stored, progress.service_time)


def write_moves(store: StoreTopics, found: ApplicationMove, *, cause: str = "set") -> None:
    """Close the open plan, and write the moved states. The caller owns all of the application.
    `cause`: the command, for the history.

    Stopped at any time, it leaves each shard as it was before or as it is after. Raises
    `ConflictError` where a state has changed since `find_moves`, and before it writes anything what
    `ServiceTime` does.
    """
    found.service_time.now_ms()
    plan = closed_plan(store.plans)
    changes = [
        StateChange(
            before=found.stored.get(move.after.shard_id), after=never_settling(move.after, plan)
        )
        for move in found.moves
    ]
    after = [change.after for change in changes]
    with recorded_move(store, cause, after, now_ms=found.service_time.now_ms):
        store.shard_states.move(changes)
        failpoint("states-moved")


def check_bound_stream(store: StoreTopics, summary: StreamSummary) -> None:
    """Raise `StreamMismatchError` if the application's state is of another stream."""
    if store.identity.read() is not None:  # then binding only compares
        store.identity.bind(summary.identity)


def _with_new_shards(
    pin: StartPin | None,
    stored: Mapping[str, StoredState],
    listed: Mapping[str, ShardInfo],
    now_ms: int,
) -> dict[str, ShardState]:
    """All states, with the first states of listed shards that have none, as the next owner would
    store them.

    They are written together with the moved ones. A moved shard may be verified up to now, and
    whoever reads that takes every shard for tracked up to now.
    """
    states = {shard: each.state for shard, each in stored.items()}
    if pin is None:
        return states
    read_ms = [state.verified_until_ms for state in states.values()]
    known_ms = max([pin.time_ms, *(ms for ms in read_ms if ms is not None)])
    fresh = new_shards(
        list(listed.values()), states, pin, tracked_since_ms=min(known_ms - LISTED_LATE_MS, now_ms)
    )
    return states | {state.shard_id: state for state in fresh}


def _gone_moves(
    client: KinesisClient, store: StoreTopics, progress: ApplicationProgress
) -> dict[str, Move]:
    """By shard, the moves of those that are gone, and whose loss a job would report, though no
    state says that they were not read to their ends.
    """
    pin, horizon_ms = progress.pin, progress.horizon_ms
    if pin is None or progress.summary.status != "ACTIVE":
        return {}
    stored = {shard: each.state for shard, each in progress.stored.items()}
    lineage = ShardLineage(progress.listed, stored)
    never = never_read(
        lineage,
        pin,
        has_begun=lambda: store.shard_list.read() is not None,
        horizon_ms=horizon_ms,
    )
    gone = [ShardState(shard_id=one, read_position=start_position(one, pin)) for one in never]
    gone += [stored[one] for one in lineage.out_of_sight(horizon_ms)]
    return {
        state.shard_id: gone_move(state, horizon_ms=horizon_ms, has_children=False)
        for state in gone
        if not is_there(client, state.shard_id)
    }


def _is_gone(client: KinesisClient, progress: ApplicationProgress, state: ShardState) -> bool:
    """Whether a shard that is not listed is gone unread. Asks the service: while a stream is
    changed the list may be incomplete.
    """
    if state.end_was_read or progress.summary.status != "ACTIVE":
        return False
    return not is_there(client, state.shard_id)


def _chosen(progress: ApplicationProgress, shard_ids: Sequence[str]) -> list[str]:
    """The shards to move, parents before children. Raises `MoveRefusedError` for a name that is not
    a shard with a state, or is one that was read to its end and is not listed any more.
    """
    states = progress.states
    for shard_id in shard_ids:
        if shard_id not in states:
            raise unknown_shard(shard_id, states)
        if shard_id not in progress.listed and states[shard_id].end_was_read:
            raise MoveRefusedError(
                f"shard {shard_id} is not listed any more, so nothing of it can be read",
                "leave it out",
            )
    wanted = set(shard_ids) or states.keys()
    return [shard_id for shard_id in progress.lineage.oldest_first() if shard_id in wanted]
