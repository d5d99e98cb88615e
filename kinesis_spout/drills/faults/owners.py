"""Two processes that want the same shards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import Fault

if TYPE_CHECKING:
    from kinesis_spout.drills.world.world import World

_BESIDE_S = 4.0


def two_drivers(world: World) -> None:
    """Start a second driver beside the first; later kill the first. The second takes over."""
    began_ns = time.monotonic_ns()
    second = world.job.start_another()
    world.wait_s(_BESIDE_S)
    world.faults.append(Fault(f"{second} started beside the first", began_ns, time.monotonic_ns()))
    world.faults.append(world.job.kill("kill -9 of the first driver"))
