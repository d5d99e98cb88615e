"""A paused job keeps its place: it settles what it has read, reads nothing, and goes on when the
pause ends. In simulated time.
"""

from __future__ import annotations

import logging
from contextlib import closing

import pytest

from kinesis_spout.checkpoints.rewind import read_history
from kinesis_spout.errors import DataLossError
from kinesis_spout.shards.history_recorder import INTERVAL_S, MARGIN_MS
from kinesis_spout.shards.pause import HOLD_S
from spark_job.driver.coordinator import Coordinator
from state.errors import StaleOwnerError
from state.moves.history import past_at
from state.owner.ownership import this_process
from state.owner.run_log import DONE
from state.plan import PlanPointer, PlanStatus
from state.position import Position, PositionKind
from state.sequence_number import SequenceNumber
from state.state_store import Pause
from tests.support.simulated.simulated_driver import next_plan, one_batch, pointer, read_all, run
from tests.support.simulated.simulated_job import APPLICATION, STREAM, SimulatedJob, shard
from tests.support.state.counting_tree import counting_store

DAY_S = 86_400.0
PAUSE = Pause(by="ann on host-a", since_ms=0, reason="deploy")


def pause(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        assert store.pause(PAUSE) == PAUSE


def resume(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        assert store.resume() == PAUSE


def calls(job: SimulatedJob) -> int:
    """All requests to the service."""
    return len(job.fake.faults.struck)


def test_a_paused_job_settles_its_last_batch_and_reads_nothing(one: SimulatedJob) -> None:
    """However often Spark asks, up to the retention. Then it goes on where it was."""
    first = one.put(3)
    coordinator = one.coordinator(idle_wait="1s")
    plan, found = one_batch(one, coordinator, "")
    assert found == first
    pause(one)
    second = one.put(4)
    assert next_plan(coordinator, plan) == plan
    assert pointer(one) == PlanPointer(plan, PlanStatus.SETTLED)
    assert one.states()[shard(0)].checkpoint == SequenceNumber(first[-1])
    one.count_calls()
    for _ in range(20):
        one.clock.advance(3_600)
        assert next_plan(coordinator, plan) == plan
    assert calls(one) == 0
    resume(one)
    assert one_batch(one, coordinator, plan)[1] == second


def test_it_waits_for_the_end_of_the_pause_as_for_records(one: SimulatedJob) -> None:
    """It returns to Spark after `idleWait`, and goes on within a call when the pause ends."""
    put = one.put(2)
    coordinator = one.coordinator(idle_wait="5s")
    next_plan(coordinator)
    pause(one)
    begun_s = one.clock.monotonic_s()
    plan = pointer(one).id
    assert run(one, coordinator, plan) == put, "the batch under way ends normally"
    assert next_plan(coordinator, plan) == plan
    assert one.clock.monotonic_s() - begun_s == pytest.approx(5, abs=0.1)


def test_a_job_that_is_paused_before_its_first_start_pins_it(one: SimulatedJob) -> None:
    """What arrives after the start, during the pause, is read; what was there before is not."""
    pause(one)
    one.put(3)
    one.clock.advance(10)
    coordinator = one.coordinator(starting_position="LATEST")
    assert next_plan(coordinator) == ""
    pin = one.store().read_start()
    assert pin is not None
    assert pin.position.kind is PositionKind.AT_TIMESTAMP
    one.clock.advance(10)
    later = one.put(2)
    assert next_plan(coordinator) == ""
    resume(one)
    assert read_all(one, coordinator)[1] == later


def test_an_available_now_run_ends_and_says_so_once(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, at its start or after the batch under way, which is settled."""
    put = one.put(25)
    coordinator = one.coordinator(max_records_per_shard=10, idle_wait="60s")
    coordinator.prepare_available_now()
    plan, found = one_batch(one, coordinator, "")
    pause(one)
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        begun_s = one.clock.monotonic_s()
        assert next_plan(coordinator, plan) == plan
        assert next_plan(coordinator, plan) == plan
    assert one.clock.monotonic_s() == begun_s
    assert pointer(one) == PlanPointer(plan, PlanStatus.SETTLED)
    assert [record.getMessage() for record in caplog.records] == [
        (
            "application etl is paused by ann on host-a since 1970-01-01T00:00:00.000Z ('deploy'): "
            "this run ends without reading on; end the pause with `kinesis-spout resume`"
        )
    ]
    newest = one.store().read_runs()[None].newest
    assert newest is not None
    assert newest.end is not None
    assert (newest.end.kind, newest.end.says) == (
        DONE,
        "the application was paused, so it did not read all",
    )
    resume(one)
    next_run = one.coordinator()
    coordinator.close()
    next_run.prepare_available_now()
    assert found + read_all(one, next_run, plan)[1] == put


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pause_beyond_the_retention_reports_the_loss_when_it_ends(
    one: SimulatedJob, *, restarted: bool
) -> None:
    """Not during the pause, in which the job stays: as a job that was stopped for so long."""
    one.put(2)
    coordinator = one.coordinator()
    plan, _ = one_batch(one, coordinator, "")
    pause(one)
    assert next_plan(coordinator, plan) == plan
    one.put(1)
    for _ in range(3):
        one.clock.advance(DAY_S)
        assert next_plan(coordinator, plan) == plan
    if restarted:
        coordinator.close()
        coordinator = one.coordinator()
        assert next_plan(coordinator, plan) == plan
    resume(one)
    with pytest.raises(DataLossError, match="not read for longer than the retention"):
        next_plan(coordinator, plan)


def test_a_paused_job_keeps_its_ownership_over_a_lost_session(one: SimulatedJob) -> None:
    """Though it writes nothing else. A process that took over is noticed."""
    coordinator = one.coordinator()
    pause(one)
    next_plan(coordinator)
    session = coordinator._store._tree.session_id()  # type: ignore[attr-defined]  # the memory store's
    one.backend.expire(session)
    assert one.store().read_owner() is None
    one.clock.advance(HOLD_S)
    next_plan(coordinator)
    assert one.store().read_owner() is not None
    one.backend.expire(coordinator._store._tree.session_id())  # type: ignore[attr-defined]  # the same
    with closing(one.store()) as other:
        other.acquire(this_process(0), timeout_s=0)
        one.clock.advance(HOLD_S)
        with pytest.raises(StaleOwnerError):
            next_plan(coordinator)


def test_a_poll_during_a_pause_costs_one_read(one: SimulatedJob) -> None:
    """Of the newest plan: a watch tells of the pause. The ownership is checked now and then."""
    store, tree = counting_store(one.backend, application=APPLICATION, stream=STREAM)
    with closing(Coordinator(one.settings(), one.services(store=store))) as coordinator:
        next_plan(coordinator)
        pause(one)
        next_plan(coordinator)
        one.clock.advance(HOLD_S)
        assert tree.cost_of(lambda: next_plan(coordinator)) == (1, 1)
        assert tree.cost_of(lambda: next_plan(coordinator)) == (1, 0)


def test_the_history_goes_back_to_the_pause(one: SimulatedJob) -> None:
    """What the last batch before it has acked is in the history while the pause lasts."""
    put = one.put(2)
    coordinator = one.coordinator()
    plan, _ = one_batch(one, coordinator, "")
    pause(one)
    one.clock.advance(INTERVAL_S)
    assert next_plan(coordinator, plan) == plan
    past = past_at(read_history(one.store()), one.clock.now_ms() + MARGIN_MS)
    assert past is not None
    assert past.positions == {shard(0): Position.after(SequenceNumber(put[-1]))}
