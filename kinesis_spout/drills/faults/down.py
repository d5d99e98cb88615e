"""What is done while the job does not run, and when that is over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from state.plan import plan_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.drills.history.events import Fault
    from kinesis_spout.drills.world.world import World


def while_down(world: World, name: str, act: Callable[[], object], *, rewinds: bool = True) -> None:
    """Kill the driver, act, and start it again. One fault of this name."""
    fault = world.job.kill(name)
    world.tell(f"{fault.run} was killed: {name}")
    newest = newest_plan(world)
    act()
    start_after(world, fault._replace(rewinds=rewinds), newest)


def start_after(world: World, fault: Fault, newest: int, stop_at: str | None = None) -> str:
    """Start the driver after a fault, and return its run.

    The fault is over when the driver has made a plan of its own, after the plan `newest`, or has
    come to the failpoint. Until then Spark may repeat a batch that nobody can report any more, and
    whose records come again.
    """
    run = world.job.start(stop_at=stop_at)
    world.wait_until(
        lambda: newest_plan(world) > newest or world.job.marker(run).exists(), "a new plan"
    )
    world.faults.append(fault._replace(ended_ns=time.monotonic_ns()))
    return run


def newest_plan(world: World) -> int:
    """The number of the newest plan; 0 if there is none."""
    plan = newest_plan_id(world)
    return 0 if plan is None else plan_number(plan)


def newest_plan_id(world: World) -> str | None:
    """The newest plan; None if there is none."""
    return max(world.stored.names("batches"), key=plan_number, default=None)
