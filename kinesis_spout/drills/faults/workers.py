"""Python workers of Spark that stop in the middle of a batch, and go on later."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from kinesis_spout.drills.faults.down import newest_plan
from kinesis_spout.drills.faults.kills import is_worker
from kinesis_spout.drills.faults.service import READ
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.programs.processes import descendants, resume, runs, suspend
from kinesis_spout.testing import slow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.drills.world.world import World

_SLOW_S = 6.0  # longer than the session of a worker lasts
_READ_S = 2.0  # that a read takes, so that a worker is stopped while it reads
_AWAKE_S = 15.0  # for which a late worker may try to publish
_AGAIN = 50


def slow_worker(world: World) -> None:
    """Stop the workers for some seconds. Their session with ZooKeeper lapses meanwhile, and they
    make another one: the job does not end of it.
    """
    run = next(iter(world.job.pids()))
    began_ns = time.monotonic_ns()
    stopped = _stop_workers(world)
    try:
        world.wait_s(_SLOW_S)
    finally:
        resume(stopped)
    name = f"{len(stopped)} Python workers stopped for {_SLOW_S:.0f} s"
    world.note_fault(name, began_ns)
    world.wait_for_acks(_AGAIN)
    if run not in world.job.pids():
        raise DrillError(f"{run} ended because its workers had been stopped")


def zombie_worker(world: World) -> None:
    """Stop the workers while they read, kill the driver without them, and let them go on when its
    successor has closed their plan, and has not looked yet at what was read. Kill that one, too.
    """
    fake = world.stream.fake
    if fake is None:
        raise DrillError("only our own Kinesis reads slowly enough to stop a worker in a read")
    newest, struck = newest_plan(world), 0
    fake.faults.add(slow(_READ_S), operation=READ, times=None)

    def is_read() -> bool:
        """Whether a task of a new plan reads: before that plan, its driver has read."""
        nonlocal struck
        if newest_plan(world) == newest:
            struck = len(fake.faults.struck)
            return False
        return len(fake.faults.struck) > struck

    world.wait_until(is_read, "a read of a worker")
    workers = _stop_workers(world)
    fake.faults.clear()
    others: list[psutil.Process] = []
    try:
        others = _orphan(workers, world)
        run = world.job.start(stop_at="plan-closed")
        world.wait_for_failpoint(run, "plan-closed")
        late = [one for one in workers if runs(one)]
        if not late:
            raise DrillError("no stopped worker outlived its driver, so none can publish late")
        published = _published(world)
        resume(late)
        world.wait_s(_AWAKE_S)
        if _published(world) != published:
            raise DrillError("a worker has published under a closed plan")
        left = sum(runs(one) for one in late)
        world.notes.append(
            f"{len(late)} workers of the killed driver went on after their plan was closed; {left} "
            f"of them still ran {_AWAKE_S:.0f} s later"
        )
    finally:
        for one in (*workers, *others):
            with suppress(psutil.NoSuchProcess):
                one.kill()
    world.faults.append(world.job.kill("kill -9 of the driver at plan-closed"))
    world.job.start()


def _orphan(workers: Sequence[psutil.Process], world: World) -> list[psutil.Process]:
    """Kill the driver, but not its workers, and stop what is between them. Returns that: it must
    outlive the workers, since Linux ends stopped processes whose group loses its last parent.
    """
    run, pid = next(iter(world.job.pids().items()))
    began_ns = time.monotonic_ns()
    driver = psutil.Process(pid)
    driver.suspend()
    others = [one for one in descendants(pid) if one not in workers]
    suspend(others)
    driver.kill()
    driver.wait()
    fault = world.job.kill(f"kill -9 of the driver {run}, but not of its stopped workers")
    world.faults.append(fault._replace(began_ns=began_ns))
    return others


def _published(world: World) -> dict[str, bytes | None]:
    """The logs of all tasks of all plans."""
    plans = [f"batches/{plan}" for plan in world.stored.names("batches")]
    logs = [f"{plan}/{task}/end" for plan in plans for task in world.stored.names(plan)]
    return {log: world.stored.data(log) for log in logs}


def _stop_workers(world: World) -> list[psutil.Process]:
    """All of them, as soon as there is one."""
    stopped: list[psutil.Process] = []

    def are_stopped() -> bool:
        for one in _workers(world):
            with suppress(psutil.NoSuchProcess):
                one.suspend()
                stopped.append(one)
        return bool(stopped)

    world.wait_until(are_stopped, "a Python worker to be stopped")
    return stopped


def _workers(world: World) -> list[psutil.Process]:
    return [one for pid in world.job.pids().values() for one in descendants(pid) if is_worker(one)]
