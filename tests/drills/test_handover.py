"""How soon a killed process has a successor at work, and which records come again after a kill."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.drills.history.checks import broken_promises
from kinesis_spout.drills.history.events import Fault, History, Put, Step, Told
from kinesis_spout.drills.history.measures import commit_delays
from kinesis_spout.drills.spout_program import STREAM
from kinesis_spout.drills.world.spout_processes import SpoutProcesses
from kinesis_spout.drills.world.told_files import ToldFiles
from kinesis_spout.drills.world.zookeeper import StoredStates, ZookeeperServer
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer, service_unavailable
from state.store.ownership import TaskShare
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARDS = 4
TASKS = 2
HANDOVER_S = 5.0
WAITS = "is running already"  # says a process that waits for the owner of its task
MORE = 500  # records
S = 1_000_000_000


class Sharing:
    """Tasks that share a stream on which a producer puts a record every few milliseconds."""

    def __init__(self, fake: FakeKinesis, processes: SpoutProcesses) -> None:
        self.fake = fake
        self.processes = processes
        self.puts: list[Put] = []
        self._files = ToldFiles(processes)

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Puts during the context."""
        ending = threading.Event()

        def produce() -> None:
            number = 0
            while not ending.wait(0.01):
                for key in range(SHARDS * 2):
                    data = b"key-%d %d " % (key, number)
                    put = self.fake.put(STREAM, f"key-{key}", data)
                    shard, _, sequence = put.partition(":")
                    self.puts.append(Put(f"key-{key}", number, shard, int(sequence)))
                number += 1

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            yield
        finally:
            ending.set()
            producer.join()

    def told(self, run: str, step: Step) -> list[Told]:
        self._files.read()
        return [one for one in self._files.told() if one.run == run and one.step is step]

    def wait_for(self, run: str, step: Step, count: int) -> None:
        """Wait until the run has told of so many steps; fails at once if a process has ended."""

        def happened() -> bool:
            assert not self.processes.ended()
            return len(self.told(run, step)) >= count

        wait_until(happened, timeout_s=120)

    def wait_for_more(self, run: str, step: Step) -> None:
        self.wait_for(run, step, len(self.told(run, step)) + MORE)

    def wait_for_all(self) -> None:
        """Wait until every record has an outcome."""

        def happened() -> bool:
            assert not self.processes.ended()
            self._files.read()
            return self._files.resolved >= {put.record for put in self.puts}

        wait_until(happened, timeout_s=120)

    def history(self, *faults: Fault) -> History:
        self._files.read()
        return History(
            puts=self.puts,
            told=self._files.told(),
            faults=faults,
            tasks=self.processes.tasks,
        )


@contextmanager
def sharing(
    directory: Path, zookeeper: str, *, tasks: int = TASKS, **more: Any
) -> Iterator[Sharing]:
    """A stream, and processes that are not started yet. `more`: see `SpoutProcesses`."""
    fake = FakeKinesis()
    fake.create(STREAM, shards=SHARDS)
    with ExitStack() as stack:
        server = stack.enter_context(FakeKinesisServer(fake))
        processes = SpoutProcesses(
            directory,
            endpoint=server.endpoint_url,
            zookeeper=zookeeper,
            tasks=tasks,
            seed=1,
            **more,
        )
        stack.callback(processes.end)
        yield Sharing(fake, processes)


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
        world = stack.enter_context(
            sharing(tmp_path, zookeeper_chroot, session_timeout_s=session_s)
        )
        stack.enter_context(world.producing())
        runs = [world.processes.start(each).run for each in range(TASKS)]
        for run in runs:
            world.wait_for(run, Step.COMMIT, 2 * SHARDS // TASKS)
        states = StoredStates(zookeeper_chroot)
        stack.callback(states.close)
        node = None
        if machine == "another":
            node = states.make_foreign(TaskShare(task, TASKS))
            assert node is not None
        killed = world.processes.running[task]
        stack.callback(killed.process.kill)
        successor = world.processes.start(task).run
        wait_until(lambda: WAITS in world.processes.errors(successor), timeout_s=60)
        killed.process.kill()
        killed.process.wait()
        lapsed_ns = None if node is None else states.wait_gone(*node, timeout_s=60)
        ended_ns = lapsed_ns or time.monotonic_ns()
        world.wait_for(successor, Step.GOT, 1)
        assert world.told(successor, Step.GOT)[0].at_ns - ended_ns < HANDOVER_S * S


def test_nothing_comes_again_that_was_acked_before_the_last_commit_of_a_killed_process(
    zookeeper_chroot: str, tmp_path: Path
) -> None:
    """And commits are made at their interval, though the shards cannot be listed all the time.

    A commit is told when it is stored. It has all that was acked when its write began, which is
    much less than half an interval before.
    """
    interval_s = 3.0
    with sharing(tmp_path, zookeeper_chroot, tasks=1, commit_interval_s=interval_s) as world:
        with world.producing():
            run = world.processes.start(0).run
            world.wait_for(run, Step.COMMIT, SHARDS)
            world.fake.faults.add(service_unavailable(), operation="ListShards", times=None)
            world.wait_for(run, Step.COMMIT, 4 * SHARDS)
            world.wait_for_more(run, Step.ACK)
            kill = world.processes.kill(0)
            world.fake.faults.clear()
            world.processes.start(0)
        world.wait_for_all()
        history = world.history(kill)
        assert not [one for one in broken_promises(history) if "came again" in one]
        delays_s = [(end_ns - begin_ns) / S for begin_ns, end_ns in commit_delays(history)]
        assert median(delays_s) < 1.5 * interval_s
        committed_ns = {one.shard_id: one.at_ns for one in world.told(run, Step.COMMIT)}
        again = {one.record for one in history.told if one.step is Step.GOT and one.run != run}
        before_s = [
            (committed_ns[one.shard_id] - one.at_ns) / S
            for one in world.told(run, Step.ACK)
            if one.record in again
        ]
        assert max(before_s, default=0.0) < interval_s / 2


def test_what_was_acked_while_zookeeper_was_away_comes_again_after_a_kill(tmp_path: Path) -> None:
    """Records go on without it, and nothing is stored. What was committed before does not come
    again.
    """
    server = ZookeeperServer(tmp_path / "zookeeper")
    with ExitStack() as stack:
        stack.callback(server.end)
        server.start()
        world = stack.enter_context(sharing(tmp_path, server.connect_string, tasks=1))
        kills: list[Fault] = []

        def kill_after_more_acks() -> None:
            world.wait_for_more(run, Step.ACK)
            kills.append(world.processes.kill(0))

        with world.producing():
            run = world.processes.start(0).run
            world.wait_for(run, Step.COMMIT, 2 * SHARDS)
            server.restart(kill_after_more_acks)
            ((began_ns, _ended_ns),) = server.away
            world.processes.start(0)
        world.wait_for_all()
        history = world.history(*kills)
        assert not [one for one in broken_promises(history) if "came again" in one]
        last_commit_ns = world.told(run, Step.COMMIT)[-1].at_ns
        away = {
            one.record
            for one in world.told(run, Step.ACK)
            if one.at_ns > max(began_ns, last_commit_ns)
        }
        assert len(away) >= MORE
        again = {one.record for one in history.told if one.step is Step.GOT and one.run != run}
        assert away <= again
