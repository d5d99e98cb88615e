"""Records that may have expired unread are reported as loss, and nothing else is: an idle stream
has lost nothing. In simulated time.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import DataLossError
from kinesis_spout.testing import end_without_children
from state.znodes.shard_states import ShardStateZnodes
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.simulated.simulated_driver import next_plan, read_all, run
from tests.support.simulated.simulated_job import (
    STREAM,
    SimulatedJob,
    in_both_modes,
    shard,
    simulated,
)

if TYPE_CHECKING:
    from state.store.shard_states import StateChange

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S


def test_a_shard_that_was_there_at_the_pin_and_has_vanished_before_the_first_listing_is_loss(
    one: SimulatedJob,
) -> None:
    """Pinned, put, split, and down for days: its children say nothing of what was in it."""
    with closing(one.coordinator()) as first:
        first.open()
    one.put(5)
    one.fake.split(STREAM, shard(0))
    one.clock.advance(2 * DAY_S)
    strict = one.coordinator()
    with pytest.raises(
        DataLossError,
        match=f"and of which nothing was read: {shard(0)}; set option failOnDataLoss",
    ):
        next_plan(strict)
    strict.close()
    assert next_plan(one.coordinator(fail_on_data_loss=False)) == ""
    assert set(one.states()) == {shard(1), shard(2)}


def test_a_shard_of_the_pin_is_loss_also_where_a_crash_came_between_the_first_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of two states was written. When the job is back, days later, the other shard has
    expired: what is left of its range are its children, which say nothing of it.
    """

    def save_first(states: ShardStateZnodes, changes: list[StateChange], **rest: Any) -> None:
        save(states, changes[:1], **rest)
        raise Crash("between two writes")

    with simulated(shards=2) as job:
        job.put(5, key=job.key_of(1))
        save = ShardStateZnodes.save
        first = job.coordinator()
        with monkeypatch.context() as patched:
            patched.setattr(ShardStateZnodes, "save", save_first)
            with pytest.raises(Crash):
                next_plan(first)
        first.close()
        assert set(job.states()) == {shard(0)}
        job.fake.split(STREAM, shard(1))
        job.clock.advance(2 * DAY_S)
        strict = job.coordinator()
        with pytest.raises(DataLossError, match=f"and of which nothing was read: {shard(1)};"):
            next_plan(strict)
        strict.close()
        tolerant = job.coordinator(fail_on_data_loss=False)
        next_plan(tolerant)
        assert set(job.states()) == {shard(0), shard(2), shard(3)}


@in_both_modes
def test_a_finished_shard_of_the_pin_is_no_loss_when_its_state_is_removed(
    read_mode: dict[str, Any],
) -> None:
    """The service does not list it any more, and the job starts again."""
    with simulated(shards=1, read_mode=read_mode) as job:
        put = job.put(5)
        job.fake.split(STREAM, shard(0))
        driver = job.coordinator()
        plan = next_plan(driver)
        assert run(job, driver, plan) == put
        job.clock.advance(DAY_S / 2)
        plan = next_plan(driver, plan)
        run(job, driver, plan)
        job.clock.advance(DAY_S * 0.6)
        plan = next_plan(driver, plan)
        driver.close()
        assert shard(0) not in job.states()
        next_plan(job.coordinator(), plan)


def test_whole_generations_that_came_and_went_unobserved_are_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No listed shard overlapped in time with a shard that has a state. The loss is reported once:
    then the state of the shard without observed children is removed.
    """
    with simulated(shards=1, listing_delay_ms=120_000) as job:
        job.clock.advance(121)
        job.fake.faults.add(end_without_children(), operation="GetRecords", times=None)
        job.put(1)
        job.fake.split(STREAM, shard(0))
        driver = job.coordinator()
        plan = next_plan(driver)
        run(job, driver, plan)
        assert next_plan(driver, plan) == plan
        driver.close()
        job.put(9)
        for parents in ((1, 2), (3,), (4, 5), (6,)):
            job.clock.advance(60)
            job.fake.merge(STREAM, *map(shard, parents)) if len(parents) == 2 else job.fake.split(
                STREAM, shard(*parents)
            )
        job.clock.advance(2 * DAY_S)
        told = f"have expired, and whose children were never observed: {shard(0)}"
        with pytest.raises(DataLossError, match="and of which nothing was read"):
            next_plan(driver := job.coordinator(), plan)
        driver.close()
        with caplog.at_level("WARNING", "kinesis_spout"):
            next_plan(driver := job.coordinator(fail_on_data_loss=False), plan)
        assert told in caplog.text
        driver.close()
        next_plan(job.coordinator(), plan)
        assert set(job.states()) == {shard(7), shard(8)}


@in_both_modes
def test_a_shard_that_was_first_listed_late_may_have_lost_what_came_since_the_last_listing(
    one: SimulatedJob,
) -> None:
    """The job is down for most of the retention twice: records of the first downtime expire in the
    second.
    """
    read_all(one, driver := one.coordinator())
    driver.close()
    one.fake.split(STREAM, shard(0))
    one.put(9)
    one.clock.advance(0.7 * DAY_S)
    driver = one.coordinator()
    plan = next_plan(driver)
    assert run(one, driver, plan) == []
    plan = next_plan(driver, plan)
    assert one.states()[shard(0)].end_was_read
    driver.close()
    one.clock.advance(0.7 * DAY_S)
    with pytest.raises(DataLossError, match=f"longer than the retention.*{shard(1)}"):
        next_plan(one.coordinator(), plan)


@in_both_modes
def test_a_batch_replayed_after_the_retention_reports_the_shards_that_it_can_no_longer_read(
    job: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """Once settled, the shard would look as if nothing had been missed."""
    job.put(5, key=job.key_of(0))
    before = job.coordinator()
    plan = next_plan(before)
    before.close()
    job.clock.advance(2 * DAY_S)
    put = job.put(1, key=job.key_of(0))
    strict = job.coordinator()
    with pytest.raises(DataLossError, match=f"longer than the retention.*{shard(0)}"):
        run(job, strict, plan)
    strict.close()
    lenient = job.coordinator(fail_on_data_loss=False)
    with caplog.at_level("WARNING", "kinesis_spout"):
        assert run(job, lenient, plan) == put
    assert f"{shard(0)} (read up to TRIM_HORIZON)" in caplog.text


@in_both_modes
def test_children_of_a_parent_read_to_its_end_long_after_it_closed_may_have_lost_records(
    one: SimulatedJob,
) -> None:
    """The end comes from a batch that was logged before the split and read long after it, without a
    listing in between.
    """
    driver = one.coordinator()
    read_all(one, driver)
    one.put(1)
    plan = next_plan(driver)
    driver.close()
    one.fake.split(STREAM, shard(0))
    one.put(9)
    one.clock.advance(0.7 * DAY_S)
    driver = one.coordinator()
    run(one, driver, plan)
    driver.close()
    one.clock.advance(0.7 * DAY_S)
    with pytest.raises(DataLossError, match=shard(1)):
        next_plan(one.coordinator(), plan)


# idle, and not read -----------------------------------------------------------------------------
@in_both_modes
def test_a_stream_that_was_idle_for_longer_than_its_retention_has_lost_nothing(
    job: SimulatedJob,
) -> None:
    """Its tips were seen by probes: what comes then is new. They are stored, so a restart knows it
    too.
    """
    job.put(1)
    coordinator = job.coordinator()
    start, _ = read_all(job, coordinator)
    for _ in range(30):
        job.clock.advance(HOUR_S)
        assert next_plan(coordinator, start) == start
    verified_ms = [state.verified_until_ms for state in job.states().values()]
    assert all(
        ms is not None and job.clock.now_ms() - ms <= 2 * HOUR_S * 1000 for ms in verified_ms
    )
    coordinator.close()
    put = job.put(2)
    restarted = job.coordinator()
    assert run(job, restarted, next_plan(restarted, start)) == put


def test_a_shard_that_was_not_checked_for_longer_than_the_retention_stops_the_query(
    job: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops at each restart too, until the user sets failOnDataLoss to false. Then the loss is
    said once, and the rest is read.
    """
    job.put(1, key=job.key_of(0))
    coordinator = job.coordinator()
    start, _ = read_all(job, coordinator)
    coordinator.close()
    job.clock.advance(25 * HOUR_S)
    put = job.put(25, key=job.key_of(0))
    for _ in range(2):
        again = job.coordinator()
        with pytest.raises(DataLossError, match=rf"retention of 24 h.*{shard(0)}.*failOnDataLoss"):
            next_plan(again, start)
        again.close()
    second = job.coordinator(fail_on_data_loss=False, max_records_per_shard=10)
    assert read_all(job, second, start)[1] == put
    assert caplog.text.count("records may be lost") == 1


def test_a_backlog_that_expires_soon_after_the_first_start_is_a_loss(job: SimulatedJob) -> None:
    """Its records are a day old nearly, whenever the application began: while it was down, and
    while it runs.
    """
    for _ in range(3):
        job.put(10, key=job.key_of(0))
        job.clock.advance(2 * HOUR_S)
    job.clock.advance(17 * HOUR_S)
    first = job.coordinator(max_records_per_shard=5)
    start = next_plan(first)
    assert len(run(job, first, start)) == 5
    start = next_plan(first, start)
    first.close()
    job.clock.advance(2 * HOUR_S)
    again = job.coordinator(max_records_per_shard=5)
    with pytest.raises(DataLossError, match=rf"retention of 24 h.*{shard(0)}"):
        next_plan(again, start)


@in_both_modes
def test_an_application_that_begins_at_the_edge_of_the_retention_has_some_minutes(
    job: SimulatedJob,
) -> None:
    """What expires while it begins to read is not missed."""
    for _ in range(240):
        job.put(2, key=job.key_of(0))
        job.clock.advance(360)
    coordinator = job.coordinator(max_records_per_shard=20)
    start, found = "", []
    for _ in range(50):
        job.clock.advance(20)
        if (plan := next_plan(coordinator, start)) == start:
            break
        found += run(job, coordinator, plan)
        start = plan
    assert len(found) > 470
