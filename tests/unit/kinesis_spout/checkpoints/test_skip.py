"""Unresolved records that are given up: the file of them, and the job that goes on without them."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from kinesis_spout.checkpoints.moves import MoveRefusedError
from kinesis_spout.checkpoints.record import Skip, find_skip, unresolved_records, write_skip
from kinesis_spout.cli.checkpoint import save_records
from state.plan import PlanStatus
from state.position import SHARD_END, Position
from state.report import OutcomePolicy
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.shard_states import StoredState
from tests.support.aggregates.wire import aggregate_of
from tests.support.simulated.played_outcomes import PlayedOutcomes
from tests.support.simulated.simulated_driver import next_plan, pointer, run_tracked
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard
from tests.support.state.shard_values import waiting

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.simulated.played_outcomes import Row
    from tests.support.simulated.simulated_job import SimulatedJob


def number(sequence: int, sub: int = 0) -> SequenceNumber:
    return SequenceNumber(sequence, sub)


def state(*unresolved: UnresolvedRecord, end: bool = False) -> ShardState:
    """Read up to 100, acked up to 10 but for these."""
    return ShardState(
        shard_id=shard(0),
        checkpoint=number(10),
        read_position=SHARD_END if end else Position.after(number(100)),
        unresolved=unresolved,
        verified_until_ms=5,
    )


def skipped(before: ShardState, *numbers: SequenceNumber) -> Skip:
    return find_skip({shard(0): StoredState(before, 3)}, shard(0), numbers or None)


@pytest.mark.parametrize(
    ("one", "named"),
    [
        (waiting(30, 50, count=4), [number(40)]),
        (waiting(30, 50, count=4), [number(30), number(31)]),
        (waiting(30, whole=True), [number(30, 3)]),
    ],
)
def test_a_range_or_a_whole_aggregate_is_given_up_as_a_whole(
    one: UnresolvedRecord, named: list[SequenceNumber]
) -> None:
    """Of what is between its ends nothing is known."""
    found = skipped(state(waiting(20), one), *named)
    assert (found.records, found.count, found.after.unresolved) == (
        (one,),
        one.count,
        (waiting(20),),
    )


@pytest.mark.parametrize(
    ("named", "said"),
    [(number(20), "acked"), (number(200), "not read yet"), (number(30, 1), "acked")],
)
def test_what_is_not_unresolved_is_refused(named: SequenceNumber, said: str) -> None:
    with pytest.raises(MoveRefusedError, match=f"is {said}, but only unresolved records can be"):
        skipped(state(waiting(30)), named)
    with pytest.raises(MoveRefusedError, match="no state for shard shardId-0; did you mean"):
        find_skip({"shardId-00": StoredState(state(), 0)}, "shardId-0", None)


def write(job: SimulatedJob, *numbers: int) -> Skip:
    """What `checkpoint skip` does."""
    with job.owned_store() as store:
        found = find_skip(
            store.shard_states.load(), shard(0), [number(one) for one in numbers] or None
        )
        write_skip(store.shard_states, store.plans, found)
    return found


def failing(job: SimulatedJob, *failed: int) -> PlayedOutcomes:
    """A function that fails on these records, always."""

    class Fails:
        def __call__(self, row: Row) -> str | None:
            return "no" if int(row["sequenceNumber"]) in failed else None

    retry = RetryPolicy(retry_limit=9, first_delay_ms=0, jitter=0)
    return PlayedOutcomes(job.store, job.clock.now_ms, Fails(), OutcomePolicy(retry=retry))


def test_a_job_goes_on_without_them_and_repeats_nothing(one: SimulatedJob) -> None:
    """Stopped after a batch that is not settled yet, and that has tried the record again: settling
    it at the next start does not bring the record back.
    """
    put = one.put(5)
    outcomes = failing(one, put[1], put[3])
    coordinator = one.coordinator()
    plan = next_plan(coordinator)
    assert len(run_tracked(one, coordinator, plan, outcomes)) == 5
    retried = next_plan(coordinator, plan)
    assert len(run_tracked(one, coordinator, retried, outcomes)) == 2
    coordinator.close()
    assert pointer(one).status is PlanStatus.OPEN
    found = write(one, put[1])
    assert found.count == 1
    assert found.after.checkpoint == number(put[1])
    assert pointer(one).status is PlanStatus.CLOSED
    again = one.coordinator()
    last = next_plan(again, retried)
    (left,) = one.states()[shard(0)].unresolved
    assert (left.first, left.attempts) == (number(put[3]), 2)
    rows = run_tracked(one, again, last, outcomes)
    assert [int(row["sequenceNumber"]) for row in rows] == [put[3]]


def read_back(job: SimulatedJob, *wanted: UnresolvedRecord) -> list[bytes]:
    with closing(job.client()) as client:
        listed = client.list_shards()[0]
        read = unresolved_records(client, listed, job.clock)
        return [found.data for each in wanted for found in read(each)]


def test_single_records_are_read_at_the_pace_of_their_shard(one: SimulatedJob) -> None:
    """Five a second, after a burst of five."""
    put, began_s = one.put(11), one.clock.monotonic_s()
    assert len(read_back(one, *map(waiting, put))) == 11
    assert one.clock.monotonic_s() - began_s >= 2


def test_the_records_are_read_as_they_were_delivered(one: SimulatedJob) -> None:
    """Single ones, ranges, user records and whole aggregates; what has expired is left out."""
    put = one.put(4)
    data = aggregate_of([b"x", b"y"])
    (whole,) = one.put(1, data=data)
    assert read_back(one, waiting(put[1])) == [b"record 1"]
    assert read_back(one, waiting(put[1], put[3], count=3)) == [
        b"record 1",
        b"record 2",
        b"record 3",
    ]
    assert read_back(one, waiting(put[1] + 1)) == []
    second = number(whole, 1)
    user = UnresolvedRecord(first=second, last=second, attempts=1, due_ms=0)
    assert read_back(one, user) == [b"y"]
    assert read_back(one, waiting(whole)) == [b"x"]
    assert read_back(one, waiting(whole, whole=True)) == [data]
    mixed = replace(user, first=number(put[3]), count=3)
    assert read_back(one, mixed) == [b"record 3", b"x", b"y"]
    all_whole = waiting(put[3], whole, count=2, whole=True)
    assert read_back(one, all_whole) == [b"record 3", data]
    # A spout had delivered the first user record; the others were queued, with a whole aggregate.
    (last,) = one.put(1, data=data)
    begun = replace(all_whole, first=second, last=number(last))
    assert read_back(one, begun) == [b"y", data]
    assert read_back(one, replace(user, whole=True)) == [b"y"]
    one.clock.advance(25 * 3600)
    assert read_back(one, waiting(put[1]), waiting(put[1], put[3], count=3)) == []


def test_of_a_range_the_records_of_other_shards_are_not_read(job: SimulatedJob) -> None:
    """They were not delivered. A record that is named was, alone or at an end of a range."""
    data = aggregate_of([b"x", b"y", b"z"], [job.key_of(0), job.key_of(1), job.key_of(0)])
    put = [int(job.fake.put(STREAM, job.key_of(0), data).partition(":")[2]) for _ in range(2)]
    first, second, last = number(put[0]), number(put[0], 1), number(put[1], 2)
    every = UnresolvedRecord(first=first, last=last, count=4, attempts=1, due_ms=0)
    assert read_back(job, every) == [b"x", b"z"] * 2
    assert read_back(job, replace(every, last=number(put[1], 1))) == [b"x", b"z", b"x", b"y"]
    assert read_back(job, replace(every, last=second), replace(every, first=second)) == [
        b"x", b"y", b"y", b"z", b"x", b"y", b"z",
    ]  # fmt: skip
    assert read_back(job, replace(every, first=second, last=second, count=1)) == [b"y"]


def test_what_has_expired_is_counted_and_the_others_are_saved(
    one: SimulatedJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a range with the number of those that are missing."""
    put = [SequenceNumber(number) for number in one.put(4)]
    one.clock.advance(20 * 3_600)
    put += [SequenceNumber(number) for number in one.put(3, data=b"later")]
    one.clock.advance(5 * 3_600)
    records = (
        UnresolvedRecord(first=put[0], last=put[0], attempts=1, due_ms=0),
        UnresolvedRecord(first=put[1], last=put[4], count=4, attempts=1, due_ms=0),
        UnresolvedRecord(first=put[5], last=put[6], count=2, attempts=1, due_ms=0),
    )
    state = ShardState(shard_id=shard(0), read_position=Position.after(put[6]), unresolved=records)
    path = tmp_path / "letters.jsonl"
    with closing(one.client()) as client:
        save_records(client, Skip(StoredState(state, 0), state, records), path, "etl", one.clock)
    missing = "  not saved, because the records have expired:"
    together = f"records from {put[1]} to {put[4]}, stored as one range"
    assert capsys.readouterr().out.splitlines() == [
        f"{missing} {put[0]}",
        f"{missing} 3 of the 4 {together}",
        f"saved 3 records to {path}",
    ]
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["sequenceNumber"] for one in letters] == [str(number) for number in put[4:]]
