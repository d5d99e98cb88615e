"""A drill: put records, do something to the world, let it recover and drain, judge."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.setting import Extra
from kinesis_spout.drills.world.world import World
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kinesis_spout.drills.history.events import History
    from kinesis_spout.drills.world.setting import Setting

WARM = 100  # records that have an outcome before the fault
_AFTER_S = 2.0
DRAIN_LIMIT_S = 120.0


class Need(StrEnum):
    """What a drill cannot do without. An ensemble and executors are started for it."""

    OWN_KINESIS = "our own Kinesis"
    SPARK = "Spark"
    OWN_FUNCTION = "our own function"
    EXECUTORS = "Spark on executors"
    ENSEMBLE = "a ZooKeeper ensemble"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """`sentence`: what it does. `protection`: what it tests. `act` does it, with records on their
    way. `is_cold`: no job runs before the act, which starts it. `of_all`: whether `drill all` has
    it; a drill that another one contains is left out. `step`: the one of a batch that it is about,
    where there is such a drill for each. `is_apart`: a second driver goes on, with a checkpoint
    location of its own, so that no other act can follow. `spares`: the job's
    process must outlast it.
    """

    name: str
    sentence: str
    protection: str
    act: Callable[[World], None]
    needs: frozenset[Need] = frozenset()
    extras: frozenset[Extra] = frozenset()
    is_cold: bool = False
    of_all: bool = True
    step: str = ""
    is_apart: bool = False
    spares: bool = False

    def refusal(self, setting: Setting) -> ConfigError | None:
        """Why it is not possible in this setting; None if it is."""
        has_own_records = Extra.POISON in self.extras
        refusals = (
            (
                Need.OWN_KINESIS in self.needs and not setting.is_fake,
                "makes faults of the service, which only the drill's own Kinesis makes",
                "run it without --localstack, --endpoint-url and --region",
            ),
            (
                (Need.OWN_FUNCTION in self.needs or has_own_records) and setting.process,
                "makes faults of the drill's own function for a record",
                "run it without --process",
            ),
            (
                has_own_records and setting.payload,
                "has records of its own",
                "run it without --payload",
            ),
            (
                setting.spout and self.needs & {Need.SPARK, Need.EXECUTORS},
                "is about a Spark job",
                "run it without --spout",
            ),
            (
                setting.ensemble and Extra.LINK in self.extras,
                "cuts the link to one ZooKeeper server",
                "run it without --ensemble",
            ),
        )
        return next(
            (
                ConfigError(f"{self.name} {why}", remedy)
                for applies, why, remedy in refusals
                if applies
            ),
            None,
        )

    def setting(self, given: Setting) -> Setting:
        """The given one with what the drill needs besides."""
        return replace(
            given,
            ensemble=given.ensemble or Need.ENSEMBLE in self.needs,
            executors=given.executors or Need.EXECUTORS in self.needs,
            extras=self.extras,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilled:
    """What a drill was, to be judged. `troubles`: what went wrong beside the promises. `undone`:
    why it could not do its work, if it could not. `log`: of the process that was started last.
    """

    drill: str
    history: History
    drained_s: float | None
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
    with World(directory, drill.setting(setting), tell) as world:

        def act() -> None:
            tell(f"it {drill.sentence}")
            drill.act(world)

        drilled = disturbed(world, drill.name, act, is_cold=drill.is_cold)
        if drill.spares:
            drilled.troubles.extend(f"{run} did not outlast it" for run in world.ended)
        return drilled


def disturbed(
    world: World,
    name: str,
    act: Callable[[], object],
    *,
    is_cold: bool = False,
    drain_limit_s: float = DRAIN_LIMIT_S,
) -> Drilled:
    """Let records come and start the job unless `is_cold`, do something to them, and let it recover
    and drain. An error of the act is a trouble: what happened until then is judged. A job that does
    not get to work is not.
    """
    try:
        world.producers.start()
        if not is_cold:
            world.job.start()
            world.wait_for_acks(WARM)
    except DrillError as exc:
        world.producers.stop()
        world.job.end()
        return _drilled(world, name, undone=str(exc))
    troubles, drained_s = [], None
    world.is_disturbed = True
    try:
        act()
        world.wait_s(_AFTER_S)
        drained_s = world.drain(drain_limit_s)
        world.job.close()
    except DrillError as exc:
        troubles.append(str(exc))
        world.job.end()
    return _drilled(world, name, drained_s=drained_s, troubles=troubles)


def _drilled(
    world: World,
    name: str,
    *,
    drained_s: float | None = None,
    troubles: Sequence[str] = (),
    undone: str | None = None,
) -> Drilled:
    return Drilled(
        drill=name,
        history=world.history(),
        drained_s=drained_s,
        notes=world.notes,
        troubles=list(troubles),
        undone=undone,
        log=world.log,
    )
