"""A drill: put records, disturb the job, let it recover and drain, judge."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from kinesis_spout.drills.setting import DrillError, Need
from kinesis_spout.drills.world import MAX_RESTARTS, World, opened
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinesis_spout.drills.history.events import History
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
    """`sentence`: what it does, with records on their way. `protection`: what it tests. `is_cold`:
    no job runs before the steps, which start it. `of_all`: whether `drill all` has it; a drill that
    another one contains is left out. `step`: the one of a batch that it is about, where there is
    such a drill for each. `is_apart`: a second driver remains, with a checkpoint location of its
    own, so that the steps of no other drill can follow. `restarts`: how often a process may end by
    itself after a fault.
    """

    name: str
    sentence: str
    protection: str
    steps: tuple[Step, ...]
    needs: frozenset[Need] = frozenset()
    outlasts: Outlasts = Outlasts.NONE
    is_cold: bool = False
    of_all: bool = True
    step: str = ""
    is_apart: bool = False
    restarts: int = MAX_RESTARTS

    def refusal(self, setting: Setting) -> ConfigError | None:
        """Why it is not possible in this setting; None if it is."""
        own_records = Need.POISON in self.needs
        of_spark = self.needs & {Need.SPARK, Need.EXECUTORS}
        refusals = (
            (
                Need.OWN_KINESIS in self.needs and not setting.is_fake,
                "needs service faults, which only the drill's own Kinesis can produce",
                "run the drill without --localstack, --endpoint-url and --region",
            ),
            (
                (Need.OWN_FUNCTION in self.needs or own_records) and setting.process,
                "needs the drill's own function, which fails for some records",
                "run the drill without --process",
            ),
            (
                own_records and setting.payload,
                "needs its own records",
                ("run the drill without --payload"),
            ),
            (setting.spout and of_spark, "needs a Spark job", "run the drill without --spout"),
            (
                setting.ensemble and Need.LINK in self.needs,
                "needs a single ZooKeeper server, to which it cuts the link",
                "run the drill without --ensemble",
            ),
        )
        return next(
            (ConfigError(f"{self.name} {why}", remedy) for is_so, why, remedy in refusals if is_so),
            None,
        )

    def setting(self, given: Setting) -> Setting:
        """The given one with what the drill needs besides."""
        return replace(
            given,
            ensemble=given.ensemble or Need.ENSEMBLE in self.needs,
            executors=given.executors or Need.EXECUTORS in self.needs,
            extras=self.needs,
        )

    def play(self, world: World) -> None:
        """Do all steps."""
        if self.outlasts is Outlasts.SPOUT and world.setting.spout:
            world.restarts.limit = 0
        for step in self.steps:
            step(world)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilled:
    """What a drill was, to be judged. `troubles`: what went wrong beside the promises. `undone`:
    why it could not do its work, if it could not. `log`: of the process that was started last.
    """

    drill: str
    history: History
    drained_s: float | None = None
    notes: list[str]
    troubles: list[str] = field(default_factory=list)
    undone: str | None = None
    log: Path | None = None


def run_drill(
    drill: Drill, setting: Setting, directory: Path, tell: Callable[[str], object]
) -> Drilled:
    """Run a drill in a world of its own. Blocks; ends all that it started, also when it raises.

    Raises `DrillError`, `KinesisError` or `StateError`.
    """
    with opened(directory, drill.setting(setting), tell) as world:

        def act() -> None:
            tell(f"it {drill.sentence}")
            world.restarts.limit = drill.restarts
            drill.play(world)

        drilled = disturbed(world, drill.name, act, is_cold=drill.is_cold)
        if drill.outlasts is Outlasts.ANY:
            drilled.troubles.extend(
                (f"{run} did not survive the disturbance") for run in world.restarts.ended
            )
        return drilled


def disturbed(
    world: World,
    name: str,
    act: Callable[[], object],
    *,
    is_cold: bool = False,
    drain_limit_s: float = DRAIN_LIMIT_S,
) -> Drilled:
    """Put records and start the job unless `is_cold`, disturb them, and let the job recover and
    drain. An error of the act is a trouble: what happened until then is judged. A job that does not
    get to work is not.
    """
    drained_s, troubles, undone = None, [], None
    try:
        world.producers.start()
        if not is_cold:
            world.start()
            world.work(WARM)
    except DrillError as exc:
        undone = str(exc)
        world.producers.stop()
        world.job.end()
    else:
        world.restarts.limit = MAX_RESTARTS
        try:
            act()
            world.wait(_AFTER_S)
            drained_s = world.drain(drain_limit_s)
            world.job.close()
        except DrillError as exc:
            troubles.append(str(exc))
            world.job.end()
    return Drilled(
        drill=name,
        history=world.history(),
        drained_s=drained_s,
        notes=world.notes,
        troubles=troubles,
        undone=undone,
        log=world.log,
    )
