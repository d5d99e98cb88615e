"""A paused job keeps its place: it settles what it has read, reads nothing, and goes on when the
pause ends. In simulated time.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from kinesis_spout.application.session import KEPT_S
from state.errors import StaleOwnerError
from state.plan import PlanPointer, PlanStatus
from state.position import PositionKind
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.store.pause import Pause
from state.store.runs import DONE
from tests.support.simulated.simulated_driver import next_plan, one_batch, pointer, read_all
from tests.support.simulated.simulated_job import APPLICATION, STREAM, SimulatedJob, shard
from tests.support.state.trees import counting_store

PAUSE = Pause(by="ann on host-a", since_ms=0, reason="deploy")


def pause(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        assert store.pause.begin(PAUSE) == PAUSE


def resume(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        assert store.pause.end() == PAUSE


def test_a_paused_job_settles_its_last_batch_and_reads_nothing(one: SimulatedJob) -> None:
    """However often Spark asks, up to the retention. Then it goes on where it was."""
    first = one.put(3)
    coordinator = one.coordinator(idle_wait="5s")
    plan, found = one_batch(one, coordinator, "")
    assert found == first
    pause(one)
    second = one.put(4)
    begun_s = one.clock.monotonic_s()
    assert next_plan(coordinator, plan) == plan
    assert one.clock.monotonic_s() - begun_s == pytest.approx(5, abs=0.1), "as for records"
    assert pointer(one) == PlanPointer(plan, PlanStatus.SETTLED)
    assert one.states()[shard(0)].checkpoint == SequenceNumber(first[-1])
    one.count_calls()
    for _ in range(20):
        one.clock.advance(3_600)
        assert next_plan(coordinator, plan) == plan
    assert one.fake.faults.struck == []
    resume(one)
    assert one_batch(one, coordinator, plan)[1] == second


def test_a_job_that_is_paused_before_its_first_start_pins_it(one: SimulatedJob) -> None:
    """What arrives after the start, during the pause, is read; what was there before is not."""
    pause(one)
    one.put(3)
    one.clock.advance(10)
    coordinator = one.coordinator(starting_position="LATEST")
    assert next_plan(coordinator) == ""
    pin = one.store().identity.read_start()
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
    begun_s = one.clock.monotonic_s()
    assert next_plan(coordinator, plan) == plan
    assert next_plan(coordinator, plan) == plan
    assert one.clock.monotonic_s() == begun_s
    assert pointer(one) == PlanPointer(plan, PlanStatus.SETTLED)
    (said,) = (said for said in caplog.messages if "is paused" in said)
    assert "by ann on host-a since 1970-01-01T00:00:00.000Z ('deploy')" in said
    assert "`kinesis-spout resume`" in said
    newest = one.store().runs.read()[None].newest
    assert newest is not None
    assert newest.end is not None
    assert newest.end.kind == DONE
    assert newest.end.says == "the application was paused, so it did not read all"
    resume(one)
    next_run = one.coordinator()
    coordinator.close()
    next_run.prepare_available_now()
    assert found + read_all(one, next_run, plan)[1] == put


def test_a_paused_job_keeps_its_ownership_over_a_lost_session(one: SimulatedJob) -> None:
    """Though it writes nothing else. A process that took over is noticed."""
    store, tree = counting_store(one.backend, application=APPLICATION, stream=STREAM)
    coordinator = one.coordinator(store=store)
    pause(one)
    next_plan(coordinator)
    one.backend.expire(tree.session_id())
    assert one.store().ownership.holders() == {}
    one.clock.advance(KEPT_S)
    next_plan(coordinator)
    assert one.store().ownership.holders()
    one.backend.expire(tree.session_id())
    with closing(one.store()) as other:
        other.ownership.acquire(this_process(0), timeout_s=0)
        one.clock.advance(KEPT_S)
        with pytest.raises(StaleOwnerError):
            next_plan(coordinator)
