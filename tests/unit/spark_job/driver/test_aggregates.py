"""Aggregates and the driver: its plans say what the tasks do with them. In simulated time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import KinesisError
from spark_job.executor.task_reader import read_task
from state.plan import PlanStatus
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.ownership import OwnerInfo
from state.store.shard_states import StateChange
from tests.support.aggregates.wire import aggregate_of
from tests.support.simulated.played_outcomes import Killed, policy, tracked
from tests.support.simulated.simulated_driver import next_plan, pointer, rows_of, track_all
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_job.driver.coordinator import Coordinator
    from state.plan import Plan
    from tests.support.simulated.played_outcomes import Row

THREE = aggregate_of([b"a", b"b", b"c"])


def plan_of(job: SimulatedJob, plan_id: str) -> Plan:
    plan = job.store().plans.read(plan_id)
    assert plan is not None
    return plan


def rows(job: SimulatedJob, driver: Coordinator, plan_id: str, mode: str) -> list[Row]:
    """The rows of a plan, as executors with this option read them. Their sequence numbers are those
    of message ids.
    """
    settings = job.settings(aggregated_records=mode)
    services = job.services(settings)
    return rows_named(
        row
        for task, plan in driver.tasks(plan_id).items()
        for batch in read_task(plan_id, task, plan, services=services, settings=settings)
        for row in batch.to_pylist()
    )


def rows_named(found: Iterable[Row]) -> list[Row]:
    """The rows with the sequence numbers of their message ids."""
    return [row | {"sequenceNumber": row["messageId"].split(":")[1]} for row in found]


def changed(job: SimulatedJob, driver: Coordinator, mode: str) -> Coordinator:
    """The driver of the next run of the query, with this option."""
    driver.close()
    return job.coordinator(aggregated_records=mode)


@pytest.mark.parametrize(("before", "after"), [("raw", "unpack"), ("unpack", "raw")])
def test_a_batch_is_replayed_with_its_rows_after_a_change_of_the_option(
    before: str, after: str, one: SimulatedJob
) -> None:
    """Its failures are queued as they were delivered. The next plan goes by the new option."""
    one.put(1, data=THREE)
    driver = one.coordinator(aggregated_records=before)
    plan = next_plan(driver)
    found = rows(one, driver, plan, before)
    driver = changed(one, driver, after)
    assert rows(one, driver, plan, after) == found
    outcomes = tracked(one, lambda row: row["attempt"] == 1, policy(retry_limit=3))
    outcomes.play(found)
    again = next_plan(driver, plan)
    assert [state.unresolved_count for state in one.states().values()] == [len(found)]
    one.put(1, data=THREE)
    retried = rows(one, driver, again, after)
    assert [row["data"] for row in retried if row["attempt"] == 2] == [row["data"] for row in found]
    outcomes.play(retried)
    last = next_plan(driver, again)
    assert len(rows(one, driver, last, after)) == (1 if after == "raw" else 3)


def test_a_plan_that_refused_aggregates_is_closed_where_they_are_no_longer_refused(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has published has none. All else comes with a plan that goes by one option."""
    caplog.set_level(logging.WARNING, logger="kinesis_spout")
    one.put(2, data=b"x")
    one.put(1, data=THREE)
    driver = one.coordinator(aggregated_records="fail", max_records_per_shard=2)
    plan = next_plan(driver)
    assert [row["data"] for row in rows(one, driver, plan, "fail")] == [b"x", b"x"]
    second = next_plan(driver, plan)
    with pytest.raises(KinesisError, match="is a KPL aggregate"):
        rows(one, driver, second, "fail")
    driver = changed(one, driver, "fail")
    with pytest.raises(KinesisError, match="is a KPL aggregate"):
        rows(one, driver, second, "fail")
    assert pointer(one).status is PlanStatus.OPEN
    driver = changed(one, driver, "unpack")
    assert rows(one, driver, second, "unpack") == []
    assert pointer(one).status is PlanStatus.CLOSED
    assert "made while aggregatedRecords was fail" in caplog.text
    third = next_plan(driver, second)
    assert [row["data"] for row in rows(one, driver, third, "unpack")] == [b"a", b"b", b"c"]


def test_a_plan_has_the_hash_keys_of_its_shards_where_they_decide() -> None:
    """Not of a shard that has all, nor where the stream does not go by keys, or may not have."""
    for shards, strategy, known in (
        (2, None, True),
        (1, None, False),
        (2, "AUTO", False),
        (2, "USER_PARTITION_KEY", False),
    ):
        with simulated(shards=shards) as job:
            job.put(1, key=job.key_of(0))
            if strategy is not None:
                job.fake.stream(STREAM).distribution = strategy
            hash_keys = job.fake.stream(STREAM).shard(shard(0)).hash_keys
            expected = (str(hash_keys.start), str(hash_keys.end)) if known else None
            slices = plan_of(job, next_plan(job.coordinator())).slices
            assert slices[shard(0)].hash_keys == expected


def test_a_shard_is_read_on_where_the_rest_of_a_begun_aggregate_belongs_to_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A spout that did not know the shard's hash keys has delivered its first user record, and
    ended.
    """
    caplog.set_level(logging.WARNING, logger="kinesis_spout")
    with simulated(shards=2) as job:
        packed = aggregate_of([b"a", b"b"], [job.key_of(0), job.key_of(1)])
        number = int(job.fake.put(STREAM, job.key_of(0), packed).partition(":")[2])
        begin(job, Position.at(SequenceNumber(number, 1)))
        driver = job.coordinator()
        plan, found = track_all(job, driver, tracked(job, lambda _: False))
        assert found == []
        assert job.states()[shard(0)].read_position == Position.after(SequenceNumber(number))
        job.put(1, key=job.key_of(0))
        assert len(rows_of(job, driver, next_plan(driver, plan))) == 1
        assert "nothing of it is settled" not in caplog.text


@pytest.mark.parametrize("kills", [0, 3])
def test_what_is_retried_as_a_range_are_the_records_that_were_delivered(
    kills: int, job: SimulatedJob
) -> None:
    """In an outage, and in a batch that is delivered in parts because its process was killed: none
    of another shard is among them, also where the plan reads no new record of the shard.
    """
    keys = [job.key_of(0), job.key_of(1), job.key_of(0), job.key_of(0)]
    for _ in range(40):
        packed = aggregate_of([b"own", b"other", b"own", b"own"], keys)
        job.fake.put(STREAM, job.key_of(0), packed)
    outcomes = tracked(job, lambda _: not kills and not outcomes.done)
    killed = iter([True] * kills)
    outcomes.kills = lambda _: next(killed, False)
    driver = job.coordinator()
    before, plan = "", next_plan(driver)
    good: list[Row] = []
    while plan != before:
        found = rows_named(rows_of(job, driver, plan))
        assert {row["data"] for row in found} == {b"own"}
        try:
            good += outcomes.play(found)
        except Killed:
            driver.close()
            driver = job.coordinator()
            continue
        job.clock.advance(120)
        before, plan = plan, next_plan(driver, plan)
    assert len(outcomes.done) > 1
    assert len(good) == len({row["messageId"] for row in good}) == 120
    assert outcomes.letters == []


def begin(job: SimulatedJob, position: Position, **fields: Any) -> None:
    """The first shard's state, as another process has left it."""
    store = job.store()
    store.ownership.acquire(OwnerInfo(host="host", pid=1, since_ms=0), timeout_s=1)
    state = ShardState(shard_id=shard(0), read_position=position, **fields)
    store.shard_states.save([StateChange(before=None, after=state)])
    store.close()
