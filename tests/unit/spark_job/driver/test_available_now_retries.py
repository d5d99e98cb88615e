"""An AvailableNow run waits for retries up to its limit, and warns of what it leaves queued. In
simulated time.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from spark_job.driver.available_now import retry_wait_ms
from state.owner.run_log import DONE
from state.report import OnFailure
from state.retry_policy import RetryPolicy
from tests.support.simulated.played_outcomes import PlayedOutcomes, Row, numbered, policy, tracked
from tests.support.simulated.simulated_driver import track_all
from tests.support.simulated.simulated_job import SimulatedJob, shard

HOUR_S = 3_600.0


def unresolved(job: SimulatedJob) -> int:
    return sum(state.unresolved_count for state in job.states().values())


def ended(job: SimulatedJob) -> tuple[str, str | None]:
    """How the newest run ended, as it told."""
    newest = job.store().read_runs()[None].newest
    assert newest is not None
    assert newest.end is not None
    return newest.end.kind, newest.end.says


def available_now(
    job: SimulatedJob, outcomes: PlayedOutcomes, start: str = "", **options: Any
) -> tuple[str, list[Row]]:
    coordinator = job.coordinator(**options)
    coordinator.prepare_available_now()
    try:
        return track_all(job, coordinator, outcomes, start)
    finally:
        coordinator.close()


def test_an_available_now_run_waits_for_all_retries_of_a_record_by_default(
    one: SimulatedJob,
) -> None:
    one.put(10)
    outcomes = tracked(one, numbered(3), policy(first_delay_ms=60_000, retry_limit=3))
    _, rows = available_now(one, outcomes)
    assert Counter(row["attempt"] for row in rows) == {1: 10, 2: 1, 3: 1, 4: 1}
    assert len(outcomes.letters) == 1
    assert 420 <= one.clock.monotonic_s() < 425
    assert unresolved(one) == 0
    assert ended(one) == (DONE, None)


def test_an_available_now_run_ends_after_its_retry_wait_and_warns_of_what_stays_queued(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends at once when no retry is due within that wait."""
    one.put(10)
    outcomes = tracked(one, numbered(3, 4), policy(first_delay_ms=4_000, retry_limit=9))
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        _, rows = available_now(one, outcomes, available_now_retry_wait="10s")
    assert Counter(row["attempt"] for row in rows) == {1: 10, 2: 2}
    assert one.clock.monotonic_s() == pytest.approx(4, abs=0.1)
    assert "2 records wait for their retry" in caplog.text
    assert unresolved(one) == 2
    assert ended(one) == (DONE, "it left 2 records to be retried")


def test_an_available_now_run_without_a_retry_wait_reads_retries_that_are_due_already(
    one: SimulatedJob,
) -> None:
    """Records that yesterday's run left queued are retried today."""
    one.put(10)
    outcomes = tracked(one, numbered(3), policy(first_delay_ms=60_000, retry_limit=9))
    start, _ = available_now(one, outcomes, available_now_retry_wait="0s")
    one.clock.advance(HOUR_S)
    begun_s = one.clock.monotonic_s()
    _, rows = available_now(one, outcomes, start, available_now_retry_wait="0s")
    assert [row["attempt"] for row in rows] == [2]
    assert one.clock.monotonic_s() == begun_s


def test_an_available_now_run_in_an_outage_ends_and_warns_of_what_it_has_not_read(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    one.put(1_000)
    outcomes = tracked(one, lambda _: True)
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        _, rows = available_now(one, outcomes, max_records_per_shard=200)
    assert {row["attempt"] for row in rows} == {1}
    assert one.clock.monotonic_s() < 60
    assert "200 records wait for their retry" in caplog.text
    assert shard(0) in caplog.text
    assert outcomes.letters == []


def test_the_retry_wait_starts_again_with_every_new_record(one: SimulatedJob) -> None:
    """Each of ten batches has a record that blocks its shard for four seconds; the run waits for
    five.
    """
    one.put(100)
    outcomes = tracked(
        one,
        lambda row: row["attempt"] == 1 and row["data"].endswith(b"5"),
        policy(OnFailure.BLOCK_SHARD, first_delay_ms=4_000),
    )
    available_now(one, outcomes, available_now_retry_wait="5s", max_records_per_shard=10)
    assert unresolved(one) == 0
    assert len(set(outcomes.calls)) == 110
    assert one.clock.monotonic_s() == pytest.approx(40, abs=2)


@pytest.mark.parametrize(
    ("retry", "wait_s"),
    [
        ({"retry_limit": 0}, 50),
        ({"retry_limit": 3, "first_delay_ms": 1_000}, 57),
        ({"retry_limit": 3, "first_delay_ms": 1_000, "max_delay_ms": 1_500, "jitter": 1.0}, 54),
        ({"retry_limit": 1, "first_delay_ms": 60_000}, 150),
        ({"retry_limit": 10**9, "first_delay_ms": 0}, 50),
        ({"retry_limit": 10**9}, 86_400),
    ],
)
def test_the_default_retry_wait_is_the_sum_of_a_records_backoffs_a_suspicion_and_half_a_minute(
    retry: dict[str, Any], wait_s: int
) -> None:
    """A record that fails alone is suspected for twenty seconds, or for its first delay."""
    assert retry_wait_ms(RetryPolicy(**retry)) == wait_s * 1_000
