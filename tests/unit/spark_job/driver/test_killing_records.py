"""A record that ends the driver's process at each delivery is found over restarts. In simulated
time.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from state.owner.ownership import this_process
from state.position import Position
from state.report import OnFailure
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.state_store import StateChange
from tests.support.simulated.played_outcomes import Killed, PlayedOutcomes, numbered, policy
from tests.support.simulated.simulated_driver import next_plan, rows_of
from tests.support.simulated.simulated_job import SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDS = 48
MOST_RESTARTS = 40


class RestartedJob:
    """A job whose driver is started again each time it was killed, as a supervisor would do.

    `processed` are the payloads of the processed records. `new_in_search`: how many new records the
    plans of a search were to read.
    """

    def __init__(self, job: SimulatedJob, outcomes: PlayedOutcomes) -> None:
        self.job = job
        self.outcomes = outcomes
        self.processed: list[bytes] = []
        self.new_in_search = 0

    def run(self, *, put_while_it_runs: int = 0) -> None:
        """Until nothing is left to read. Puts records while it runs, if asked to."""
        plan, replayed = "", False
        driver = self.job.coordinator()
        for _ in range(400):
            if not replayed:
                before, plan = plan, next_plan(driver, plan)
                if plan == before:
                    driver.close()
                    return
            made = self.job.store().read_plan(plan)
            if made is not None and made.delivery_limit is not None:
                slices = [one for task in made.tasks for one in task.shards]
                self.new_in_search += sum(one.max_records for one in slices)
            rows = rows_of(self.job, driver, plan)
            try:
                good = self.outcomes.play(rows)
            except Killed:
                driver.close()
                driver, replayed = self.job.coordinator(), True
                self.job.put(put_while_it_runs, data=b"new")
                continue
            replayed = False
            self.processed += [row["data"] for row in good]
        raise AssertionError("the job has not ended")


def killing(job: SimulatedJob, *numbers: int, **more: Any) -> RestartedJob:
    """Every record is processed but those, which end the process that gets them."""
    outcomes = PlayedOutcomes(
        job.store, job.clock.now_ms, lambda _: None, policy(**more), kills=numbered(*numbers)
    )
    return RestartedJob(job, outcomes)


def payloads(numbers: Sequence[int]) -> Counter[bytes]:
    return Counter(f"record {number}".encode() for number in numbers)


@pytest.mark.parametrize(
    ("killer", "on_failure"),
    [
        (0, OnFailure.CONTINUE),
        (17, OnFailure.CONTINUE),
        (47, OnFailure.BLOCK_KEY),
        (17, OnFailure.BLOCK_SHARD),
    ],
)
def test_a_record_that_ends_its_process_is_dead_lettered_and_the_others_are_processed_once(
    killer: int, on_failure: OnFailure
) -> None:
    """Wherever it is in its batch. The others keep their attempts, and have no dead letter."""
    with simulated(shards=1) as job:
        job.put(RECORDS)
        restarted = killing(job, killer, on_failure=on_failure)
        restarted.run()
        assert payloads([n for n in range(RECORDS) if n != killer]) == Counter(restarted.processed)
        ((message_id, attempts, _),) = restarted.outcomes.letters
        assert message_id.endswith(":1")
        assert attempts == restarted.outcomes.policy.retry.retry_limit + 1
        assert restarted.outcomes.killed <= MOST_RESTARTS
        (state,) = job.states().values()
        assert state.unresolved == ()


def test_no_new_records_are_read_while_a_killing_record_is_searched(one: SimulatedJob) -> None:
    """Else the search would never end on a busy stream. They are read afterwards."""
    one.put(RECORDS)
    restarted = killing(one, 35)
    restarted.run(put_while_it_runs=9)
    assert restarted.new_in_search == 0
    assert len(restarted.outcomes.letters) == 1
    assert Counter(restarted.processed)[b"new"] == 9 * restarted.outcomes.killed


def test_several_killing_records_in_several_shards_are_found() -> None:
    """One after the other. The order of the shards changes from plan to plan."""
    with simulated(shards=4) as job:
        for index in range(4):
            key = job.key_of(index)
            for number in range(12):
                job.put(1, key=key, data=f"record {12 * index + number}".encode())
        restarted = killing(job, 5, 20, 33, retry_limit=1)
        restarted.run()
        assert len(restarted.outcomes.letters) == 3
        expected = [n for n in range(RECORDS) if n not in (5, 20, 33)]
        assert payloads(expected) == Counter(restarted.processed)
        assert restarted.outcomes.killed <= 3 * MOST_RESTARTS


@pytest.mark.parametrize("times", [1, 3])
def test_crashes_that_no_record_is_to_blame_for_cost_no_attempt(
    times: int, one: SimulatedJob
) -> None:
    """After one of them the batch is delivered as before; after several, in parts."""
    one.put(RECORDS)
    restarted = killing(one)
    crashes = iter([True] * times)
    restarted.outcomes.kills = lambda _: next(crashes, False)
    restarted.run()
    assert payloads(range(RECORDS)) == Counter(restarted.processed)
    assert restarted.outcomes.letters == []
    assert all(message_id.endswith(":1") for message_id in restarted.outcomes.calls)
    assert (len(restarted.outcomes.done) == 1) is (times == 1)


# a queue that was merged for lack of room: its ranges cover acked records too ---------------------
def queue_as_ranges(job: SimulatedJob, ranges: int, count: int) -> None:
    """Put records. All of them are queued, in ranges that count fewer records than they cover."""
    numbers = [SequenceNumber(number) for number in job.put(RECORDS)]
    each = RECORDS // ranges
    state = ShardState(
        shard_id=shard(0),
        read_position=Position.after(numbers[-1]),
        unresolved=tuple(
            UnresolvedRecord(
                first=numbers[begin],
                last=numbers[begin + each - 1],
                count=count,
                attempts=0,
                due_ms=0,
            )
            for begin in range(0, RECORDS, each)
        ),
    )
    with closing(job.store()) as store:
        store.acquire(this_process(0), timeout_s=1)
        store.save_states([StateChange(before=None, after=state)])


@pytest.mark.parametrize(("ranges", "count", "killer"), [(1, 2, 0), (1, 2, 17), (4, 10, 47)])
def test_a_killing_record_in_a_range_that_covers_acked_records_is_found(
    ranges: int, count: int, killer: int, one: SimulatedJob
) -> None:
    """A range has more rows than its count says. What it still owes is never less than its ends."""
    queue_as_ranges(one, ranges, count)
    restarted = killing(one, killer)
    restarted.run(put_while_it_runs=1)
    expected = payloads([n for n in range(RECORDS) if n != killer])
    expected[b"new"] = restarted.outcomes.killed
    assert Counter(restarted.processed) == expected
    assert len(restarted.outcomes.letters) == 1
    assert restarted.outcomes.killed <= MOST_RESTARTS
