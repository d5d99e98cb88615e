"""A tracked batch that is replayed after records that its tasks had read have expired. In
simulated time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.simulated.played_outcomes import numbered, policy, tracked
from tests.support.simulated.simulated_driver import (
    next_plan,
    read_all,
    rows_of,
    run_tracked,
    track_all,
)
from tests.support.simulated.simulated_job import in_both_modes

if TYPE_CHECKING:
    import pytest

    from tests.support.simulated.simulated_job import SimulatedJob

HOUR_S = 3_600.0


@in_both_modes
def test_a_batch_whose_first_records_have_expired_is_redelivered_without_them_once(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends without a report. The next plan reads what is left, and reports: no loop, and no
    error about a function that is not tracked.
    """
    lost = one.put(5)
    one.clock.advance(20 * HOUR_S)
    left = one.put(5)
    outcomes = tracked(one, numbered())
    first = one.coordinator(fail_on_data_loss=False)
    plan = next_plan(first)
    assert len(rows_of(one, first, plan)) == 10
    first.close()
    one.clock.advance(5 * HOUR_S)

    again = one.coordinator(fail_on_data_loss=False)
    one.restart_executor(fail_on_data_loss=False)
    assert [int(row["sequenceNumber"]) for row in run_tracked(one, again, plan, outcomes)] == left
    assert outcomes.done == []
    plan, rows = track_all(one, again, outcomes, plan)
    assert [int(row["sequenceNumber"]) for row in rows] == left
    assert caplog.text.count("ended without a report of its outcomes") == 1
    (report,) = outcomes.done
    assert report.tasks == (0,)
    (state,) = one.states().values()
    assert state.unresolved == ()
    assert state.checkpoint is not None
    assert (state.checkpoint.sequence, lost[0] < left[0]) == (left[-1], True)


@in_both_modes
def test_a_retry_that_has_expired_between_two_deliveries_gets_its_dead_letter_with_the_next_plan(
    one: SimulatedJob,
) -> None:
    """Its rows were published, so the replay cannot report them as gone."""
    one.put(4)
    later_ms = int(19 * HOUR_S * 1000)
    outcomes = tracked(one, numbered(2), policy(first_delay_ms=later_ms, max_delay_ms=later_ms))
    first = one.coordinator(fail_on_data_loss=False)
    plan = next_plan(first)
    run_tracked(one, first, plan, outcomes)
    assert next_plan(first, plan) == plan
    one.clock.advance(20 * HOUR_S)
    new = one.put(2)
    plan = next_plan(first, plan)
    assert len(rows_of(one, first, plan)) == 3
    first.close()
    one.clock.advance(5 * HOUR_S)

    again = one.coordinator(fail_on_data_loss=False)
    one.restart_executor(fail_on_data_loss=False)
    assert [int(row["sequenceNumber"]) for row in run_tracked(one, again, plan, outcomes)] == new
    plan, rows = track_all(one, again, outcomes, plan)
    assert [int(row["sequenceNumber"]) for row in rows] == new
    assert [reason for _, _, reason in outcomes.letters] == ["past the stream's retention"]
    assert read_all(one, again, plan)[1] == []
    (state,) = one.states().values()
    assert state.unresolved == ()
