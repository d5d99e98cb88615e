"""What stands between a record's put and its rows: calls, round trips and waits, in simulated time.

The milliseconds are in `benchmarks/latency.py`.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from spark_job.driver.coordinator import Coordinator
from spark_job.executor.task_reader import read_task
from tests.simulation.in_process import InlinePool
from tests.support.simulated.simulated_driver import next_plan, run
from tests.support.simulated.simulated_job import APPLICATION, STREAM, SimulatedJob, shard
from tests.support.state.counting_tree import counting_store

if TYPE_CHECKING:
    from collections.abc import Callable


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


# calls --------------------------------------------------------------------------------------------
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


def test_a_shard_that_is_known_to_be_behind_is_planned_at_once_and_not_probed(
    one: SimulatedJob,
) -> None:
    one.put(20)
    coordinator = one.coordinator(max_records_per_shard=10)
    plan = next_plan(coordinator)
    assert len(run(one, coordinator, plan)) == 10
    one.count_calls()
    before_s = one.clock.monotonic_s()
    plan = next_plan(coordinator, plan)
    assert (one.calls("GetRecords"), one.clock.monotonic_s()) == (0, before_s)
    assert len(run(one, coordinator, plan)) == 10


def test_a_probe_that_hangs_delays_its_shard_only(job: SimulatedJob) -> None:
    """Its answer counts when it comes. Until then the shard is not asked again, nor planned.
    Nor is the stream called idle, though there is no idle wait: the answer may be of records.
    """
    settings, pool = job.settings(idle_wait="0s"), HangingPool()
    services = job.services(settings)
    services.new_pool = lambda *_: pool
    coordinator = Coordinator(settings, services)
    plan = first_batch(job, coordinator)
    job.clock.sleep(1)
    put_into_both(job)
    job.count_calls()
    pool.hangs_next = True
    plan = next_plan(coordinator, plan)
    assert shards_of(coordinator, plan) == [shard(1)]
    assert len(run(job, coordinator, plan)) == 10
    job.clock.sleep(5)
    job.put(10, key=job.key_of(1))
    plan = next_plan(coordinator, plan)
    assert shards_of(coordinator, plan) == [shard(1)]
    assert len(run(job, coordinator, plan)) == 10
    assert job.calls("GetRecords") == 2 * 2  # a probe and a page each
    pool.answers_with_next = True
    plan = next_plan(coordinator, plan)
    assert shards_of(coordinator, plan) == [shard(0)]
    assert len(run(job, coordinator, plan)) == 10


# waits --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("interval", "batch_s", "waited_s"), [("1s", 0.4, 0.6), ("1s", 3.0, 0.0), ("200ms", 0.1, 0.3)]
)
def test_the_interval_to_the_next_probe_begins_with_the_plan_that_read_the_shard(
    one: SimulatedJob, interval: str, batch_s: float, waited_s: float
) -> None:
    """A busy shard waits for its batch or for the interval, whichever is longer, not for both. Its
    probe and its page are two of the five calls that it allows in a second.
    """
    coordinator = one.coordinator(probe_interval=interval, reads_per_second=5)
    one.put(1)
    plan = next_plan(coordinator)
    run(one, coordinator, plan)
    one.clock.sleep(batch_s)
    one.put(1)
    before_s = one.clock.monotonic_s()
    assert next_plan(coordinator, plan) != plan
    assert one.clock.monotonic_s() - before_s == pytest.approx(waited_s, abs=0.002)


def test_an_idle_shard_is_probed_when_the_interval_is_over_and_not_later(one: SimulatedJob) -> None:
    """The interval is no multiple of the time between two looks at everything else."""
    coordinator = one.coordinator(probe_interval="333ms", idle_wait="10s")
    one.count_calls()
    next_plan(coordinator)
    assert one.calls("GetRecords") == 1 + int(10 / 0.333)


# round trips to ZooKeeper -------------------------------------------------------------------------
def test_the_round_trips_of_a_small_batch_are_few(job: SimulatedJob) -> None:
    """A plan: its number's check, and the transaction. A task: its log, and one append."""
    store, tree = counting_store(job.backend, application=APPLICATION, stream=STREAM)
    settings = job.settings(idle_wait="0s")
    driver = job.services(settings, store)
    driver.new_pool = InlinePool
    coordinator = Coordinator(settings, driver)
    plan = first_batch(job, coordinator)
    reads, writes = tree.cost_of(lambda: next_plan(coordinator, plan))
    assert reads <= 12
    assert writes == 3  # closed, the states, settled
    job.clock.sleep(1)
    put_into_both(job)
    plans: list[str] = []
    # The pointer, to see that the plan is settled; then the pointer again, the plans' names, the
    # new plan.
    assert tree.cost_of(lambda: plans.append(next_plan(coordinator, plan))) == (3, 1)
    reads, writes = tree.cost_of(lambda: coordinator.tasks(plans[0]))
    assert reads <= 3
    assert writes == 0
    services = job.services(store=store)
    (task, *_) = coordinator.tasks(plans[0]).items()

    def attempt() -> None:
        list(read_task(plans[0], *task, services=services, settings=settings))

    assert tree.cost_of(attempt) == (1, 1)
