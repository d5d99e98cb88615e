"""Stored positions that the service refuses: no record is passed over, and the error says what to
do. In simulated time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import RequestRefusedError
from state.position import Position
from state.sequence_number import SequenceNumber
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
    driver.pin_start()
    plan, read = read_all(one, driver) if is_probed else ("", [])
    assert read == []
    driver.close()
    one.clock.set_back(HOUR_S)
    put = one.put(3)
    again = coordinator(one, is_probed=is_probed)
    plan = next_plan(again, plan)
    assert run(one, again, plan) == put
    assert "was set back: position" in caplog.text


def test_a_stored_number_that_the_service_refuses_ends_the_query_and_stays_stored(
    one: SimulatedJob,
) -> None:
    """It is of another stream, for example. The error names the shard and how to move it."""
    strange = SequenceNumber(one.put(1)[0] * 7)
    for _ in range(2):
        driver = coordinator(one, starting_position=f"AFTER:{strange}")
        with pytest.raises(
            RequestRefusedError, match=f"{shard(0)} .*did not come from this stream.*checkpoint"
        ):
            next_plan(driver)
        driver.close()
    assert one.states()[shard(0)].read_position == Position.after(strange)


def coordinator(one: SimulatedJob, *, is_probed: bool = True, **options: object) -> Coordinator:
    return one.coordinator(**options, probe_max_shards=128 if is_probed else 0)
