"""A simulated application as seen from outside, and what must hold of every such look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import Kind
from kinesis_spout.inspection.explanation import explain, grouped
from kinesis_spout.inspection.health import READ_PHASES, Health, Look, TipAnswer
from kinesis_spout.inspection.snapshot import Snapshot
from kinesis_spout.inspection.status import status_of
from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
from state.position import PositionKind
from state.sequence_number import SequenceNumber
from tests.simulation.world import APPLICATION

if TYPE_CHECKING:
    from kinesis_spout.inspection.cause import Explanation
    from kinesis_spout.testing.stream.shard import Shard
    from state.position import Position
    from tests.simulation.world import World

COMMANDS = ("resume", "shards")  # without which some causes have no action
FAILED = frozenset({Health.STALLED, Health.LOSING})
FINE = frozenset({Kind.CAUGHT_UP, Kind.NOT_ASKED})


def snapshot_of(world: World) -> Snapshot:
    """What ZooKeeper and a listing show now. It takes nothing of the service's limits, and meets
    none of its faults.
    """
    now_ms = world.clock.now_ms()
    stream = world.fake.stream(world.stream)
    summary = StreamSummary(
        arn=stream.arn,
        name=stream.name,
        created_ms=stream.created_ms,
        status=stream.status(now_ms),
        retention_ms=stream.retention_hours * 3_600_000,
        service_time_ms=now_ms,
    )
    store = world.look()
    try:
        stored = store.view.read()
    finally:
        store.close()
    return Snapshot(
        application=APPLICATION,
        stored=stored,
        stream=summary,
        listing=[_info(shard) for shard in world.fake.shards(world.stream)],
        now_ms=now_ms,
    )


def look_of(world: World, before: Snapshot | None = None) -> Look:
    """A look with the tips of all shards that are read."""
    now = snapshot_of(world)
    unasked = Look(before=before or now, now=now)
    tips = {}
    for shard_id in now.shard_ids:
        progress = now.progress(shard_id)
        if progress is not None and unasked.phase(shard_id) in READ_PHASES:
            tips[shard_id] = TipAnswer(now.now_ms, next_ms(world, shard_id, progress.position))
    return Look(before=before or now, now=now, tips=tips)


def next_ms(world: World, shard_id: str, position: Position) -> int | None:
    """When the next record from a position on arrived; None where there is none."""
    shard = world.fake.stream(world.stream).shard(shard_id)
    number = 0
    if position.sequence is not None:
        number = position.sequence.sequence + (position.kind is PositionKind.AFTER)
    elif position.timestamp_ms is not None:
        number = shard.position_of_time(position.timestamp_ms)
    record = shard.first_from(number)
    return None if record is None else record.arrival_ms


def check_look(look: Look) -> None:
    """Every shard has a status and an explanation that ends with something to do. What fails is not
    explained as fine, and groups leave no shard out.
    """
    status = status_of(look)
    assert {one.shard_id for one in status.shards} == set(look.now.shard_ids)
    for shard_id in (*look.now.shard_ids, "shardId-999999999999"):
        explained = explain(look, shard_id)
        told = [cause.text for cause in explained.causes]
        assert all(told), f"{shard_id} is explained by nothing: {told}"
        assert explained.actions(COMMANDS), f"nobody says what to do about {shard_id}: {told}"
        assert look.health(shard_id) not in FAILED or not is_fine(explained), (
            f"{shard_id} is {look.health(shard_id)}, and said to be fine: {told}"
        )
    named = [shard for group in grouped(look) for shard in group.shards]
    assert len(named) == len(set(named))


def troubled(look: Look) -> list[Explanation]:
    """The explanations of the shards that are not fine."""
    found = [explain(look, shard_id) for shard_id in look.now.shard_ids]
    return [one for one in found if not is_fine(one)]


def is_fine(explained: Explanation) -> bool:
    """Whether nothing is to be done: also not because records may have expired."""
    kinds = {cause.kind for cause in explained.causes}
    return explained.root.kind in FINE and Kind.RECORDS_EXPIRED not in kinds


def _info(shard: Shard) -> ShardInfo:
    ending = shard.ending_sequence
    return ShardInfo(
        shard_id=shard.shard_id,
        parents=shard.parents,
        hash_key_range=(shard.hash_keys.start, shard.hash_keys.end),
        starting_sequence=SequenceNumber(shard.starting_sequence),
        ending_sequence=None if ending is None else SequenceNumber(ending),
    )
