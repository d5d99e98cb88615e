"""A consumer that is killed under load: unresolved records come again with their attempts, acked
ones do not.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from state.sequence_number import SequenceNumber
from state.zookeeper.store import ZookeeperStateStore
from tests.support.spout import spout_program
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHARDS = 2


class LogLine(NamedTuple):
    """A line of the program's log."""

    number: int
    attempt: int
    verdict: str
    sequence: SequenceNumber
    shard_id: str


def lines(log: Path) -> list[LogLine]:
    parts = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [
        LogLine(int(p[0]), int(p[1]), p[2], SequenceNumber.parse(p[3]), p[4])
        for p in parts
        if len(p) == 5
    ]  # the last line may be cut


def acked(*logs: Path) -> set[int]:
    return {line.number for log in logs for line in lines(log) if line.verdict == "ack"}


@contextmanager
def producing(fake: FakeKinesis) -> Iterator[Callable[[], int]]:
    """Puts numbers, one after the other, during the context; yields a function that returns how
    many there are.
    """
    ending = threading.Event()
    put = 0

    def produce() -> None:
        nonlocal put
        while not ending.wait(0.005):
            for _ in range(5):
                fake.put(spout_program.STREAM, f"key {put}", b"%d" % put)
                put += 1

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield lambda: put
    finally:
        ending.set()
        producer.join()


def is_busy(store: ZookeeperStateStore) -> bool:
    states = [stored.state for stored in store.shard_states.load().values()]
    return len(states) == SHARDS and all(
        state.checkpoint is not None and any(record.attempts == 1 for record in state.unresolved)
        for state in states
    )


def test_kill_9_under_load_repeats_nothing_that_was_committed_and_keeps_attempts(
    zookeeper_chroot: str, tmp_path: Path
) -> None:
    """The state in ZooKeeper after the kill determines exactly which records come again, and
    in which attempt.
    """
    fake = FakeKinesis()
    fake.create(spout_program.STREAM, shards=SHARDS)
    first, second = tmp_path / "first", tmp_path / "second"
    store = ZookeeperStateStore(
        zookeeper_chroot, application=spout_program.APPLICATION, stream=spout_program.STREAM
    )
    with ExitStack() as stack:
        server = stack.enter_context(FakeKinesisServer(fake))
        stack.enter_context(closing(store))

        def start(log: Path) -> subprocess.Popen[bytes]:
            program = [sys.executable, spout_program.__file__]
            started = subprocess.Popen(
                [*program, server.endpoint_url, zookeeper_chroot, str(log)],
            )
            stack.callback(started.wait)
            stack.callback(started.kill)
            return started

        killed = start(first)
        with producing(fake) as produced:
            wait_until(lambda: is_busy(store), timeout_s=60)
            killed.kill()
            killed.wait()
            states = {shard: stored.state for shard, stored in store.shard_states.load().items()}
            start(second)
        wait_until(lambda: acked(first, second) >= set(range(produced())), timeout_s=120)
    first_attempts: dict[SequenceNumber, int] = {}
    for line in lines(second):
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
