"""Consumers that are killed under load: unresolved records come again with their attempts, acked
ones do not.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from state.sequence_number import SequenceNumber
from state.zookeeper.store import ZookeeperStateStore
from tests.support.spout import spout_program
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECORDS = 4_000
SHARDS = 2


class LogLine(NamedTuple):
    """A line of the program's log."""

    number: int
    attempt: int
    verdict: str
    sequence: SequenceNumber
    shard_id: str


class Consumers:
    """Runs the program, and reads its log."""

    def __init__(
        self, fake: FakeKinesis, endpoint_url: str, zookeeper: str, directory: Path
    ) -> None:
        self.fake = fake
        self._endpoint_url = endpoint_url
        self._zookeeper = zookeeper
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, log: str, task: int = 0, total: int = 1) -> subprocess.Popen[bytes]:
        path = str(self._directory / log)
        arguments = [
            self._endpoint_url,
            self._zookeeper,
            spout_program.APPLICATION,
            path,
            str(task),
            str(total),
        ]
        started = subprocess.Popen([sys.executable, spout_program.__file__, *arguments])
        self._started.append(started)
        return started

    def lines(self, log: str) -> list[LogLine]:
        path = self._directory / log
        lines = path.read_text().splitlines() if path.exists() else []
        parts = [line.split() for line in lines]
        return [
            LogLine(int(p[0]), int(p[1]), p[2], SequenceNumber.parse(p[3]), p[4])
            for p in parts
            if len(p) == 5
        ]  # the last line may be cut

    def acked(self, *logs: str) -> set[int]:
        return {line.number for log in logs for line in self.lines(log) if line.verdict == "ack"}

    @contextmanager
    def producing(self) -> Iterator[Callable[[], int]]:
        """Puts numbers, one after the other, during the context; yields a function that returns how
        many there are.
        """
        ending = threading.Event()
        put = 0

        def produce() -> None:
            nonlocal put
            while not ending.wait(0.005):
                for _ in range(20):
                    self.fake.put(spout_program.STREAM, f"key {put}", b"%d" % put)
                    put += 1

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            yield lambda: put
        finally:
            ending.set()
            producer.join()

    def end(self) -> None:
        for started in self._started:
            started.kill()
            started.wait()


@pytest.fixture
def consumers(zookeeper_chroot: str, tmp_path: Path) -> Iterator[Consumers]:
    fake = FakeKinesis()
    fake.create(spout_program.STREAM, shards=SHARDS)
    with ExitStack() as stack:
        server = stack.enter_context(FakeKinesisServer(fake))
        made = Consumers(fake, server.endpoint_url, zookeeper_chroot, tmp_path)
        stack.callback(made.end)
        yield made


def test_kill_9_under_load_repeats_nothing_that_was_committed_and_keeps_attempts(
    consumers: Consumers, zookeeper_chroot: str
) -> None:
    """The state in ZooKeeper after the kill determines exactly which records come again, and
    in which attempt.
    """
    store = ZookeeperStateStore(
        zookeeper_chroot, application=spout_program.APPLICATION, stream=spout_program.STREAM
    )
    first = consumers.start("first")
    with closing(store), consumers.producing() as produced:
        wait_until(lambda: _is_busy(store), timeout_s=60)
        first.kill()
        first.wait()
        states = {shard: stored.state for shard, stored in store.load_states().items()}
        consumers.start("second")
    wait_until(lambda: consumers.acked("first", "second") >= set(range(produced())), timeout_s=120)
    first_attempts: dict[SequenceNumber, int] = {}
    for line in consumers.lines("second"):
        first_attempts.setdefault(line.sequence, line.attempt)
        state = states[line.shard_id]
        unresolved = {record.first for record in state.unresolved}
        read_up_to = state.read_position.sequence
        assert read_up_to is not None
        assert line.sequence in unresolved or not line.sequence < read_up_to, (
            "it was acked, and that was committed"
        )
    stored = [record for state in states.values() for record in state.unresolved]
    assert any(record.attempts for record in stored)
    came_again = [
        (record.attempts, first_attempts[record.first])
        for record in stored
        if record.first in first_attempts
    ]
    assert came_again
    assert all(attempt == attempts + 1 for attempts, attempt in came_again), (
        "attempts are counted on"
    )


def _is_busy(store: ZookeeperStateStore) -> bool:
    states = [stored.state for stored in store.load_states().values()]
    return len(states) == SHARDS and all(
        state.checkpoint is not None and any(record.attempts == 1 for record in state.unresolved)
        for state in states
    )


def test_two_tasks_share_a_stream_and_one_that_was_killed_takes_its_shards_up_again(
    consumers: Consumers,
) -> None:
    for number in range(0, RECORDS, 2):
        consumers.fake.put(spout_program.STREAM, f"key {number}", b"%d" % number)
    consumers.start("one", 0, 2)
    other = consumers.start("other", 1, 2)
    wait_until(
        lambda: consumers.acked("one") != set() and consumers.acked("other") != set(), timeout_s=60
    )
    other.kill()
    other.wait()
    more = range(RECORDS, 2 * RECORDS, 2)
    for number in more:
        consumers.fake.put(spout_program.STREAM, f"key {number}", b"%d" % number)
    consumers.start("again", 1, 2)
    expected = {*range(0, RECORDS, 2), *more}
    wait_until(lambda: consumers.acked("one", "other", "again") >= expected, timeout_s=120)
    shards = {
        log: {line.shard_id[-1] for line in consumers.lines(log)}
        for log in ("one", "other", "again")
    }
    assert shards == {"one": {"0"}, "other": {"1"}, "again": {"1"}}
