"""Applications that go back to where they were, on a FakeKinesis in simulated time."""

from __future__ import annotations

from contextlib import closing

import pytest

from kinesis_spout.checkpoints.application_moves import (
    Rewind,
    find_rewind,
    read_history,
    write_moves,
)
from kinesis_spout.checkpoints.moves import MoveRefusedError, RequestedPosition
from state.errors import InvalidPositionError
from state.position import Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.store.identity import StartPin
from tests.support.simulated.simulated_driver import next_plan, read_all
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard


def rewound(job: SimulatedJob, to_ms: int, *, write: bool = True) -> Rewind:
    """What `checkpoint rewind` does."""
    with closing(job.client()) as client, closing(job.store()) as store:
        if write:
            store.ownership.acquire(this_process(0), timeout_s=1)
        wanted = RequestedPosition.parse(str(Position.at_timestamp(to_ms)))
        found = find_rewind(client, store, wanted, clock=job.clock, max_counted=1000)
        if write:
            write_moves(store, found, job.clock.now_ms)
    return found


class Run:
    """A job that is started and stopped, and goes on with its old checkpoint location."""

    def __init__(self, job: SimulatedJob) -> None:
        self.job = job
        self.plan = ""

    def read(self) -> list[int]:
        """A run to where nothing is new. Afterwards a minute passes."""
        coordinator = self.job.coordinator()
        try:
            self.plan, read = read_all(self.job, coordinator, self.plan)
            self.job.clock.advance(10)  # it is idle, and writes its history
            assert next_plan(coordinator, self.plan) == self.plan
        finally:
            coordinator.close()
        self.job.clock.advance(60)
        return read

    def now_ms(self) -> int:
        return self.job.clock.now_ms()


def test_a_start_that_was_imported_since_is_not_where_a_younger_shard_begins(
    one: SimulatedJob,
) -> None:
    """It says where shards without a state start from now on, and nothing of the time before."""
    run_ = Run(one)
    one.put(2)
    run_.read()
    then_ms = run_.now_ms()
    one.fake.split(STREAM, shard(0))
    late = one.put(3)
    assert run_.read() == late
    with one.owned_store() as store:
        now_ms = run_.now_ms()
        imported = StartPin(
            time_ms=now_ms,
            requested="LATEST",
            position=Position.at_timestamp(now_ms),
            shards=tuple(store.shard_states.load()),
        )
        store.identity.replace_start(imported)
    rewound(one, then_ms)
    assert run_.read() == late


def test_nobody_knows_where_an_application_was_before_its_history(one: SimulatedJob) -> None:
    """The command says what to do instead, as for an application of an older version."""
    run_ = Run(one)
    start_ms = run_.now_ms()
    one.put(1)
    one.clock.advance(3600)
    run_.read()
    with pytest.raises(
        MoveRefusedError,
        match=r"history starts later than that, at .* `kinesis-spout checkpoint set --to 20",
    ):
        rewound(one, start_ms)
    with pytest.raises(MoveRefusedError, match="in the future"):
        rewound(one, run_.now_ms() + 1_000)
    with one.owned_store() as store:
        index = store.history.index()
        store.history.write(index, [], remove=index.marks)
    with pytest.raises(
        MoveRefusedError, match=r"no history yet.* `kinesis-spout checkpoint set --to 20"
    ):
        rewound(one, start_ms)


def test_a_shard_that_is_not_listed_any_more_is_named(one: SimulatedJob) -> None:
    """With the position that it cannot go back to, also when its state was removed."""
    run_ = Run(one)
    numbers = one.put(2)
    run_.read()
    then_ms = run_.now_ms()
    one.put(2)
    one.fake.split(STREAM, shard(0))
    run_.read()
    for _ in range(2):
        one.clock.advance(13 * 3600)
        run_.read()
    assert shard(0) not in {each.shard_id for each in one.fake.shards(STREAM)}
    with closing(one.store()) as store:
        oldest = read_history(store.history)[0].time_ms
    found = rewound(one, max(then_ms, oldest), write=False)
    assert found.lost == {shard(0): Position.after(SequenceNumber(numbers[-1]))}


@pytest.mark.parametrize(
    ("text", "time"),
    [("14:00", "14:00:00Z"), ("9:05:07", "09:05:07Z"), ("14:00+09:00", "05:00:00Z")],
)
def test_a_time_of_today_is_a_position(text: str, time: str) -> None:
    wanted = RequestedPosition.parse(text)
    assert (wanted.is_time, wanted.belongs_to_one_shard) == (True, False)
    found = wanted.at(1_772_625_600_000)  # 2026-03-04T12:00:00Z
    assert found == Position.parse(f"2026-03-04T{time}")
    for other in ("24:00", "14:60", "14", "14:00+25:00"):
        with pytest.raises(InvalidPositionError):
            RequestedPosition.parse(other)
