"""Nodes of ZooKeeper that somebody removes by hand. Their records are delivered again."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.drills.faults.down import newest_plan, newest_plan_id, start_after
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.spark_conf import CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.drills.world.world import World

_BETWEEN = 50  # records that have an outcome between two removals
_LOST = "ZooKeeper has no state of"


class _Removal(NamedTuple):
    """What is removed when a job has come to a step. `names` are asked for then."""

    step: str
    what: str
    names: Callable[[World], list[str]]


def shard_states(world: World) -> None:
    """All of them, of a driver that was killed when it began to settle a plan; and that of one
    shard while the job runs.
    """
    world.faults.append(world.job.kill("kill -9 of the driver"))
    _remove(
        world,
        _Removal(
            "plan-closed",
            "the states of all shards",
            lambda world: [f"{name}/state" for name in _shards(world)],
        ),
    )
    world.wait_for_acks(_BETWEEN)
    one = _shards(world)[0]
    began_ns = time.monotonic_ns()
    world.stored.remove(f"{one}/state")
    world.note_fault(f"the state of {one} removed from the running job", began_ns, rewinds=True)


def task_log(world: World) -> None:
    """What a task has published: before Spark has committed its batch, and after."""
    _remove(
        world,
        _Removal("sink-written", "a task's log", lambda world: [f"{_task(world)}/end"]),
        _Removal("plan-closed", "a task's log", lambda world: [f"{_task(world)}/end"]),
    )


def report(world: World) -> None:
    """The report of a batch: before Spark has committed that, and after."""
    _remove(
        world,
        _Removal("report-done", "the report", lambda world: [f"{_plan(world)}/report"]),
        _Removal("plan-closed", "the report", lambda world: [f"{_plan(world)}/report"]),
    )


def plan(world: World) -> None:
    """The pointer to the plan, what the plan was, and all plans."""
    _remove(
        world,
        _Removal("sink-written", "the pointer to the plan", lambda _: ["plan"]),
        _Removal("plan-closed", "the plan", lambda world: [_plan(world)]),
        _Removal("sink-written", "all plans", lambda _: ["batches"]),
    )


def application(world: World) -> None:
    """All of the application. The job ends, and says what to do: a new checkpoint location."""
    fault = world.job.kill("all of the application removed")
    world.stored.remove()
    world.faults.append(fault._replace(ended_ns=time.monotonic_ns(), rewinds=True))
    world.job.start()
    began_ns = time.monotonic_ns()
    run, words = world.wait_for_end("the loss of its progress")
    if _LOST not in words:
        raise DrillError(f"{run} did not say that {_LOST} its application: {words[-500:]}")
    shutil.rmtree(world.directory / CHECKPOINT)
    world.note_fault(f"{run} refused to go on", began_ns, run=run, rewinds=True)
    world.job.start()


def _remove(world: World, *removals: _Removal) -> None:
    """One after the other, each from a job that was killed when it came to the step; and start it
    again.
    """
    run = world.job.start(stop_at=removals[0].step)
    for one, following in zip(removals, [*removals[1:], None], strict=True):
        world.wait_for_failpoint(run, one.step)
        fault = world.job.kill(f"{one.what} removed at {one.step}")
        world.tell(f"{run} was killed at {one.step}: {one.what} removed")
        newest = newest_plan(world)
        for name in one.names(world):
            world.stored.remove(name)
        stop_at = None if following is None else following.step
        run = start_after(world, fault._replace(rewinds=True), newest, stop_at)


def _shards(world: World) -> list[str]:
    return [name for name in world.stored.names() if name.startswith("shardId-")]


def _plan(world: World) -> str:
    """The newest one. Raises `DrillError` if there is none."""
    plan = newest_plan_id(world)
    if plan is None:
        raise DrillError("the job has made no plan")
    return f"batches/{plan}"


def _task(world: World) -> str:
    """The first one of the newest plan that has published a log."""
    plan = _plan(world)
    for task in (f"{plan}/{name}" for name in world.stored.names(plan)):
        if "end" in world.stored.names(task):
            return task
    raise DrillError(f"no task of {plan} has published a log")
