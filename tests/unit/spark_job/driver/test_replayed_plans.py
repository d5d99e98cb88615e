"""The ends of a plan that another process made and read are old: they are settled, but say nothing
of now. In simulated time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.simulated.simulated_driver import next_plan, read_all, run
from tests.support.simulated.simulated_job import in_both_modes

if TYPE_CHECKING:
    from tests.support.simulated.simulated_job import SimulatedJob


@in_both_modes
@pytest.mark.parametrize("probe_max_shards", [0, 100])
def test_an_available_now_run_is_not_ended_by_a_tip_that_an_earlier_run_saw(
    probe_max_shards: int, job: SimulatedJob
) -> None:
    """Yesterday's run died before its batch was committed. The batch is replayed, then today's
    records are read.
    """
    old = job.put(5)
    yesterday = job.coordinator()
    plan = next_plan(yesterday)
    assert sorted(run(job, yesterday, plan)) == old
    yesterday.close()
    job.clock.advance(3600)
    new = job.put(5)
    today = job.coordinator(probe_max_shards=probe_max_shards)
    today.prepare_available_now()
    assert sorted(run(job, today, plan)) == old
    assert sorted(read_all(job, today, plan)[1]) == new


@in_both_modes
def test_a_plan_that_was_made_before_a_run_leaves_no_iterator_behind(job: SimulatedJob) -> None:
    """With an older hint the plan's records would be read again, and settled behind what was
    settled.
    """
    put = job.put(5)
    driver = job.coordinator(max_records_per_shard=2)
    first = next_plan(driver)
    found = run(job, driver, first)
    second = next_plan(driver, first)
    found += run(job, driver, second)
    driver.prepare_available_now()
    assert sorted(found + read_all(job, driver, second)[1]) == put
