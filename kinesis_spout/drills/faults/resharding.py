"""Splits and merges, while the job runs and while it does not."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from kinesis_spout.drills.faults.service import READ
from kinesis_spout.testing import throttle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.drills.world.kinesis import SeenShard
    from kinesis_spout.drills.world.world import World

_ROUNDS = 4
_BETWEEN_S = 1.0
_COUNTS = (8, 4)


def split_merge_burst(world: World) -> None:
    """Splits and merges one after the other: children are closed before they are read."""
    began_ns = time.monotonic_ns()
    for _ in range(_ROUNDS):
        split_widest(world)
        world.wait_s(_BETWEEN_S)
        merge_first(world)
        world.wait_s(_BETWEEN_S)
    world.note_fault(f"{_ROUNDS} splits and {_ROUNDS} merges", began_ns)


def update_shard_count(world: World) -> None:
    """The number of shards is doubled and halved, as autoscaling does: when reads are behind. Where
    the service makes faults on demand, parents have a backlog when their children get records.
    """
    for count in _COUNTS:
        began_ns = time.monotonic_ns()
        with _reads_behind(world):
            world.wait_s(_BETWEEN_S)
            world.stream.update_shard_count(count)
            world.samples.sample_shards()
            world.wait_s(_BETWEEN_S)
        world.note_fault(f"UpdateShardCount to {count}", began_ns)
        world.wait_s(2 * _BETWEEN_S)


@contextmanager
def _reads_behind(world: World) -> Iterator[None]:
    """No read is answered for a while."""
    faults = None if world.stream.fake is None else world.stream.fake.faults
    if faults is not None:
        faults.add(throttle(), operation=READ, times=None)
    try:
        yield
    finally:
        if faults is not None:
            faults.clear()


def reshard_while_down(world: World) -> None:
    """The driver is killed, and generations of shards come and go before it is started again."""
    world.faults.append(world.job.kill("kill -9 of the driver"))
    split_merge_burst(world)
    world.job.start()


def split_widest(world: World) -> None:
    widest = max(open_shards(world), key=lambda one: one.hash_end - one.hash_start)
    world.stream.split(widest.shard_id)
    world.samples.sample_shards()


def merge_first(world: World) -> None:
    """Merge the two narrowest neighbours."""
    shards = open_shards(world)
    left, right = min(pairwise(shards), key=lambda pair: pair[1].hash_end - pair[0].hash_start)
    world.stream.merge(left.shard_id, right.shard_id)
    world.samples.sample_shards()


def open_shards(world: World) -> list[SeenShard]:
    """In the order of their hash keys."""
    return sorted(
        (one for one in world.stream.shards() if one.is_open), key=lambda one: one.hash_start
    )
