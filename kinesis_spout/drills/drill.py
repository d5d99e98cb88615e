"""A drill: put records, disturb the job, let it recover and drain, judge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.verdict import Drilled
from kinesis_spout.drills.setting import DrillError, Need
from kinesis_spout.drills.world import MAX_RESTARTS, World, opened
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinesis_spout.drills.setting import Setting
    from kinesis_spout.drills.verbs import Step

WARM = 100  # records that have an outcome before the fault
_AFTER_S = 2.0
DRAIN_LIMIT_S = 120.0


class Outlasts(Enum):
    """Which processes must outlast a drill. A Spark query may end by design where a spout does
    not.
    """

    NONE = auto()
    SPOUT = auto()
    ANY = auto()


@dataclass(frozen=True, slots=True)
class Drill:
    """`sentence`: what it does, with records on their way. `is_cold`: no job runs before the steps,
    which start it. `of_all`: whether `drill all` has it; a drill that another one contains is left
    out. `step`: the one of a batch that it is about, where there is such a drill for each.
    `is_apart`: a second driver remains, with a checkpoint location of its own, so that the steps of
    no other drill can follow. `restarts`: how often a process that need not outlast it may end by
    itself after a fault.
    `after`: what went wrong beside the promises, in sentences, when the job has drained.
    """

    name: str
    sentence: str
    steps: tuple[Step, ...]
    needs: frozenset[Need] = frozenset()
    outlasts: Outlasts = Outlasts.NONE
    is_cold: bool = False
    of_all: bool = True
    step: str = ""
    is_apart: bool = False
    restarts: int = MAX_RESTARTS
    after: Callable[[World], list[str]] = lambda _: []
    spout_tasks: int = 2
    drain_limit_s: float = DRAIN_LIMIT_S

    def refusal(self, setting: Setting) -> ConfigError | None:
        """Why it is not possible in this setting; None if it is."""
        rows = (
            (
                {Need.OWN_KINESIS},
                not setting.is_fake,
                "service faults, which only the drill's own Kinesis can inject",
                "--localstack, --endpoint-url and --region",
            ),
            (
                {Need.OWN_FUNCTION, Need.POISON},
                setting.process,
                "the drill's own function, which fails for some records",
                "--process",
            ),
            ({Need.POISON}, setting.payload, "its own records", "--payload"),
            ({Need.SPARK, Need.EXECUTORS}, setting.spout, "a Spark job", "--spout"),
            (
                {Need.LINK},
                Need.ENSEMBLE in setting.has,
                "a single ZooKeeper server, whose link the drill cuts",
                "--ensemble",
            ),
        )
        for needs, is_so, what, options in rows:
            if self.needs & needs and is_so:
                return ConfigError(
                    (f"{self.name} needs {what}"), f"run the drill without {options}"
                )
        return None

    def play(self, world: World) -> None:
        """Do all steps."""
        outlasting = {Outlasts.ANY, Outlasts.SPOUT} if world.setting.spout else {Outlasts.ANY}
        world.max_restarts = 0 if self.outlasts in outlasting else self.restarts
        for step in self.steps:
            step(world)


def run_drill(
    drill: Drill, setting: Setting, directory: Path, tell: Callable[[str], object]
) -> Drilled:
    """Run a drill in a world of its own. Blocks; ends all that it started, also when it raises.

    Raises `DrillError`, `KinesisError` or `StateError`.
    """
    setting = replace(setting, has=setting.has | drill.needs)
    with opened(directory, setting, tell, spout_tasks=drill.spout_tasks) as world:
        return disturbed(world, drill)


def disturbed(world: World, drill: Drill) -> Drilled:
    """Put records and start the job unless the drill `is_cold`, do its steps, and let the job
    recover and drain. An error of a step is a trouble: what happened until then is judged. A job
    that does not get to work is not.
    """
    drained_s, troubles, undone = None, [], None
    try:
        world.producers.start()
        if not drill.is_cold:
            world.start()
            world.work(WARM)
    except DrillError as exc:
        undone = str(exc)
        world.producers.stop()
        world.job.end()
    else:
        world.tell(f"the drill starts: {drill.sentence}")
        try:
            drill.play(world)
            world.wait(_AFTER_S)
            drained_s = world.drain(drill.drain_limit_s)
            world.job.close()
        except DrillError as exc:
            troubles.append(str(exc))
            world.job.end()
    troubles += drill.after(world)
    return Drilled(
        drill=drill.name,
        history=world.history(),
        drained_s=drained_s,
        notes=world.notes,
        troubles=troubles,
        undone=undone,
        log=world.log,
    )
