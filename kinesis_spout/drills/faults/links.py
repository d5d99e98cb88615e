"""The job is cut off from ZooKeeper, while ZooKeeper and everybody else is well."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesis_spout.drills.world.job import DrillError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.drills.world.link import Link
    from kinesis_spout.drills.world.world import World

_SHORT_S, _LONG_S = 1.5, 8.0  # the job's session lasts 4 s without a sign of life
_AGAIN = 50  # records that go on in between


def cut_off(world: World) -> None:
    """Connections are closed and refused: the job sees errors."""
    _for_both_times(world, "cut off from ZooKeeper", lambda link: link.cut())


def stalled(world: World) -> None:
    """Nothing arrives, and nobody sees an error."""
    _for_both_times(world, "with no answer of ZooKeeper", lambda link: link.stall())


def _for_both_times(world: World, what: str, act: Callable[[Link], None]) -> None:
    """For less time than a session lasts, and for more."""
    if world.link is None:
        raise DrillError(f"the job has no link to ZooKeeper, so it cannot be {what}")
    if world.setting.spout:
        world.max_restarts = 0  # a spout outlives the outage; a Spark query may end, by design
    for seconds in (_SHORT_S, _LONG_S):
        began_ns = time.monotonic_ns()
        act(world.link)
        world.wait_s(seconds)
        world.link.restore()
        name = f"the job {what} for {seconds:g} s"
        world.note_fault(name, began_ns)
        world.wait_for_acks(_AGAIN)
