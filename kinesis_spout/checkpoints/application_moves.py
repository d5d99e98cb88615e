"""Moves the shards of an application. Blocks on the service and on the store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.checkpoints.located import ShardSearch
from kinesis_spout.checkpoints.moves import Move, MoveRefusedError, move_of, unlisted
from kinesis_spout.config import nearest_name
from kinesis_spout.shards.catalog import LISTED_LATE_MS
from kinesis_spout.shards.lineage import ShardLineage
from kinesis_spout.shards.open_plan import close_open_plan
from kinesis_spout.shards.start_position import new_shards
from state.moved_state import never_settling
from state.position import Position
from state.state_store import StateChange, StoredState, StreamIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.checkpoints.wanted_position import WantedPosition
    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
    from state.shard_state import ShardState
    from state.znodes.store import ZnodeStateStore

MAX_CONCURRENT_SHARDS = 16


@dataclass(frozen=True, slots=True)
class ApplicationMove:
    """What is to be written: a move of each shard, and the stored states that they are based on. A
    shard that is new since the application's last listing has none.
    """

    moves: Sequence[Move]
    stored: Mapping[str, StoredState]


def find_moves(
    client: KinesisClient,
    store: ZnodeStateStore,
    wanted: WantedPosition,
    shard_ids: Sequence[str],
    *,
    clock: Clock,
    max_counted: int,
) -> ApplicationMove:
    """What moving these shards does, or all shards of the application if none is named. Writes
    nothing.

    Raises `MoveRefusedError`, `StreamMismatchError`, and errors of the service and the store.
    """
    summary = client.describe()
    _check_stream(store, summary)
    now_ms = clock.now_ms() if summary.service_time_ms is None else summary.service_time_ms
    position = wanted.at(now_ms)
    if position.timestamp_ms is not None and position.timestamp_ms > now_ms:
        raise MoveRefusedError(
            f"{position} is in the future of the service, whose clock says "
            f"{Position.at_timestamp(now_ms)}; use LATEST, or a time that is over"
        )
    stored = dict(store.load_states())
    listed = ShardLineage.of(client.list_shards(), {}).listed
    states = _with_new_shards(store, stored, listed, now_ms)
    chosen = _chosen(states, listed, shard_ids)

    def find(shard_id: str) -> Move:
        state, shard = states[shard_id], listed.get(shard_id)
        if shard is None:
            return unlisted(state)
        return move_of(
            ShardSearch(client, shard, clock),
            shard,
            state,
            position,
            now_ms=now_ms,
            retention_ms=summary.retention_ms,
            max_counted=max_counted,
        )

    with ThreadPoolExecutor(MAX_CONCURRENT_SHARDS) as pool:
        return ApplicationMove(list(pool.map(find, chosen)), stored)


def write_moves(store: ZnodeStateStore, found: ApplicationMove) -> None:
    """Close the open plan, and write the moved states. The caller owns all of the application.

    Stopped at any time, it leaves each shard as it was before or as it is after. Raises
    `ConflictError` where a state has changed since `find_moves`.
    """
    close_open_plan(store)
    pointer = store.read_pointer()
    plan = None if pointer is None else store.read_plan(pointer.id)
    store.move_states(
        [
            StateChange(
                before=found.stored.get(move.after.shard_id), after=never_settling(move.after, plan)
            )
            for move in found.moves
        ]
    )


def _check_stream(store: ZnodeStateStore, summary: StreamSummary) -> None:
    if store.read_stream() is not None:  # then binding only compares
        store.bind_stream(
            StreamIdentity(arn=summary.arn, name=summary.name, created_ms=summary.created_ms)
        )


def _with_new_shards(
    store: ZnodeStateStore,
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
    pin = store.read_start()
    if pin is None:
        return states
    read_ms = [state.verified_until_ms for state in states.values()]
    known_ms = max([pin.time_ms, *(ms for ms in read_ms if ms is not None)])
    fresh = new_shards(
        list(listed.values()), states, pin, tracked_since_ms=min(known_ms - LISTED_LATE_MS, now_ms)
    )
    return states | {state.shard_id: state for state in fresh}


def _chosen(
    states: Mapping[str, ShardState], listed: Mapping[str, ShardInfo], shard_ids: Sequence[str]
) -> list[str]:
    """The shards to move, parents before children. Raises `MoveRefusedError` for a name that is not
    a shard with a state, or is one that is not listed any more.
    """
    for shard_id in shard_ids:
        if shard_id not in states:
            nearest = nearest_name(shard_id, states)
            hint = f"did you mean {nearest}?" if nearest else f"it has {', '.join(sorted(states))}"
            raise MoveRefusedError(f"the application has no shard {shard_id}; {hint}")
        if shard_id not in listed:
            raise MoveRefusedError(
                f"shard {shard_id} is not listed any more, so nothing of it can be read; leave it "
                "out"
            )
    wanted = set(shard_ids) or states.keys()
    lineage = ShardLineage(listed, states)
    return [shard_id for shard_id in lineage.oldest_first() if shard_id in wanted]
