"""How soon a killed process has a successor at work."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.history.events import Step, Told
from kinesis_spout.drills.job import Job
from kinesis_spout.drills.setting import Setting
from kinesis_spout.drills.stream import FIRST_SHARDS, OwnStream
from kinesis_spout.drills.zookeeper import StoredStates
from state.store.ownership import TaskShare
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAM = "orders"
TASKS = 2
HANDOVER_S = 5.0
WAITS = "is already being run by"  # says a process that waits for the owner of its task
S = 1_000_000_000


class Sharing:
    """Tasks that share a stream on which a producer puts a record every few milliseconds."""

    def __init__(self, stream: OwnStream, job: Job) -> None:
        self.stream = stream
        self.job = job

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Puts during the context."""
        ending = threading.Event()

        def produce() -> None:
            number = 0
            while not ending.wait(0.01):
                keys = range(FIRST_SHARDS * 2)
                self.stream.put([(f"key-{key}", b"key-%d %d " % (key, number)) for key in keys])
                number += 1

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            yield
        finally:
            ending.set()
            producer.join()

    def told(self, run: str, step: Step) -> list[Told]:
        return [one for one in self.job.told() if one.run == run and one.step is step]

    def wait_for(self, run: str, step: Step, count: int) -> None:
        """Wait until the run has told of so many steps; fails at once if a process has ended."""

        def happened() -> bool:
            assert not list(self.job.ended())
            return len(self.told(run, step)) >= count

        wait_until(happened, timeout_s=120)


@contextmanager
def sharing(directory: Path, zookeeper: str, session_timeout_s: float) -> Iterator[Sharing]:
    """A stream, and processes that are not started yet."""
    with OwnStream(STREAM) as stream:
        given = directory, Setting(spout=True), stream, zookeeper
        job = Job(*given, spout_tasks=TASKS, session_timeout_s=session_timeout_s)
        try:
            yield Sharing(stream, job)
        finally:
            job.end()


@pytest.mark.parametrize("task", range(TASKS))
@pytest.mark.parametrize("machine", ["the same", "another"])
def test_a_successor_has_its_first_record_within_five_seconds_of_the_end_of_the_old_one(
    zookeeper_chroot: str, tmp_path: Path, task: int, machine: str
) -> None:
    """It waits already. On the same machine it sees that the process is dead, elsewhere it waits
    until the session has lapsed. Both hold for the task that writes the shard list, too.
    """
    session_s = 4.0 if machine == "another" else 60.0
    with ExitStack() as stack:
        world = stack.enter_context(sharing(tmp_path, zookeeper_chroot, session_s))
        stack.enter_context(world.producing())
        world.job.start()
        for run in world.job.tasks:
            world.wait_for(run, Step.COMMIT, 2 * FIRST_SHARDS // TASKS)
        states = StoredStates(zookeeper_chroot, STREAM)
        stack.callback(states.close)
        node = None
        if machine == "another":
            node = states.make_foreign(TaskShare(task, TASKS))
            assert node is not None
        successor = world.job.start_task(task)
        wait_until(lambda: WAITS in world.job.errors(successor), timeout_s=60)
        ended_ns = world.job.kill(task=task).ended_ns
        if node is not None and states.wait_gone(*node, timeout_s=60):
            ended_ns = time.monotonic_ns()
        world.wait_for(successor, Step.GOT, 1)
        assert world.told(successor, Step.GOT)[0].at_ns - ended_ns < HANDOVER_S * S
