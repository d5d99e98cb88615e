"""A soak of a job: the acts of all drills that fit, drawn at random, one after the other, in one
world that lives long. The seed draws the acts, and cannot repeat their times.
"""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.drills.catalog import DRILLS
from kinesis_spout.drills.drill import WARM, Drilled, Need, disturbed
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.use import levels, longest_run
from kinesis_spout.drills.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kinesis_spout.drills.drill import Drill
    from kinesis_spout.drills.world.setting import Setting
    from kinesis_spout.drills.world.use import UseSample

NAME = "soak"
_BETWEEN_S = (3.0, 12.0)


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
    with World(directory, setting, tell) as world:
        world.producers.start()
        world.job.start()
        world.wait_for_acks(WARM)
        end_s = time.monotonic() + minutes * 60

        def act() -> None:
            while (left_s := end_s - time.monotonic()) > 0:
                world.wait_s(min(left_s, random.uniform(*_BETWEEN_S)))
                one = random.choice(drills)
                tell(f"{one.name}: it {one.sentence}")
                one.act(world)

        drilled = disturbed(world, NAME, act)
        return replace(drilled, notes=[*drilled.notes, *figures(world.samples.use)])


def figures(use: Sequence[UseSample]) -> list[str]:
    """Of the process that lived longest: what it used in the second and in the last quarter."""
    run = longest_run(use)
    return [f"{run}: {level}" for level in levels(use, run)]
