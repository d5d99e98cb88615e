"""Losses of ZooKeeper, and of the job's session with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesis_spout.drills.faults.kills import frozen
from kinesis_spout.drills.world.ensemble import ZookeeperEnsemble
from kinesis_spout.drills.world.job import DrillError

if TYPE_CHECKING:
    from kinesis_spout.drills.world.world import World
    from state.shard_state import ShardState

_AWAY_S = 3.0
_AGAIN = 50  # records that go on after a freeze
_GOES_ON_S = 30.0  # much longer than a client takes to find another server
_FROZEN_S = 7.0  # longer than the job's session may last without a sign of life


def restart(world: World) -> None:
    """Kill it, and later stop it for a while."""
    if world.setting.spout:
        world.max_restarts = 0  # a spout outlives the outage; a Spark query may end, by design
    for name, act in (
        ("kill -9 of ZooKeeper", world.zookeeper.kill),
        (
            f"ZooKeeper away for {_AWAY_S:.0f} s",
            lambda: world.zookeeper.restart(lambda: world.wait_s(_AWAY_S)),
        ),
    ):
        began_ns = time.monotonic_ns()
        act()
        world.note_fault(name, began_ns)
        world.wait_s(_AWAY_S)


def leader_loss(world: World) -> None:
    """Kill the leader of the ensemble. The others elect another one, and the job goes on with them;
    the first comes back.
    """
    ensemble = world.zookeeper
    if not isinstance(ensemble, ZookeeperEnsemble):
        raise DrillError("the loss of a leader needs an ensemble", "run the drill with --ensemble")
    began_ns = time.monotonic_ns()
    gone = ensemble.kill_leader()
    world.wait_until(lambda: ensemble.leader() not in (None, gone), "the election of a leader")
    world.note_fault("kill -9 of ZooKeeper's leader", began_ns)
    _wait_for_write(world)
    ensemble.start()


def _wait_for_write(world: World) -> None:
    """Wait until the job has stored something, while one server is away."""
    first: dict[str, ShardState] | None = None

    def has_written() -> bool:
        nonlocal first
        stored = world.stored.read()
        first = first or stored  # the others may not have answered at once
        return stored is not None and stored != first

    world.wait_until(has_written, "a write of the job with the others", limit_s=_GOES_ON_S)


def session_loss(world: World) -> None:
    """Freeze the job for longer than its session lasts, then let it go on: it thinks that it owns
    what it has lost. Nobody else has taken it meanwhile.
    """
    if world.setting.spout:
        world.max_restarts = 0  # a spout takes its lease back; a Spark query may end, by design
    began_ns = time.monotonic_ns()
    with frozen(world) as run:
        world.wait_s(_FROZEN_S)
    world.note_fault(f"{run} frozen for {_FROZEN_S:.0f} s", began_ns, run=run)
    world.wait_for_acks(_AGAIN)
