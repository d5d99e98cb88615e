"""When the driver makes a plan, when it makes none, and how often it calls the service. In
simulated time.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import AccessDeniedError
from kinesis_spout.testing import error, expired_iterator, throttle
from state.errors import (
    PlanClosedError,
    TaskLogError,
)
from state.plan import Plan, TaskPlan, plan_number
from state.process import this_process
from state.task_log import TaskLog
from tests.support.simulated.simulated_driver import next_plan, one_batch, read_all, run
from tests.support.simulated.simulated_job import (
    APPLICATION,
    STREAM,
    SimulatedJob,
    shard,
    simulated,
)

if TYPE_CHECKING:
    from kinesis_spout.testing import Fault


@pytest.mark.parametrize(
    ("operation", "fault"), [("GetShardIterator", throttle()), ("GetRecords", expired_iterator())]
)
def test_a_shard_whose_probe_is_refused_is_left_to_a_task(
    one: SimulatedJob, operation: str, fault: Fault
) -> None:
    """Other consumers may use up a shard for minutes. An error in the driver would end the query.
    That of a missing right does.
    """
    coordinator = one.coordinator()
    one.fake.faults.add(fault, operation=operation, times=None)
    plan = next_plan(coordinator)
    assert plan
    one.fake.faults.clear()
    put = one.put(2)
    assert run(one, coordinator, plan) == put
    one.fake.faults.add(error("AccessDeniedException"), operation=operation, times=None)
    one.clock.advance(302)  # a new iterator is needed
    with pytest.raises(AccessDeniedError):
        next_plan(coordinator, plan)


def test_a_stretch_without_records_is_no_tip_and_a_shard_that_is_gone_no_work(
    job: SimulatedJob,
) -> None:
    """There may be records behind the former. The shard list decides whether records were lost with
    the latter.
    """
    coordinator = job.coordinator(idle_wait="0s", shard_refresh_interval="60s")
    job.fake.insert_empty_pages(STREAM, shard(0), 3)
    put = job.put(1, key=job.key_of(0))
    plan = next_plan(coordinator)
    assert run(job, coordinator, plan) == put
    plan, _ = read_all(job, coordinator, plan)
    with job.fake.lock:
        del job.fake.stream(STREAM).shards[shard(0)]
    job.clock.advance(1)
    assert next_plan(coordinator, plan) == plan


def test_many_shards_are_not_probed_but_planned_at_intervals() -> None:
    """They are too many to probe, so the tasks look for new records. While one shard is behind,
    plans follow at once.
    """
    with simulated(shards=4) as job:
        start, coordinator = (
            "",
            job.coordinator(probe_max_shards=3, max_records_per_shard=10),
        )
        job.put(30)
        for _ in range(4):
            start, _ = one_batch(job, coordinator, start)
        assert job.clock.monotonic_s() < 1
        job.count_calls()
        plans = 0
        while job.clock.monotonic_s() < 60:
            plan = next_plan(coordinator, start)
            plans += plan != start
            if plan != start:
                start, _ = one_batch(job, coordinator, start, plan)
        assert 5 <= plans <= 7
        assert job.calls("GetRecords") == 4 * plans  # the tasks' own


@pytest.mark.parametrize("asked", ["3-old", "77-newer"])
def test_a_plans_number_is_above_all_numbers_in_sparks_log_and_in_zookeeper(
    asked: str, job: SimulatedJob
) -> None:
    """Either may come from a backup."""
    store = job.store()
    store.ownership.acquire(this_process(0), timeout_s=1)
    task = TaskPlan(shards=(), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
    store.plans.create(Plan(plan_id="12-aa", created_ms=1, tasks=(task,)))
    store.close()
    with closing(job.coordinator()) as first:
        first.open()
    job.put(1)
    assert plan_number(next_plan(job.coordinator(), asked)) > max(12, plan_number(asked))


def test_an_open_plan_whose_end_was_removed_is_closed_and_its_records_come_again(
    job: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """An attempt that still runs might publish another range than the one that was handed over, and
    settling would ack that one.
    """
    for index in (0, 1):
        job.put(3, key=job.key_of(index))
    first = job.coordinator(max_tasks=2)
    plan = next_plan(first)
    delivered = run(job, first, plan)
    first.close()
    job.backend.remove([path for path in job.backend.nodes("") if path.endswith(f"/{plan}/0/end")])
    zombie = job.store()
    with pytest.raises(TaskLogError, match=r"was removed.*start the query again"):
        zombie.plans.append_log(plan, 0, TaskLog(), None)
    restarted = job.coordinator(max_tasks=2)
    assert list(restarted.tasks(plan)) == [1]
    assert f"the logs of tasks 0 of plan {plan} were removed from ZooKeeper" in caplog.text
    with pytest.raises(PlanClosedError):
        zombie.plans.append_log(plan, 0, TaskLog(), None)
    kept = run(job, restarted, plan)
    again = run(job, restarted, next_plan(restarted, plan))
    assert sorted(kept + again) == sorted(delivered)


def test_the_report_has_lag_and_plan_without_any_call(job: SimulatedJob) -> None:
    job.put(20, key=job.key_of(0))
    coordinator = job.coordinator(max_records_per_shard=5)
    nothing = coordinator.report()
    assert (nothing["application"], nothing["stream"]) == (APPLICATION, STREAM)
    assert (nothing["plan"], nothing["lagMs"], nothing["shards"]) == ("", 0, {})
    plan, _ = one_batch(job, coordinator, "")
    job.clock.advance(30)
    next_plan(coordinator, plan)
    job.count_calls()
    report = coordinator.report()
    assert (report["lagMs"], report["readableShards"], report["unresolved"]) == (30_000, 2, 0)
    assert report["plan"] != plan
    assert (report["emitted"], report["acked"], report["retentionMs"]) == (5, 5, 86_400_000)
    behind, idle = report["shards"].values()
    assert behind == {"lagMs": 30_000, "emitted": 5, "retried": 0, "unresolved": 0}
    assert idle == {"lagMs": 0, "emitted": 0, "retried": 0, "unresolved": 0}
    assert job.calls("GetRecords") == 0


def test_a_throttled_shard_is_told_when_its_batch_is_settled(one: SimulatedJob) -> None:
    one.put(10)
    coordinator = one.coordinator()
    plan = next_plan(coordinator)
    one.fake.faults.add(throttle(), operation="GetRecords", times=2)
    assert len(run(one, coordinator, plan)) == 10
    next_plan(coordinator, plan)
    told = one.store().runs.read()[None].throttled
    assert {name: each.count for name, each in told.items()} == {shard(0): 2}


def test_a_shard_that_fills_its_task_does_not_starve_the_others(job: SimulatedJob) -> None:
    """Shards fill a task's bytes in the plan's order of shards, so that order rotates."""
    for index in (0, 1):
        job.put(100, key=job.key_of(index), data=b"x" * 100)
    coordinator = job.coordinator(max_tasks=1, max_bytes_per_task=1_000)
    start = ""
    for _ in range(4):
        start, _ = one_batch(job, coordinator, start)
    next_plan(coordinator, start)
    assert all(state.checkpoint is not None for state in job.states().values())


def test_an_idle_minute_asks_each_shard_every_probe_interval_and_the_stream_every_ten_seconds(
    job: SimulatedJob,
) -> None:
    """Spark polls as fast as it can. Each poll waits, makes no plan, and together they call no more
    often.
    """
    coordinator = job.coordinator(probe_interval="2s")
    next_plan(coordinator)
    job.count_calls()
    begun_s = job.clock.monotonic_s()
    while job.clock.monotonic_s() - begun_s < 60:
        assert next_plan(coordinator) == ""
    assert 50 <= job.calls("GetRecords") <= 2 * 31
    assert job.calls("ListShards") <= 7
    assert job.calls("DescribeStreamSummary") <= 7
    assert job.calls("GetShardIterator") == 0
    assert job.store().plans.known() == []
