"""An idle stream has lost nothing; a stream that was not read may have. In simulated time."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import DataLossError
from tests.support.simulated.simulated_driver import next_plan, read_all, run
from tests.support.simulated.simulated_job import SimulatedJob, in_both_modes, shard

HOUR_S = 3_600.0


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
