"""The driver finds or registers the consumer, and says in the plans who may subscribe when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing import error
from spark_job.executor.task_reader import read_task
from tests.simulation.subscriptions import InlineFeed, wait_in
from tests.simulation.world import SkewedClock
from tests.support.kinesis.fake_consumers import deregister, register, subscribe
from tests.support.simulated.simulated_driver import next_plan, pointer
from tests.support.simulated.simulated_job import SimulatedJob, simulated

if TYPE_CHECKING:
    from spark_job.driver.coordinator import Coordinator
    from state.plan import TaskPlan

EFO = {"read_mode": "efo", "consumer_name": "reader"}


def driver_of(job: SimulatedJob, **changes: Any) -> Coordinator:
    return job.coordinator(**(EFO | changes))


def first_task(driver: Coordinator, plan: str) -> TaskPlan:
    return driver.tasks(plan)[0]


def read(job: SimulatedJob, driver: Coordinator, plan: str, *, ahead_ms: int = 0) -> int:
    """Run a plan as executors do that push in this process; how many rows it has. `ahead_ms`: of
    the executors' clock.
    """
    settings = job.settings(**EFO)
    services = job.services(settings)
    clock = SkewedClock(job.clock)
    clock.ahead_ms = ahead_ms
    services.clock, services.new_feed, services.wait_for = clock, InlineFeed, wait_in(clock)
    return sum(
        batch.num_rows
        for task, one in driver.tasks(plan).items()
        for batch in read_task(plan, task, one, services=services, settings=settings)
    )


def test_the_driver_waits_until_the_consumer_is_active() -> None:
    """An ARN is taken as it is, and never registered."""
    with simulated(shards=1, consumer_ms=3_000) as job:
        job.put(1)
        driver = driver_of(job)
        assert first_task(driver, next_plan(driver)).consumer_arn is not None
        driver.close()
        job.put(1)
        arn = register(job.fake, "other")
        job.clock.advance(3)
        driver = job.coordinator(read_mode="efo", consumer_arn=arn)
        assert first_task(driver, next_plan(driver)).consumer_arn == arn


def test_a_consumer_that_does_not_become_active_in_time_leaves_the_query_polling(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is asked for once a minute, without a wait, and the log says it once."""
    with simulated(shards=1, consumer_ms=100_000) as job:
        job.put(2)
        driver = driver_of(job, max_records_per_shard=1)
        first = next_plan(driver)
        assert first_task(driver, first).consumer_arn is None
        assert read(job, driver, first) == 1
        job.clock.advance(161)
        assert first_task(driver, next_plan(driver, first)).consumer_arn is not None
    polled, again = (one for one in caplog.messages if "subscri" in one)
    assert "is polled" in polled
    assert "is read by subscription again" in again


def test_a_plan_says_when_a_shard_may_be_subscribed_to_again(one: SimulatedJob) -> None:
    one.put(3)
    driver = driver_of(one, max_records_per_shard=1)
    first = next_plan(driver)
    begun_ms = one.clock.now_ms()
    assert read(one, driver, first) == 1
    second = next_plan(driver, first)
    next_ms = first_task(driver, second).shards[0].next_subscribe_ms
    assert next_ms is not None
    assert begun_ms < next_ms <= begun_ms + 5_500
    assert read(one, driver, second) == 1
    one.clock.advance(10)
    third = next_plan(driver, second)
    assert first_task(driver, third).shards[0].next_subscribe_ms is None
    report = driver.report()
    assert (report["pushedRecords"], report["polledRecords"]) == (1, 1)


def test_a_batch_that_is_replayed_by_another_run_polls(one: SimulatedJob) -> None:
    """Whether its tasks have published or not."""
    one.put(3)
    driver = driver_of(one)
    plan = next_plan(driver)
    driver.close()
    again = driver_of(one)
    assert first_task(again, plan).consumer_arn is None
    assert pointer(one).id == plan


def test_a_consumer_that_was_removed_is_registered_again(one: SimulatedJob) -> None:
    one.put(2)
    driver = driver_of(one, max_records_per_shard=1)
    first = next_plan(driver)
    arn = first_task(driver, first).consumer_arn
    assert arn is not None
    deregister(one.fake, arn)
    one.clock.advance(2)
    assert read(one, driver, first) == 1
    second = next_plan(driver, first)
    other = first_task(driver, second).consumer_arn
    assert other not in (None, arn)
    assert driver.report()["fallbacks"] == {"missing": 1}


def test_another_reader_of_the_consumer_is_named_once(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """It subscribes before each batch, so the tasks are refused. Their records are polled. A single
    refusal is no evidence: a driver that died may have subscribed just before.
    """
    one.put(6)
    arn = register(one.fake)
    driver = driver_of(one, max_records_per_shard=1)
    plan = ""
    for batch in range(6):
        one.clock.advance(6)
        plan = next_plan(driver, plan)
        assert (len(sharing := said_of_sharing(caplog))) == (batch > 2)
        subscribe(one.fake, arn)
        assert read(one, driver, plan) == 1
    assert "consumer reader" in sharing[0]
    assert "consumerName" in sharing[0]
    assert driver.report()["fallbacks"] == {"in_use": 5}


def said_of_sharing(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [said for said in caplog.messages if "another reader seems to use" in said]


@pytest.mark.parametrize("operation", ["DescribeStreamConsumer", "SubscribeToShard"])
def test_a_missing_permission_ends_no_query_and_is_told_until_a_subscription_gives_records(
    one: SimulatedJob, operation: str
) -> None:
    """Nor does it wait. The right to describe a consumer is another one than that to subscribe."""
    one.put(1)
    one.fake.faults.add(error("AccessDeniedException"), operation=operation, times=None)
    driver = driver_of(one)
    begun_s = one.clock.monotonic_s()
    plan = next_plan(driver)
    assert one.clock.monotonic_s() - begun_s < 1
    assert read(one, driver, plan) == 1
    one.put(1)
    plan = next_plan(driver, plan)
    assert read(one, driver, plan) == 1
    told = one.store().runs.read()[None].not_subscribed
    assert told is not None
    assert operation in told.says
    one.fake.faults.clear()
    one.clock.advance(61)
    for _ in range(2):
        one.put(1)
        plan = next_plan(driver, plan)
        assert first_task(driver, plan).consumer_arn is not None
        assert read(one, driver, plan) == 1
    assert one.store().runs.read()[None].not_subscribed is None
