"""Two processes that want the same shards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesis_spout.drills.faults.kills import frozen

if TYPE_CHECKING:
    from kinesis_spout.drills.world.world import World

_BESIDE_S = 4.0


def two_drivers(world: World) -> None:
    """Start a second driver beside the first; later kill the first. The second takes over."""
    began_ns = time.monotonic_ns()
    second = world.job.start_another()
    # Over at once: what one delivers after the other from now on has no excuse.
    world.note_fault(f"{second} started beside the first", began_ns)
    world.wait_s(_BESIDE_S)
    world.faults.append(world.job.kill("kill -9 of the first driver"))


def replaced_while_frozen(world: World) -> None:
    """Freeze the first process until another one has taken over what it owns, then let it go on. It
    has records in its hands, and what it thinks that it owns is not its own any more.
    """
    began_ns = time.monotonic_ns()
    with frozen(world) as run:
        second = world.job.start_another()
        world.wait_until(lambda: _has_told(world, second), f"a delivery by {second}")
    world.wait_s(_BESIDE_S)
    name = f"{run} frozen until {second} had taken over"
    world.note_fault(name, began_ns, run=run)


def _has_told(world: World, run: str) -> bool:
    world.files.read()
    return any(told.run == run for told in world.files.told())
