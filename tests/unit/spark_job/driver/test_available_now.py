"""An AvailableNow run reads at least everything that was there when it began, waits for retries up
to its limit, and ends. In simulated time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from kinesis_spout.errors import UnreadableRecordError
from kinesis_spout.testing import alter, end_without_children
from spark_job.driver.backlog import retry_wait_ms
from state.report import OnFailure
from state.retry_policy import RetryPolicy
from state.store.runs import DONE
from tests.support.simulated.played_outcomes import PlayedOutcomes, Row, numbered, policy, tracked
from tests.support.simulated.simulated_driver import (
    next_plan,
    one_batch,
    read_all,
    run,
    track_all,
)
from tests.support.simulated.simulated_job import (
    STREAM,
    SimulatedJob,
    shard,
    simulated,
)


def ended(job: SimulatedJob) -> tuple[str, str | None]:
    """How the newest run ended, as it told."""
    newest = job.store().runs.read()[None].newest
    assert newest is not None
    assert newest.end is not None
    return newest.end.kind, newest.end.says


def test_available_now_ends_though_records_keep_coming(job: SimulatedJob) -> None:
    there = job.put(5)
    coordinator = job.coordinator()
    coordinator.prepare_available_now()
    start, found = "", []
    for _ in range(20):
        job.clock.advance(3)
        plan = next_plan(coordinator, start)
        if plan == start:
            break
        job.put(3)
        found += run(job, coordinator, plan)
        start = plan
    else:
        raise AssertionError("the run does not end")
    assert set(there) <= set(found)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_available_now_waits_for_children_that_neither_the_end_nor_the_list_names_yet(
    *, is_restarted: bool
) -> None:
    """A closed shard always has children; also when an earlier run has read its end."""
    with simulated(shards=1, listing_delay_ms=25_000) as job:
        job.clock.advance(60)
        job.fake.faults.add(end_without_children(), operation="GetRecords", times=None)
        parent = job.put(5)
        job.fake.split(STREAM, shard(0))
        children = [number for index in (1, 2) for number in job.put(5, key=job.key_of(index))]
        coordinator, plan = job.coordinator(shard_refresh_interval="1h"), ""
        if is_restarted:
            plan, found = one_batch(job, coordinator, "")
            assert found == parent
            next_plan(coordinator, plan)
            coordinator.close()
            coordinator = job.coordinator(shard_refresh_interval="1h")
        coordinator.prepare_available_now()
        _, found = read_all(job, coordinator, plan)
        assert sorted(found) == sorted(children if is_restarted else parent + children)


def test_available_now_does_not_wait_for_children_of_a_shard_that_was_at_its_tip_before_its_split(
    job: SimulatedJob,
) -> None:
    """The children's records were written after the run began."""
    job.put(5, key=job.key_of(0))
    coordinator = job.coordinator(idle_wait="0s")
    coordinator.prepare_available_now()
    plan, _ = one_batch(job, coordinator, "")
    job.fake.split(STREAM, shard(0))
    job.clock.advance(20)
    begun_s = job.clock.monotonic_s()
    assert next_plan(coordinator, plan) == plan
    assert job.clock.monotonic_s() == begun_s


def test_available_now_ends_with_a_warning_when_a_closed_shard_never_reports_its_end(
    job: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """One emulator behaves so. The wait is bounded by maxSearchTime."""
    job.put(1, key=job.key_of(0))
    coordinator = job.coordinator(max_search_time="20s", max_fetch_time="1s")
    job.fake.split(STREAM, shard(0))
    never = alter(
        lambda page: msgspec.structs.replace(page, next_shard_iterator="x", child_shards=None)
    )
    job.fake.faults.add(never, operation="GetRecords", shard_id=shard(0), times=None)
    coordinator.prepare_available_now()
    read_all(job, coordinator)
    said = "or their children, were not read up to its start within maxSearchTime: "
    assert f"{said}{shard(0)}" in caplog.text
    assert ended(job) == (DONE, "it left 3 shards not read up to its start")
    assert 20 <= job.clock.monotonic_s() < 60


def test_a_shard_that_never_says_how_far_behind_it_is_is_read_to_the_end(
    one: SimulatedJob,
) -> None:
    """MillisBehindLatest is optional. Two pages in a row without a record are the tip then."""
    put = one.put(3)
    silent = alter(lambda page: msgspec.structs.replace(page, millis_behind_latest=None))
    one.fake.faults.add(silent, operation="GetRecords", times=None)
    coordinator = one.coordinator(max_search_time="20s")
    coordinator.prepare_available_now()
    assert read_all(one, coordinator)[1] == put
    assert one.clock.monotonic_s() < 5


def test_a_record_with_a_time_that_cannot_be_ends_the_query_behind_those_before_it(
    one: SimulatedJob,
) -> None:
    """The error says which one it is, and where."""
    put = one.put(3)
    (bad,) = one.put(1, arrival_ms=10**15)
    coordinator = one.coordinator()
    plan, found = one_batch(one, coordinator, "")
    assert found == put
    plan = next_plan(coordinator, plan)
    place = f"record {bad} of shard {shard(0)} of stream orders at {one.endpoint_url}"
    with pytest.raises(UnreadableRecordError, match=place):
        run(one, coordinator, plan)


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


# retries ------------------------------------------------------------------------------------------
def unresolved(job: SimulatedJob) -> int:
    return sum(state.unresolved_count for state in job.states().values())


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
    """It ends at once when no retry is due within that wait. A later run begins with those that are
    due by then.
    """
    one.put(10)
    outcomes = tracked(one, numbered(3, 4), policy(first_delay_ms=4_000, retry_limit=9))
    start, rows = available_now(one, outcomes, available_now_retry_wait="10s")
    assert Counter(row["attempt"] for row in rows) == {1: 10, 2: 2}
    assert one.clock.monotonic_s() == pytest.approx(4, abs=0.1)
    assert "2 records wait for their retry" in caplog.text
    assert unresolved(one) == 2
    assert ended(one) == (DONE, "it left 2 records to be retried")
    one.clock.advance(3_600)
    _, rows = available_now(one, outcomes, start, available_now_retry_wait="0s")
    assert [row["attempt"] for row in rows] == [3, 3]


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
        ({"retry_limit": 3, "first_delay_ms": 1_000}, 57),
        ({"retry_limit": 3, "first_delay_ms": 1_000, "max_delay_ms": 1_500, "jitter": 1.0}, 54),
        ({"retry_limit": 1, "first_delay_ms": 60_000}, 150),
        ({"retry_limit": 10**9}, 86_400),
    ],
)
def test_the_default_retry_wait_is_the_sum_of_a_records_backoffs_a_suspicion_and_half_a_minute(
    retry: dict[str, Any], wait_s: int
) -> None:
    """A record that fails alone is suspected for twenty seconds, or for its first delay."""
    assert retry_wait_ms(RetryPolicy(**retry)) == wait_s * 1_000
