"""What the history costs a job, and what it does when it cannot be written."""

from __future__ import annotations

import pytest

from kinesis_spout.application.history_recorder import HistoryRecorder
from kinesis_spout.testing import ManualClock
from state.errors import StaleOwnerError
from state.memory_store import MemoryBackend, MemoryStateStore
from state.store.shard_states import StoredState
from tests.support.state.state_stores import OTHER, OWNER, state_at
from tests.support.state.trees import CountingTree, counting_store


class Job:
    """An owner that settles a batch a second."""

    def __init__(self, shards: int = 1) -> None:
        self.backend = MemoryBackend()
        self.clock = ManualClock()
        self.shards = shards
        self.settled = 0
        self.store, self.tree = counting_store(self.backend, application="a", stream="s")
        self.store.ownership.acquire(OWNER, timeout_s=1)
        self.recorder = HistoryRecorder(self.store.history, self.clock)

    def settle(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.settled += 1
            states = {
                f"shard-{shard}": StoredState(state_at(self.settled, f"shard-{shard}"), 0)
                for shard in range(self.shards)
            }
            self.clock.advance(1)
            self.record(states)

    def record(self, states: dict[str, StoredState]) -> None:
        self.recorder.record(states, now_ms=self.clock.now_ms(), retention_ms=86_400_000)

    def look(self) -> MemoryStateStore:
        return MemoryStateStore(self.backend, application="a", stream="s")


def test_a_batch_costs_a_tenth_of_a_write_and_reads_nothing() -> None:
    """At most every 10 seconds, whatever is settled; and nothing while nothing is."""
    job = Job()
    job.settle()
    assert isinstance(job.tree, CountingTree)
    assert job.tree.cost_of(lambda: job.settle(600)) == (0, 60)
    same = {"shard-0": StoredState(state_at(601, "shard-0"), 0)}
    job.clock.advance(60)
    job.record(same)
    job.clock.advance(60)
    assert job.tree.cost_of(lambda: job.record(same)) == (0, 0)


def test_another_writer_is_followed_and_another_owner_respected() -> None:
    """Two tasks may both have led; of two owners, the first writes nothing any more."""
    job = Job()
    job.settle()
    other = HistoryRecorder(job.store.history, job.clock)
    states = {"shard-0": StoredState(state_at(7, "shard-0"), 0)}
    other.record(states, now_ms=job.clock.now_ms(), retention_ms=None)
    job.settle(11)
    job.settle(11)
    numbers = [mark.number for mark in job.look().history.index().marks]
    assert numbers == [0, 1, 2]
    job.store.ownership.release()
    job.look().ownership.acquire(OTHER, timeout_s=1)
    with pytest.raises(StaleOwnerError):
        job.settle(11)
    assert len(job.look().history.index().marks) == 3
