"""A standalone spout after a Spark job of the same application: the plan that the job left open."""

from __future__ import annotations

import pytest

from state.plan import PlanPointer, PlanStatus
from tests.support.simulated.simulated_driver import next_plan, pointer, run
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard
from tests.support.spout.stepped_spout import SteppedSpout
from tests.support.state.interposed_tree import interposed
from tests.support.state.state_stores import OWNER

SAID = "its records that are not settled are read again"


def left_open(job: SimulatedJob) -> str:
    """A Spark job whose batch of three records was read and has not ended: its plan stays open."""
    job.put(3)
    driver = job.coordinator()
    plan = next_plan(driver)
    run(job, driver, plan)
    driver.close()
    return plan


def test_a_spout_closes_the_plan_that_a_spark_job_left_open_and_reads_its_records_again(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    plan = left_open(one)
    spout = SteppedSpout(one)
    assert pointer(one) == PlanPointer(plan, PlanStatus.CLOSED)
    assert f"plan {plan}" in caplog.text
    assert SAID in caplog.text
    assert len(spout.pump()) == 3


def test_two_tasks_that_close_the_open_plan_at_once_both_open(job: SimulatedJob) -> None:
    """The second finds the plan changed, looks again, and goes on."""
    plan = left_open(job)
    store, tree = interposed(job.store())
    others: list[SteppedSpout] = []
    tree.before_write(
        "/plan", lambda: others.append(SteppedSpout(job, task_index=0, total_tasks=2))
    )
    both = [SteppedSpout(job, store=store, task_index=1, total_tasks=2), *others]
    assert len(both) == 2
    assert pointer(job) == PlanPointer(plan, PlanStatus.CLOSED)
    assert sum(len(task.pump()) for task in both) == 3


@pytest.mark.parametrize("settled", [False, True])
def test_a_spout_leaves_a_plan_that_is_closed_or_settled_as_it_is(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture, *, settled: bool
) -> None:
    plan = left_open(one)
    store = one.store()
    store.ownership.acquire(OWNER, timeout_s=0)
    store.plans.close(plan)
    if settled:
        store.plans.mark_settled(plan)
    store.ownership.release()
    before = pointer(one)
    SteppedSpout(one)
    assert pointer(one) == before
    assert SAID not in caplog.text


def test_a_spout_keeps_what_settling_needs_in_the_states(one: SimulatedJob) -> None:
    """The last settled plan and the parents stay; the checkpoint, the position and the time up to
    which nothing was missed move on.
    """
    one.put(2)
    one.fake.split(STREAM, shard(0))
    one.put(2)
    driver = one.coordinator()
    start = ""
    for _ in range(3):
        plan = next_plan(driver, start)
        run(one, driver, plan)
        start = plan
    driver.close()
    before = one.states()
    assert {state.settled_plan for state in before.values()} != {None}
    one.put(4)
    spout = SteppedSpout(one)
    assert len(spout.pump()) == 4
    after = one.states()
    for shard_id, state in before.items():
        kept = after[shard_id]
        assert (kept.settled_plan, kept.parents) == (state.settled_plan, state.parents)
        assert (kept.verified_until_ms or 0) >= (state.verified_until_ms or 0)
    assert any(kept.read_position != before[kept.shard_id].read_position for kept in after.values())
