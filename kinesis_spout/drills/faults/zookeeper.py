"""Losses of ZooKeeper, and of the job's session with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesis_spout.drills.faults.kills import frozen
from kinesis_spout.drills.world.ensemble import ZookeeperEnsemble
from kinesis_spout.drills.world.job import DrillError

if TYPE_CHECKING:
    from kinesis_spout.drills.world.world import World

_AWAY_S = 3.0
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
    """Kill the leader of the ensemble. The others elect another one; the first comes back."""
    ensemble = world.zookeeper
    if not isinstance(ensemble, ZookeeperEnsemble):
        raise DrillError("the loss of a leader needs an ensemble; run the drill with --ensemble")
    began_ns = time.monotonic_ns()
    gone = ensemble.kill_leader()
    world.wait_until(lambda: ensemble.leader() not in (None, gone), "the election of a leader")
    world.note_fault("kill -9 of ZooKeeper's leader", began_ns)
    world.wait_s(_AWAY_S)
    ensemble.start()


def session_loss(world: World) -> None:
    """Freeze the job for longer than its session lasts, then let it go on: it thinks that it owns
    what it has lost.
    """
    began_ns = time.monotonic_ns()
    with frozen(world) as run:
        world.wait_s(_FROZEN_S)
    world.note_fault(f"{run} frozen for {_FROZEN_S:.0f} s", began_ns, run=run)
