"""When the driver plans retries, and what it reads besides: allowances, order, outages, lost
shards. In simulated time.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.application.history_recorder import MARGIN_MS
from kinesis_spout.checkpoints.rewind import read_history
from state.moves.history import past_at
from state.position import Position
from state.report import OnFailure
from state.sequence_number import SequenceNumber
from tests.simulation.world import SkewedClock
from tests.support.simulated.played_outcomes import numbered, policy, tracked
from tests.support.simulated.simulated_driver import (
    next_plan,
    read_all,
    rows_of,
    run_tracked,
    track_all,
)
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard

if TYPE_CHECKING:
    from kinesis_spout.testing import ManualClock

HOUR_S, HOUR_MS, DAY_MS = 3_600.0, 3_600_000, 86_400_000


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


def test_no_more_records_are_read_than_the_allowance_of_unresolved_records_leaves(
    one: SimulatedJob,
) -> None:
    """All records fail, and wait for an hour. Of 100 records 30 are read, then none until some are
    resolved.
    """
    one.put(100)
    broken = [True]
    outcomes = tracked(
        one, lambda _: broken[0], policy(first_delay_ms=3_600_000, max_delay_ms=3_600_000)
    )
    coordinator = one.coordinator(max_unresolved_per_shard=30, max_records_per_shard=20)
    start, rows = track_all(one, coordinator, outcomes)
    assert [len(rows), unresolved(one)] == [30, 30]
    broken[0] = False
    one.clock.advance(HOUR_S)
    _, rows = track_all(one, coordinator, outcomes, start)
    assert len(rows) == 100
    assert unresolved(one) == 0


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
    assert f"{shard(0)}: 60 from {put[0]} on" in caplog.text
    assert unresolved(one) == 0


@pytest.fixture
def service(one: SimulatedJob) -> ManualClock:
    """The service's clock. The clock of the job `one` can be set from now on."""
    service = one.clock
    one.clock = SkewedClock(service)  # type: ignore[assignment]  # time passes by the service's
    return service


def set_clock(one: SimulatedJob, ahead_ms: int) -> None:
    one.clock.ahead_ms = ahead_ms  # type: ignore[attr-defined]  # see `service`


@pytest.mark.parametrize(
    ("ahead_ms", "is_available_now"), [(-HOUR_MS, True), (DAY_MS, False)], ids=["back", "forward"]
)
def test_a_retry_waits_no_longer_and_no_shorter_where_the_clock_is_set_meanwhile(
    one: SimulatedJob, service: ManualClock, ahead_ms: int, *, is_available_now: bool
) -> None:
    one.put(10)
    outcomes = tracked(one, numbered(3), policy(first_delay_ms=20_000, growth=1.0, retry_limit=1))
    driver = one.coordinator(idle_wait="50s")
    if is_available_now:
        driver.prepare_available_now()
    plan = next_plan(driver)
    run_tracked(one, driver, plan, outcomes)
    failed_s = service.monotonic_s()
    driver.settle(plan)
    set_clock(one, ahead_ms)
    retry = next_plan(driver, plan)
    assert service.monotonic_s() - failed_s == pytest.approx(20, abs=1)
    rows = run_tracked(one, driver, retry, outcomes)
    assert Counter(row["attempt"] for row in rows) == {2: 1}
    assert track_all(one, driver, outcomes, retry)[1] == []
    assert len(outcomes.letters) == 1


@pytest.mark.parametrize(
    "settings", [(-20_000,), (DAY_MS,), (DAY_MS, 0)], ids=["back", "forward", "forward and back"]
)
def test_nobody_goes_back_behind_a_record_that_was_not_acked_then(
    one: SimulatedJob, service: ManualClock, settings: tuple[int, ...]
) -> None:
    """Whatever the machine's clock says, and whether a plan is settled before a listing or after
    it. Nothing seems to be lost, either.
    """
    driver = one.coordinator(shard_refresh_interval="1h")
    one.put(2)
    plan, _ = read_all(one, driver)
    number = 0
    for ahead_ms in settings:
        service.advance(15)
        (number,) = one.put(1)
        set_clock(one, ahead_ms)
        plan, read = read_all(one, driver, plan)
        assert read == [number]
    acked_ms = service.now_ms()  # or up to `idleWait` before
    entries = read_history(one.store().history)
    assert all(before.time_ms <= after.time_ms for before, after in pairwise(entries))
    assert entries[-1].time_ms <= service.now_ms() + MARGIN_MS
    past = past_at(entries, acked_ms - 30_000)
    assert past is None or past.positions[shard(0)] != Position.after(SequenceNumber(number))
    assert driver.report()["lagMs"] == 0


def test_in_an_outage_nothing_new_is_read_no_attempt_is_counted_and_it_ends_by_itself(
    one: SimulatedJob,
) -> None:
    """Also where the driver starts again meanwhile. All records fail for a quarter of an hour."""
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
