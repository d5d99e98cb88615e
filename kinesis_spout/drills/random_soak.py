"""A soak of a job: the acts of all drills that fit, drawn at random, one after the other, in one
world that lives long. Between them, single answers of the service are faulty. In the second half
only those acts come that spare the job's processes, so that one lives long enough to show whether
it grows. The seed draws the acts, and cannot repeat their times.
"""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.drills.catalog import DRILLS
from kinesis_spout.drills.drill import DRAIN_LIMIT_S, Drilled, Need, disturbed
from kinesis_spout.drills.world.disturbances import disturb
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.use import level_notes, longest_run
from kinesis_spout.drills.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinesis_spout.drills.drill import Drill
    from kinesis_spout.drills.world.setting import Setting

NAME = "soak"
_BETWEEN_S = (3.0, 12.0)
_FAULT_S = (0.05, 1.2)  # between two small faults of the service
_AT_WORK = 50  # records that have an outcome before the next act


def fitting(setting: Setting) -> list[Drill]:
    """The drills whose acts can follow each other in one world of this setting."""
    started = {
        Need.EXECUTORS: setting.executors,
        Need.ENSEMBLE: setting.ensemble,
    }
    return [
        one
        for one in DRILLS.values()
        if not one.is_cold
        and (setting.spout or not one.is_apart)
        and one.refusal(setting) is None
        and all(started.get(need, True) for need in one.needs)
    ]


def run_soak(
    setting: Setting, minutes: float, directory: Path, tell: Callable[[str], object]
) -> Drilled:
    """Disturb for so many minutes, then let it drain. Blocks. Raises as `run_drill` does."""
    random = Random(f"{setting.seed} soak")  # noqa: S311  # events to draw, not a secret
    drills = fitting(setting)
    if not drills:
        raise DrillError("no drill fits these options, so there is nothing to soak with")
    sparing = [one for one in drills if one.spares] or drills
    extras = frozenset(extra for one in drills for extra in one.extras)
    with World(directory, replace(setting, extras=extras), tell) as world:
        seconds = minutes * 60

        def act() -> None:
            end_s = time.monotonic() + seconds
            while (left_s := end_s - time.monotonic()) > 0:
                _small_faults(world, random, min(left_s, random.uniform(*_BETWEEN_S)))
                world.wait_for_acks(_AT_WORK)
                one = random.choice(sparing if left_s < seconds / 2 else drills)
                tell(f"{one.name}: it {one.sentence}")
                one.act(world)

        # All that was ever put may come again at the end.
        drilled = disturbed(world, NAME, act, drain_limit_s=max(DRAIN_LIMIT_S, seconds / 2))
        use = world.samples.use
        return replace(drilled, notes=[*drilled.notes, *level_notes(use, longest_run(use))])


def _small_faults(world: World, random: Random, seconds: float) -> None:
    """One after the other for so long, where the drill's own Kinesis can make them."""
    fake = world.stream.fake
    if fake is None:
        world.wait_s(seconds)
        return
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        disturb(fake, random, world.wait_s)
        world.wait_s(random.uniform(*_FAULT_S))
    fake.faults.clear()
