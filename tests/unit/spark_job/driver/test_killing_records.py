"""A record that ends the driver's process at each delivery is found over restarts. In simulated
time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from state.report import OnFailure
from tests.support.simulated.played_outcomes import Killed, PlayedOutcomes, numbered, policy
from tests.support.simulated.simulated_driver import next_plan, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.simulated.simulated_job import SimulatedJob

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
            made = self.job.store().plans.read(plan)
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
    [(0, OnFailure.CONTINUE), (47, OnFailure.BLOCK_KEY), (17, OnFailure.BLOCK_SHARD)],
)
def test_a_record_that_ends_its_process_is_dead_lettered_and_the_others_are_processed_once(
    one: SimulatedJob, killer: int, on_failure: OnFailure
) -> None:
    """Wherever it is in its batch. The others keep their attempts, and have no dead letter. No new
    records are read while it is searched, else the search would never end on a busy stream; they
    are read afterwards.
    """
    one.put(RECORDS)
    restarted = killing(one, killer, on_failure=on_failure)
    restarted.run(put_while_it_runs=9)
    assert restarted.new_in_search == 0
    expected = payloads([n for n in range(RECORDS) if n != killer])
    expected[b"new"] = 9 * restarted.outcomes.killed
    assert Counter(restarted.processed) == expected
    ((message_id, attempts, _),) = restarted.outcomes.letters
    assert message_id.endswith(":1")
    assert attempts == restarted.outcomes.policy.retry.retry_limit + 1
    assert restarted.outcomes.killed <= MOST_RESTARTS
    (state,) = one.states().values()
    assert state.unresolved == ()


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
