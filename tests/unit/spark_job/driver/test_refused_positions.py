"""Stored positions that the service refuses: no record is passed over, and the error says what to
do. In simulated time.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.checkpoints.application_moves import find_moves, write_moves
from kinesis_spout.checkpoints.requested_position import RequestedPosition
from kinesis_spout.errors import ConfigError, RequestRefusedError
from state.position import Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.store.identity import StartPin
from tests.support.simulated.simulated_driver import next_plan, read_all, run
from tests.support.simulated.simulated_job import SimulatedJob, shard

if TYPE_CHECKING:
    from spark_job.driver.coordinator import Coordinator

HOUR_S = 3600.0


@pytest.mark.parametrize("is_probed", [True, False], ids=["by a probe", "by a task"])
def test_a_stored_time_that_the_service_has_not_reached_loses_no_record(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture, *, is_probed: bool
) -> None:
    """Its clock was set back, and the shard has had no record since its start."""
    one.clock.advance(2 * HOUR_S)
    driver = coordinator(one, starting_position="LATEST", is_probed=is_probed)
    driver.open()
    plan, read = read_all(one, driver) if is_probed else ("", [])
    assert read == []
    driver.close()
    one.clock.set_back(HOUR_S)
    put = one.put(3)
    again = coordinator(one, is_probed=is_probed)
    plan = next_plan(again, plan)
    assert run(one, again, plan) == put
    assert "was set back: position" in caplog.text


def test_a_start_that_the_service_refuses_ends_the_query_and_the_next_start_is_free(
    job: SimulatedJob,
) -> None:
    """It was never stored. Spark's part is a new checkpoint location each time."""
    numbers = job.put(2, key=job.key_of(0)) + job.put(2, key=job.key_of(1))
    driver = coordinator(job, starting_position=f"AT:{numbers[0]}")  # of one of the two shards
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"startingPosition: 'AT:{numbers[0]}' is not a pos"):
            driver.open()
    driver.close()
    again = coordinator(job, starting_position="TRIM_HORIZON")
    assert sorted(read_all(job, again)[1]) == sorted(numbers)


def test_a_stored_number_that_the_service_refuses_can_be_moved_away_from(
    one: SimulatedJob,
) -> None:
    """An earlier version stored it, in the start and in the shard's state. The error names the
    shard and how to move it.
    """
    numbers = one.put(2)
    strange = Position.after(SequenceNumber(numbers[0] * 7))
    with closing(one.store()) as store:
        store.identity.pin_start(
            StartPin(time_ms=0, requested=str(strange), position=strange, shards=(shard(0),))
        )
    for _ in range(2):
        driver = coordinator(one)
        with pytest.raises(
            RequestRefusedError, match=f"{shard(0)} .*did not come from this stream.*checkpoint set"
        ):
            next_plan(driver)
        driver.close()
    assert one.states()[shard(0)].read_position == strange
    with closing(one.client()) as client, closing(one.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
        oldest = RequestedPosition.parse("TRIM_HORIZON")
        found = find_moves(client, store, oldest, (), clock=one.clock, max_counted=9)
        write_moves(store, found, one.clock.now_ms)
    assert read_all(one, coordinator(one))[1] == numbers


def coordinator(one: SimulatedJob, *, is_probed: bool = True, **options: Any) -> Coordinator:
    return one.coordinator(**options, probe_max_shards=128 if is_probed else 0)
