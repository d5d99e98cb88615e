"""What stands between a record's put and its rows: calls, round trips and waits, in simulated time;
and what a batch asks of ZooKeeper by its shards and tasks.

The milliseconds are in `benchmarks/latency.py`.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from state.plan import ShardReadResult
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.simulation.in_process import InlinePool
from tests.support.simulated.simulated_driver import next_plan, run
from tests.support.simulated.simulated_job import (
    APPLICATION,
    STREAM,
    SimulatedJob,
    shard,
    simulated,
)
from tests.support.state.trees import counting_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_job.driver.coordinator import Coordinator
    from state.znodes.topics import StoreTopics


class HangingPool(InlinePool):
    """Runs each call at once, but for one that is held back until another one comes."""

    hangs_next = answers_with_next = False

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.answers_with_next:
            for call in self._held:
                call()
            self._held.clear()
        if not self.hangs_next:
            return super().submit(fn, *args, **kwargs)
        self.hangs_next = False
        future: Future[Any] = Future()
        self._held.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future


def shards_of(coordinator: Coordinator, plan: str) -> list[str]:
    planned = coordinator.tasks(plan).values()
    return [each.shard_id for task in planned for each in task.shards]


def put_into_both(job: SimulatedJob) -> None:
    for index in range(2):
        job.put(10, key=job.key_of(index))


def first_batch(job: SimulatedJob, coordinator: Coordinator) -> str:
    """Run a batch of both shards, so that all that is asked once is known; its plan."""
    put_into_both(job)
    plan = next_plan(coordinator)
    assert len(run(job, coordinator, plan)) == 20
    return plan


def test_a_small_batch_costs_each_shard_a_probe_and_a_page(job: SimulatedJob) -> None:
    """The iterators of the last batch serve for the probes, and those of the probes for the pages.
    Nothing is listed for it.
    """
    coordinator = job.coordinator()
    plan = first_batch(job, coordinator)
    assert next_plan(coordinator, plan) == plan
    job.count_calls()
    put_into_both(job)
    plan = next_plan(coordinator, plan)
    assert job.calls("GetRecords") == 2
    assert len(run(job, coordinator, plan)) == 20
    assert job.calls("GetRecords") == 4
    assert {name for name, _ in job.fake.faults.struck} == {"GetRecords"}


def test_a_probe_that_hangs_delays_its_shard_only(job: SimulatedJob) -> None:
    """Its answer counts when it comes. Until then the shard is not asked again, nor planned.
    Nor is the stream called idle, though there is no idle wait: the answer may be of records.
    """
    pool = HangingPool()
    coordinator = job.coordinator(new_pool=lambda *_: pool, idle_wait="0s")
    plan = first_batch(job, coordinator)
    job.clock.sleep(1)
    put_into_both(job)
    job.count_calls()
    pool.hangs_next = True
    for _ in range(2):
        plan = next_plan(coordinator, plan)
        assert shards_of(coordinator, plan) == [shard(1)]
        assert len(run(job, coordinator, plan)) == 10
        job.clock.sleep(5)
        job.put(10, key=job.key_of(1))
    assert job.calls("GetRecords") == 2 * 2  # a probe and a page each
    pool.answers_with_next = True
    plan = next_plan(coordinator, plan)
    assert shard(0) in shards_of(coordinator, plan)
    assert len(run(job, coordinator, plan)) >= 10


def run_batch(coordinator: Coordinator, store: StoreTopics, start: str, last: int) -> str:
    """Plan a batch, and publish three records of each shard as its tasks do."""
    plan_id = next_plan(coordinator, start)
    for number, task in coordinator.tasks(plan_id).items():
        first, end = SequenceNumber(last - 2), SequenceNumber(last)
        entries = tuple(
            ShardReadResult(shard_id=one.shard_id, first=first, last=end, count=3)
            for one in task.shards
        )
        store.plans.append_log(plan_id, number, TaskLog(entries=entries, sealed=True), None)
    return plan_id


def test_a_batch_writes_once_a_task_and_its_states_in_transactions_of_hundreds() -> None:
    """Creating the plan and its tasks is one transaction; so are a log for each task, closing, each
    five hundred states, and settling. What is read does not grow with the shards.
    """
    with simulated(shards=600) as job:
        store, tree = counting_store(job.backend, application=APPLICATION, stream=STREAM)
        coordinator = job.coordinator(store=store, max_tasks=8)
        start = run_batch(coordinator, store, "", 103)
        start = run_batch(coordinator, store, start, 106)
        reads, writes = tree.cost_of(lambda: run_batch(coordinator, store, start, 109))
        assert writes <= 1 + 8 + 1 + 2 + 1 + 1
        assert reads <= 8 + 7
