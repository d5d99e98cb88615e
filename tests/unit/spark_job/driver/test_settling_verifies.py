"""Sequences of events across processes that would lose a record, or repeat for ever, if the driver
took for granted that a plan, its ends, its report and the states describe the same range.
"""

from __future__ import annotations

from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from kinesis_spout.errors import DataLossError
from kinesis_spout.testing import end_without_children
from state.plan import PlanStatus, plan_number
from state.position import Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.store.shard_states import StateChange
from tests.support.simulated.played_outcomes import tracked
from tests.support.simulated.simulated_driver import (
    next_plan,
    pointer,
    read_all,
    run,
    run_tracked,
)
from tests.support.simulated.simulated_job import (
    STREAM,
    SimulatedJob,
    in_both_modes,
    shard,
    simulated,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.shard_state import ShardState

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def change_state(job: SimulatedJob, change: Callable[[ShardState], ShardState]) -> None:
    """Another process with the ownership changes the state of the first shard."""
    with closing(job.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
        stored = store.shard_states.load()[shard(0)]
        store.shard_states.save([StateChange(before=stored, after=change(stored.state))])


# a lost ZooKeeper and a surviving checkpoint of Spark
# --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start", ["LATEST", "TRIM_HORIZON"])
def test_a_plan_that_spark_knows_without_a_start_in_zookeeper_is_data_loss(
    start: str, one: SimulatedJob
) -> None:
    """Also when the query begins with the replay of its first batch. It stops at each restart."""
    one.put(5)
    for begin in (lambda driver: next_plan(driver, "5-ab"), lambda driver: driver.tasks("5-ab")):
        again = one.coordinator(starting_position=start)
        with pytest.raises(DataLossError, match=r"plan 5-ab of application etl .*failOnDataLoss"):
            begin(again)
        again.close()
        assert one.store().identity.read_start() is None


@pytest.mark.parametrize("begin", ["next_plan", "tasks"])
def test_with_fail_on_data_loss_off_a_lost_application_starts_at_the_oldest_record(
    begin: str, one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """A start at LATEST would skip all that came while the job was down."""
    put = one.put(5)
    one.clock.advance(60)  # LATEST is pinned a little before now
    driver = one.coordinator(starting_position="LATEST", fail_on_data_loss=False)
    with caplog.at_level("WARNING", "kinesis_spout"):
        if begin == "tasks":
            assert driver.tasks("5-ab") == {}
        assert read_all(one, driver, "5-ab")[1] == put
    assert "records may be lost" in caplog.text
    assert "starting at the oldest record" in caplog.text


def test_states_that_name_a_settled_plan_are_evidence_of_a_lost_start(one: SimulatedJob) -> None:
    """Spark's checkpoint location is new, so only they tell."""
    one.put(2)
    driver = one.coordinator()
    read_all(one, driver)
    driver.close()
    one.backend.remove([f"{one.store().paths.base}/start"])
    with pytest.raises(DataLossError, match="has no start"):
        next_plan(one.coordinator(starting_position="LATEST"))


def test_a_query_that_goes_on_after_a_reset_is_told_of_it(one: SimulatedJob) -> None:
    """And not that ZooKeeper was lost. Once it has begun again, the reset is forgotten."""
    one.put(2)
    driver = one.coordinator()
    plan = next_plan(driver)
    driver.close()
    with closing(one.store()) as store:
        store.identity.reset(this_process(one.clock.now_ms()), timeout_s=10)
    again = one.coordinator()
    with pytest.raises(
        DataLossError, match=r"was removed \(kinesis-spout reset, pid \d+ on .*\); give"
    ):
        next_plan(again, plan)
    again.close()
    fresh = one.coordinator()
    next_plan(fresh)
    fresh.close()
    with closing(one.store()) as store:
        assert store.identity.read_reset() is None


@in_both_modes
def test_a_plan_of_a_shard_that_another_process_has_read_on_is_not_settled(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark, then the standalone spout, then Spark, under one application name."""
    put = one.put(5)
    driver = one.coordinator()
    plan = next_plan(driver)
    assert run(one, driver, plan) == put
    driver.close()
    ahead = SequenceNumber(put[2])
    change_state(one, lambda s: replace(s, checkpoint=ahead, read_position=Position.after(ahead)))
    again = one.coordinator()
    with caplog.at_level("WARNING", "kinesis_spout"):
        _, found = read_all(one, again, plan)
    assert found == put[3:]
    assert f"plan {plan} does not fit the state of shard {shard(0)}" in caplog.text
    assert one.states()[shard(0)].checkpoint == SequenceNumber(put[-1])


@in_both_modes
def test_a_plan_of_a_state_that_was_removed_by_hand_is_not_settled_into_its_successor(
    one: SimulatedJob,
) -> None:
    """The successor starts at the pin: settling would skip what lies between."""
    put = one.put(5)
    driver = one.coordinator()
    start, _ = read_all(one, driver)
    put += one.put(5)
    plan = next_plan(driver, start)
    run(one, driver, plan)
    driver.close()
    path = f"{one.store().paths.base}/{shard(0)}"
    one.backend.remove([path, f"{path}/state"])
    assert read_all(one, one.coordinator(), plan)[1] == put


def test_the_number_of_a_plan_is_above_those_that_the_states_name(one: SimulatedJob) -> None:
    """The states were moved to another ZooKeeper, or `/plan` was removed by hand. A lower number
    would be settled already, as far as the states know.
    """
    one.put(5)
    driver = one.coordinator()
    driver.open()
    read_all(one, driver)
    driver.close()
    change_state(one, lambda state: replace(state, settled_plan="70-ab"))
    put = one.put(5)
    outcomes = tracked(one, lambda row: int(row["sequenceNumber"]) == put[2])
    again = one.coordinator()
    plan = next_plan(again)
    assert plan_number(plan) > 70
    run_tracked(one, again, plan, outcomes)
    next_plan(again, plan)
    assert [record.first.sequence for record in one.states()[shard(0)].unresolved] == [put[2]]


def test_records_that_expire_between_the_planning_and_the_read_are_data_loss(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops at each restart, and nothing of the plan is settled. With failOnDataLoss off the
    loss is reported once.
    """
    driver = one.coordinator()
    read_all(one, driver)
    one.put(5)
    one.clock.advance(DAY_S - 2 * HOUR_S)
    left = one.put(5)
    plan = next_plan(driver)
    one.clock.advance(3 * HOUR_S)
    assert run(one, driver, plan) == left
    before = one.states()
    for _ in range(2):
        with pytest.raises(DataLossError, match=f"read later than .*{shard(0)}.*failOnDataLoss"):
            next_plan(driver, plan)
        driver.close()
        driver = one.coordinator()
    assert one.states() == before
    driver.close()
    lenient = one.coordinator(fail_on_data_loss=False)
    assert next_plan(lenient, plan) == plan
    assert caplog.text.count("records may be lost") == 1
    assert one.states()[shard(0)].checkpoint == SequenceNumber(left[-1])


def test_an_available_now_run_that_dies_after_settling_has_listed_the_children() -> None:
    """Their records may expire before the next run: only a state tells that they were there."""
    with simulated(shards=1) as job:
        job.put(3)
        driver = job.coordinator()
        driver.prepare_available_now()
        plan = next_plan(driver)
        run(job, driver, plan)
        job.fake.faults.add(end_without_children(), operation="GetRecords", times=None)
        job.fake.split(STREAM, shard(0))
        job.clock.advance(300)
        job.put(4)
        driver.settle(plan)
        driver.close()  # before the next listing
        assert pointer(job).status is PlanStatus.SETTLED
        assert set(job.states()) == {shard(0), shard(1), shard(2)}


def test_records_that_expire_between_two_pages_of_a_read_are_data_loss(one: SimulatedJob) -> None:
    """Each page is compared with the one before it."""
    read_all(one, driver := one.coordinator())
    one.put(2_501)  # the first page has one less
    one.clock.advance(DAY_S - HOUR_S)
    one.put(1)
    plan = next_plan(driver)
    client = one.executor().client
    fetch, pages = client.get_records, count(1)

    def slow_after_the_first(*args: Any, **named: Any) -> Any:
        if next(pages) == 2:
            one.clock.advance(2 * HOUR_S)
        return fetch(*args, **named)

    client.get_records = slow_after_the_first  # type: ignore[method-assign]  # one slow answer
    assert len(run(one, driver, plan)) == 2_501  # the last of the first ones has expired
    with pytest.raises(DataLossError, match="read later than"):
        next_plan(driver, plan)
