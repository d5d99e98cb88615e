"""When the driver plans retries, and what it reads besides: outages, order, an AvailableNow run
that waits for them, and a record that ends the process of the driver. In simulated time.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.errors import UnreadableRecordError
from kinesis_spout.testing import alter
from spark_job.driver.backlog import retry_wait_ms
from state.report import OnFailure, OutcomePolicy
from state.retry_policy import RetryPolicy
from state.store.runs import DONE
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.simulated.played_outcomes import (
    PlayedOutcomes,
    Row,
    numbered,
    policy,
    tracked,
)
from tests.support.simulated.simulated_driver import (
    next_plan,
    one_batch,
    read_all,
    rows_of,
    run,
    run_tracked,
    track_all,
)
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from spark_job.driver.coordinator import Coordinator


HOUR_S = 3_600.0


def unresolved(job: SimulatedJob) -> int:
    return sum(state.unresolved_count for state in job.states().values())


def test_a_poll_returns_at_once_when_a_retry_becomes_due_and_asks_for_no_plan_before(
    one: SimulatedJob,
) -> None:
    """With nothing new, at the default idle wait: no empty batch, no hot loop, no delay beyond the
    poll.
    """
    one.put(5)
    outcomes = tracked(one, numbered(2), policy(first_delay_ms=10_500, retry_limit=1))
    coordinator = one.coordinator()
    start = next_plan(coordinator)
    run_tracked(one, coordinator, start, outcomes)
    failed_s = one.clock.monotonic_s()
    polls = 0
    while (plan := next_plan(coordinator, start)) == start:
        polls += 1
    assert 10.5 <= one.clock.monotonic_s() - failed_s < 10.7
    assert polls == 10
    assert [row["attempt"] for row in run_tracked(one, coordinator, plan, outcomes)] == [2]


def test_the_report_has_waiting_retries_their_age_and_what_this_run_has_dead_lettered(
    one: SimulatedJob,
) -> None:
    one.put(5)
    outcomes = tracked(one, numbered(1, 2), policy(first_delay_ms=4_000, retry_limit=1))
    coordinator = one.coordinator(idle_wait="0s")
    start = next_plan(coordinator)
    run_tracked(one, coordinator, start, outcomes)
    assert next_plan(coordinator, start) == start
    one.clock.advance(3)
    counts = ("unresolved", "retriesWaiting", "oldestUnresolvedMs", "deadLettered", "outage")
    assert [coordinator.report()[name] for name in counts] == [2, 2, 3_000, 0, False]
    one.clock.advance(1)
    track_all(one, coordinator, outcomes, start)
    assert [coordinator.report()[name] for name in counts] == [0, 0, 0, 2, False]
    counts = ("emitted", "acked", "failed", "retried", "dropped")
    assert [coordinator.report()[name] for name in counts] == [7, 3, 4, 2, 0]


def test_a_range_that_is_gone_in_part_gives_a_warning_where_whole_batches_are_acked(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    put = one.put(60)
    one.clock.advance(HOUR_S)
    one.put(140)
    first = one.coordinator()
    start = next_plan(first)
    run_tracked(one, first, start, tracked(one, lambda _: True))
    next_plan(first, start)
    first.close()
    one.clock.advance(23.5 * HOUR_S)
    second = one.coordinator(whole_batch_ack=True, fail_on_data_loss=False)
    plan = next_plan(second, start)
    assert len(rows_of(one, second, plan)) == 140
    next_plan(second, plan)
    assert f"{shard(0)}: 60 records, starting with {put[0]}" in caplog.text
    assert unresolved(one) == 0


@pytest.mark.parametrize("whole_batch_ack", [False, True])
def test_unresolved_records_limit_the_batches_of_jobs_that_track_and_no_others(
    one: SimulatedJob, *, whole_batch_ack: bool
) -> None:
    """Before a batch is settled, nobody can tell whether the job tracks, unless it says that it
    acks whole batches.
    """
    options: dict[str, Any] = {
        "max_records_per_shard": 20,
        "max_unresolved_per_shard": 5,
        "whole_batch_ack": whole_batch_ack,
    }
    one.put(80)
    coordinator, start, sizes = one.coordinator(**options), "", []
    for _ in range(2):
        start, rows = one_batch(one, coordinator, start)
        sizes.append(len(rows))
    coordinator.close()
    restarted = one.coordinator(**options)
    start, rows = one_batch(one, restarted, start)
    assert [*sizes, len(rows)] == [20 if whole_batch_ack else 5, 20, 20]
    if whole_batch_ack:
        return
    outcomes = tracked(one, numbered(), policy())
    plan = next_plan(restarted, start)
    run_tracked(one, restarted, plan, outcomes)
    assert len(run_tracked(one, restarted, next_plan(restarted, plan), outcomes)) == 5


def test_in_an_outage_nothing_new_is_read_no_attempt_is_counted_and_it_ends_by_itself(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the driver starts again meanwhile. All records fail for a quarter of an hour. The
    log gives the reason once, because the cause may be the function of the job.
    """
    put = one.put(600)
    down_until_s = 900.0
    outcomes = tracked(one, lambda _: one.clock.monotonic_s() < down_until_s, policy(retry_limit=2))
    start, found = "", []
    for batch in range(25):
        coordinator = one.coordinator(max_records_per_shard=200, idle_wait="60s")
        while (plan := next_plan(coordinator, start)) == start:
            assert one.clock.monotonic_s() < down_until_s + 120
        start = plan
        if batch and one.clock.monotonic_s() < down_until_s:
            planned = one.store().plans.read(plan)
            assert planned is not None
            assert planned.outages
            assert sum(one.max_records for task in planned.tasks for one in task.shards) == 0
            assert coordinator.report()["outage"]
        found += outcomes.play(rows_of(one, coordinator, plan))
        coordinator.close()
        if len(found) == len(put):
            break
    assert outcomes.letters == []
    assert sorted(int(row["sequenceNumber"]) for row in found) == put
    assert {row["attempt"] for row in found} == {1}
    (began,) = (said for said in caplog.messages if "No new records are read" in said)
    assert "The error of the last failed record is 'as planned'. No" in began


def test_a_retry_that_waits_for_an_ancestor_costs_no_plans(one: SimulatedJob) -> None:
    """It would be planned and blocked again at every poll."""
    one.put(3)
    one.fake.split(STREAM, shard(0))
    one.clock.advance(1)
    one.put(3)
    outcomes = tracked(
        one,
        lambda row: row["data"] == b"record 1" and row["shardId"] == shard(0),
        policy(OnFailure.BLOCK_KEY, first_delay_ms=3_600_000, max_delay_ms=3_600_000),
    )
    coordinator = one.coordinator(idle_wait="0s")
    start, _ = track_all(one, coordinator, outcomes)
    assert len(outcomes.done) <= 3
    one.clock.advance(60)
    assert next_plan(coordinator, start) == start


def planned_by_tracked_run(
    one: SimulatedJob, *, is_opened: bool
) -> tuple[list[int], Coordinator, str]:
    """The records, the driver and the plan of a batch that has no done report."""
    put = one.put(3)
    driver = one.coordinator()
    plan = next_plan(driver)
    with closing(one.store()) as store:
        store.reports.mark_tracked(OutcomePolicy())
        if is_opened:
            store.reports.open(plan, "token")
    return put, driver, plan


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_tracked_batch_without_a_done_report_is_delivered_again(
    one: SimulatedJob, *, is_opened: bool
) -> None:
    put, driver, plan = planned_by_tracked_run(one, is_opened=is_opened)
    assert run(one, driver, plan) == put
    again = next_plan(driver, plan)
    assert again != plan
    assert run(one, driver, again) == put


def test_a_done_report_counts_also_when_the_mark_was_removed_since(one: SimulatedJob) -> None:
    """Otherwise failed records would be acked because the application acks whole batches from now
    on.
    """
    one.put(3)
    driver = one.coordinator()
    plan = next_plan(driver)
    run_tracked(one, driver, plan, tracked(one, numbered(1)))
    driver.close()
    with one.owned_store() as store:
        store.reports.clear_policy()
    next_plan(one.coordinator(), plan)
    assert unresolved(one) == 1


@pytest.mark.parametrize("is_tracked", [False, True])
def test_a_plan_of_which_a_task_was_removed_settles_nothing_and_its_records_come_again(
    job: SimulatedJob, caplog: pytest.LogCaptureFixture, *, is_tracked: bool
) -> None:
    """Spark repeats its batch without a row, so no sink surely has what the other task has read."""
    for index in (0, 1):
        job.put(3, key=job.key_of(index))
    driver = job.coordinator(max_tasks=2)
    plan = next_plan(driver)
    if is_tracked:
        run_tracked(job, driver, plan, tracked(job, numbered(1)))
    delivered = run(job, driver, plan)
    driver.close()
    job.backend.remove([path for path in job.backend.nodes("") if f"/{plan}/1" in path])
    restarted = job.coordinator(max_tasks=2)
    assert restarted.tasks(plan) == {}
    again = next_plan(restarted, plan)
    assert run(job, restarted, again) == delivered
    assert f"part of batch {plan} was removed from ZooKeeper" in caplog.text


@pytest.mark.parametrize("is_left_out", [False, True])
def test_a_batch_of_a_tracked_run_is_not_acked_because_the_next_run_acks_whole_batches(
    one: SimulatedJob, *, is_left_out: bool
) -> None:
    """It ended without a report, as where its rows have expired, so its failures are not known. A
    stream that is left out is settled after a batch of the others.
    """
    put, driver, plan = planned_by_tracked_run(one, is_opened=False)
    assert run(one, driver, plan) == put
    driver.close()
    second = one.coordinator(whole_batch_ack=True)
    if is_left_out:
        assert second.tasks("", known_plan=plan) == {}
    again = next_plan(second, plan)
    assert again != plan
    assert run(one, second, again) == put
    assert next_plan(second, again) == again
    assert one.store().reports.read_policy() is None


def test_a_batch_that_an_untracked_run_repeats_is_acked_by_it_as_a_whole(
    one: SimulatedJob,
) -> None:
    put, driver, plan = planned_by_tracked_run(one, is_opened=True)
    driver.close()
    second = one.coordinator(whole_batch_ack=True)
    assert run(one, second, plan) == put
    assert next_plan(second, plan) == plan


def ended(job: SimulatedJob) -> tuple[str, str | None]:
    """How the newest run ended, as it told."""
    newest = job.store().runs.read()[None].newest
    assert newest is not None
    assert newest.end is not None
    return newest.end.kind, newest.end.says


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
    said = "in these shards or their child shards: "
    assert f"{said}{shard(0)}" in caplog.text
    assert ended(job) == (DONE, "it left 3 shards not read up to the start of the run")
    assert 20 <= job.clock.monotonic_s() < 60


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


# retries ------------------------------------------------------------------------------------------


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
    assert "leaves 2 records for the next run to retry" in caplog.text
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


def test_no_new_record_is_read_while_a_record_that_ends_its_process_is_searched(
    one: SimulatedJob,
) -> None:
    """Else the search would never end on a busy stream. After two deliveries that nothing answered,
    the records come in smaller batches, which grow while they are answered.
    """
    one.put(8)
    outcomes = tracked(one, lambda _: False)
    driver = one.coordinator()
    plan = next_plan(driver)
    rows = rows_of(one, driver, plan)

    def end(_step: str) -> None:
        raise Crash

    for _ in range(2):
        with pytest.raises(Crash):
            outcomes.play(rows, end)
    assert outcomes.play(rows) == []
    one.put(9)
    for given in (2, 4, 2):
        plan = next_plan(driver, plan)
        made = one.store().plans.read(plan)
        assert made is not None
        assert sum(piece.max_records for piece in made.slices.values()) == 0
        assert len(run_tracked(one, driver, plan, outcomes)) == given
    assert len(run_tracked(one, driver, next_plan(driver, plan), outcomes)) == 9
