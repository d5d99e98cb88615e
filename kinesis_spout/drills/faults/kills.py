"""Kills of the job's processes: the driver, at a step or in between, and what works below it."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

from kinesis_spout.drills.faults.down import newest_plan, newest_plan_id
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.programs.processes import descendants, resume, suspend
from kinesis_spout.testing import slow
from state.plan import plan_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.drills.world.world import World

_DAEMON = "pyspark.daemon"  # forks the Python workers
_EXECUTOR = "CoarseGrainedExecutorBackend"
_SLOW_S = 1.0  # much longer than a task waits before it appends what it has
HALF_WRITTEN = "shard-states-half-written"
_AGAIN = 100  # records that go on after a kill


def kill_driver(world: World) -> None:
    """Between two steps, wherever it is; and start it again."""
    world.faults.append(world.job.kill("kill -9 of the driver"))
    world.job.start()


def kill_driver_at(*steps: str) -> Callable[[World], None]:
    """At one failpoint after the other, each of a job that was started for it. Records go on until
    the last one works again: a job that skipped what was put while it was down would show it.
    """

    def act(world: World) -> None:
        for step in steps:
            run = world.job.start(stop_at=step)
            world.wait_for_failpoint(run, step)
            world.tell(f"{run} is at {step}: kill -9")
            world.faults.append(world.job.kill(f"kill -9 of the driver at {step}"))
        world.job.start()
        world.wait_for_acks(_AGAIN)

    return act


def kill_driver_between_states(world: World) -> None:
    """At the failpoint between two of the states of a batch. An application writes the first states
    of its shards before its first batch, and so passes there too early: a job has worked before.
    """
    world.job.start()
    world.wait_for_acks(_AGAIN)
    world.faults.append(world.job.kill("kill -9 of the driver"))
    kill_driver_at(HALF_WRITTEN)(world)


def kill_driver_at_second_append(world: World) -> None:
    """At the failpoint of a task that has appended to its log and is not done: one of its shards
    answers slowly, and what the others have is published meanwhile.
    """
    fake, name = world.stream.fake, "log-appended"
    if fake is None:
        raise DrillError(
            "only our own Kinesis answers slowly for one shard, and at once for others"
        )
    run = world.job.start(stop_at=name)
    marker = world.job.marker(run)

    def has_come() -> bool:
        fake.faults.clear()
        fake.faults.add(slow(_SLOW_S), operation="GetRecords", times=1)
        return marker.exists()

    world.wait_until(has_come, f"{run}'s arrival at {name}")
    fake.faults.clear()
    world.faults.append(world.job.kill(f"kill -9 of the driver at {name}"))
    world.job.start()


def kill_python_worker(world: World) -> None:
    """The Python workers of all executors. Spark starts their tasks again; where the master allows
    no failure of a task, the query ends, and its successor repeats the batch.
    """
    _kill_in_batch(world, "kill -9 of the Python workers", is_worker)


def kill_executor(world: World) -> None:
    """The JVM of an executor, and its Python workers with it. Spark starts another one."""
    _kill_in_batch(world, "kill -9 of an executor", lambda one: _EXECUTOR in _command(one), most=1)


def _kill_in_batch(
    world: World,
    name: str,
    is_wanted: Callable[[psutil.Process], bool],
    *,
    most: int | None = None,
) -> None:
    """Kill processes below the job that are as wanted, in the middle of a batch: when a task has
    published what it reads, and before the batch has an outcome. The job goes on.
    """
    wait_for_published(world)
    began_ns = time.monotonic_ns()
    wanted = [
        one for pid in world.job.pids().values() for one in descendants(pid) if is_wanted(one)
    ]
    for one in wanted[:most]:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    world.note_fault(name, began_ns)
    world.wait_for_acks(_AGAIN)


def wait_for_published(world: World) -> None:
    """Wait for a new plan, and until the first of its tasks has published what it reads."""
    newest = newest_plan(world)

    def is_published() -> bool:
        plan = newest_plan_id(world)
        return (
            plan is not None
            and plan_number(plan) > newest
            and any(
                "end" in world.stored.names(f"batches/{plan}/{task}")
                for task in world.stored.names(f"batches/{plan}")
            )
        )

    world.wait_until(is_published, "a batch in which a task has published what it reads")


@contextmanager
def frozen(world: World) -> Iterator[str]:
    """Freeze the job's first process and all below it, and let them go on at the end. The run."""
    run, pid = next(iter(world.job.pids().items()))
    members = [psutil.Process(pid), *descendants(pid)]
    try:
        suspend(members)
        yield run
    finally:
        resume(members)


def is_worker(one: psutil.Process) -> bool:
    """Whether a daemon of PySpark has forked it. It has the daemon's command line."""
    try:
        parent = one.parent()
    except psutil.Error:
        return False
    return parent is not None and _DAEMON in _command(one) and _DAEMON in _command(parent)


def _command(one: psutil.Process) -> str:
    try:
        return " ".join(one.cmdline())
    except psutil.Error:
        return ""
