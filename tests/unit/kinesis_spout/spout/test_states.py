"""The standalone spout: commits, restarts, resharding, several tasks, pauses, records that expire,
and the plan that a Spark job of the same application left open.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.config import ReadRate
from kinesis_spout.errors import DataLossError
from kinesis_spout.reading.pacing import ShardPacers
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutClosedError
from kinesis_spout.testing import slow
from kinesis_spout.testing.service import requests
from state.errors import StaleOwnerError
from state.plan import PlanPointer, PlanStatus
from state.position import TRIM_HORIZON, Position
from state.process import this_process
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.identity import Pause, StartPin
from state.store.shard_states import StateChange
from tests.support.simulated.simulated_driver import next_plan, pointer, run
from tests.support.simulated.simulated_job import (
    APPLICATION,
    STREAM,
    SimulatedJob,
    shard,
    simulated,
)
from tests.support.spout.spout_world import (
    SpoutUnderTest,
    StepLoop,
    StepLoops,
    SteppedSpout,
    drain,
    emitted,
    pass_time,
    payloads,
    reading,
    spout_config,
    taken,
)
from tests.support.state.shard_values import waiting
from tests.support.state.state_stores import OWNER
from tests.support.state.trees import breaking_store, interposed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.spout.emission import SpoutEmission
    from kinesis_spout.threads import Step
    from state.memory_store import MemoryStateStore
    from tests.support.simulated.simulated_job import SimulatedJob


def test_a_failed_commit_is_repeated_later(one: SimulatedJob) -> None:
    store, tree = breaking_store(one.backend, application=APPLICATION, stream=STREAM)
    spout, (last,) = emitted(one, store=store)
    last.ack()
    tree.break_at(0, after=False)
    spout.coordinate()
    assert one.states()[shard(0)].checkpoint is None
    assert spout.spout.next_tuple() is None, "the spout goes on"
    tree.break_at(1_000_000, after=False)
    spout.coordinate()
    assert one.states()[shard(0)].checkpoint_text == last.sequence_number


def test_an_outcome_during_a_commit_is_stored_by_the_next(one: SimulatedJob) -> None:
    """The state that is being written does not have it."""
    store, tree = interposed(one.store())
    spout, (first, second) = emitted(one, 2, store=store)
    first.ack()
    tree.before_write("state", second.ack)
    for acked in (first, second):
        spout.coordinate()
        assert one.states()[shard(0)].checkpoint_text == acked.sequence_number


def test_closing_commits_and_an_outcome_after_it_does_not_count(one: SimulatedJob) -> None:
    """It could not be stored any more. The record comes again."""
    spout, (acked, first, second) = emitted(one, 3)
    acked.ack()
    for _ in range(2):
        spout.spout.close()
    assert one.states()[shard(0)].checkpoint_text == acked.sequence_number
    with pytest.raises(SpoutClosedError):
        spout.spout.next_tuple()
    assert not first.ack()
    assert not second.extend(5)
    assert not second.fail("late")
    again = reading(one)
    assert len(again.drain()) == 2


def test_a_process_that_was_frozen_emits_nothing_of_its_successors(one: SimulatedJob) -> None:
    """Its session has expired meanwhile. It says that what it has delivered may come again there,
    and stops. If nobody has taken over, it goes on.
    """
    one.put(4)
    spout = reading(one)
    assert spout.spout.next_tuple() is not None
    one.backend.unavailable = True
    one.clock.advance(60)
    assert spout.spout.next_tuple() is not None, "the store does not answer"
    one.backend.unavailable = False
    for is_taken_over in (False, True):
        cast("MemoryStateStore", spout.services.store).lose_session()
        one.clock.advance(60)
        if is_taken_over:
            other = one.store()
            other.ownership.acquire(this_process(0), timeout_s=0)
        if not is_taken_over:
            assert spout.spout.next_tuple() is not None
    with pytest.raises(
        StaleOwnerError,
        match=r"has taken over .* redelivers the records that have no stored outcome",
    ):
        spout.spout.next_tuple()
    with pytest.raises(StaleOwnerError):
        spout.spout.next_tuple()
    other.close()


def test_tasks_share_the_shards_over_a_reshard() -> None:
    with simulated(shards=4) as job:
        expected = job.put(40)
        tasks = [SteppedSpout(job, task_index=index, total_tasks=2) for index in (0, 1)]
        job.fake.split(STREAM, shard(1))
        job.fake.merge(STREAM, shard(2), shard(3))
        expected += job.put(40)
        found: list[SpoutEmission] = []
        for _ in range(12):
            found += [emission for task in tasks for emission in task.pump(1)]
            job.clock.advance(2.1)
        assert sorted(int(emission.sequence_number) for emission in found) == sorted(expected)
        for index, task in enumerate(tasks):
            assert {int(one[-3:]) % 2 for one in task.spout.metrics().shards} == {index}
        with pytest.raises(Exception, match=r"of 3|3 tasks|total"):
            SteppedSpout(job, task_index=0, total_tasks=3)


def test_a_shard_that_the_leader_has_given_up_is_not_stored_as_another_task_has_read_it(
    job: SimulatedJob,
) -> None:
    """Its state has ended meanwhile, so the task releases the shard, and loses no other outcome."""
    job.put(2, key=job.key_of(1))
    leader, other = (
        SteppedSpout(job, task_index=index, total_tasks=2, fail_on_data_loss=False)
        for index in (0, 1)
    )
    other.fetch()
    acked, late = other.drain(ack=False)
    acked.ack()
    other.coordinate()
    with job.fake.lock:
        del job.fake.stream(STREAM).shards[shard(1)]
    while not job.states()[shard(1)].end_was_read:
        leader.after(10.0).coordinate()
        assert job.clock.monotonic_s() < 300
    late.ack()
    other.coordinate()
    assert job.states()[shard(1)].end_was_read
    assert shard(1) not in other.spout.metrics().shards
    assert other.spout.next_tuple() is None, "the spout goes on"


def test_a_task_of_named_shards_opens_before_the_leader_has_stored_their_first_states(
    job: SimulatedJob,
) -> None:
    """Tasks that are started together. It reads them as soon as they have states."""
    put = job.put(1, key=job.key_of(1))
    store, tree = interposed(job.store())
    others: list[SteppedSpout] = []

    def open_other() -> None:
        others.append(SteppedSpout(job, task_index=1, total_tasks=2, shards=(shard(1),)))

    tree.before_write(f"/{shard(0)}/state", open_other)
    SteppedSpout(job, store=store, task_index=0, total_tasks=2)
    (other,) = others
    assert [int(one.sequence_number) for one in other.after(10.0).pump()] == put


def test_a_spout_that_cannot_start_a_thread_stays_closed() -> None:
    """And gives up the ownership, so that it can be opened again."""
    under_test = SpoutUnderTest()
    put = under_test.put(1)
    loops = StepLoops()

    def start_two(name: str, step: Step, on_error: Callable[[Exception], None]) -> StepLoop:
        if len(loops.by_name) == 2:
            raise RuntimeError("can't start new thread")
        return loops(name, step, on_error)

    spout = under_test.fresh(start_loop=start_two)
    with pytest.raises(RuntimeError, match="new thread"):
        spout.open()
    assert not spout.is_open
    assert all(loop.ended for loop in loops.by_name.values())
    with under_test.fresh() as again:
        (emission,) = pass_time(under_test, again, 1)
        assert f"{emission.shard_id}:{emission.sequence_number}" == put[0]


def left_open(job: SimulatedJob) -> str:
    """A Spark job whose batch of three records was read and has not ended: its plan stays open."""
    job.put(3)
    driver = job.coordinator()
    plan = next_plan(driver)
    run(job, driver, plan)
    driver.close()
    return plan


def test_two_tasks_that_close_the_open_plan_at_once_both_open(job: SimulatedJob) -> None:
    """The second finds the plan changed, looks again, and goes on."""
    plan = left_open(job)
    store, tree = interposed(job.store())
    others: list[SteppedSpout] = []
    tree.before_write(
        "/plan", lambda: others.append(SteppedSpout(job, task_index=0, total_tasks=2))
    )
    both = [SteppedSpout(job, store=store, task_index=1, total_tasks=2), *others]
    assert len(both) == 2
    assert pointer(job) == PlanPointer(plan, PlanStatus.CLOSED)
    assert sum(len(task.pump()) for task in both) == 3


@pytest.mark.parametrize("status", PlanStatus)
def test_a_spout_closes_a_plan_that_a_spark_job_left_open_and_reads_its_records_again(
    one: SimulatedJob, status: PlanStatus
) -> None:
    """One that is closed or settled stays as it is."""
    plan = left_open(one)
    store = one.store()
    store.ownership.acquire(OWNER, timeout_s=0)
    if status is not PlanStatus.OPEN:
        store.plans.close(plan)
    if status is PlanStatus.SETTLED:
        store.plans.mark_settled(plan)
    store.ownership.release()
    spout = SteppedSpout(one)
    closed = PlanStatus.CLOSED if status is PlanStatus.OPEN else status
    assert pointer(one) == PlanPointer(plan, closed)
    assert len(spout.pump()) == 3


HOUR_S = 3_600.0
MOST_ROUNDS = 100
SLOW: dict[str, Any] = {"prefetch_records": 1, "max_pending": 1}


def put_a_day(job: SimulatedJob) -> None:
    """Twelve records, two hours apart. The oldest one expires in an hour."""
    for number in range(12):
        job.put(1, key=job.key_of(0), data=b"record %d" % number)
        job.clock.advance(2 * HOUR_S)
    job.clock.advance(-HOUR_S)


def read_some(spout: SteppedSpout, count: int) -> list[str]:
    """Read, ack and commit one record after the other, if there are so many."""
    found: list[SpoutEmission] = []
    for _ in range(MOST_ROUNDS):
        if len(found) == count:
            break
        spout.fetch()
        if (emission := spout.spout.next_tuple()) is not None:
            found.append(emission)
            emission.ack()
        spout.coordinate()
    return payloads(found)


def losses(job: SimulatedJob) -> list[str]:
    """The stored losses of records after which a run continued."""
    with closing(job.store()) as store:
        return [loss.says for log in store.runs.read().values() for loss in log.losses]


@pytest.mark.parametrize("end", [lambda spout: spout.spout.close(), SteppedSpout.crash])
def test_a_backlog_that_expires_soon_after_the_first_start_is_a_loss(
    one: SimulatedJob, end: Callable[[SteppedSpout], None]
) -> None:
    """While no spout runs, the records after those that were read expire."""
    put_a_day(one)
    spout = SteppedSpout(one, **SLOW)
    assert read_some(spout, 2) == ["record 0", "record 1"]
    end(spout)
    one.clock.advance(6 * HOUR_S)
    for _ in range(2):
        with pytest.raises(DataLossError, match=rf"retention of 24 h: {shard(0)}"):
            SteppedSpout(one)
    assert losses(one) == []
    SteppedSpout(one, fail_on_data_loss=False)
    (said,) = losses(one)
    assert said.startswith(f"records may be lost: shards of stream {STREAM} have not been read")


def test_a_closed_shard_that_expired_unread_is_reported_before_it_is_proven_gone(
    one: SimulatedJob,
) -> None:
    """Its children wait for it, so a short run would read nothing and tell nobody."""
    reading(one).spout.close()
    one.fake.split(STREAM, shard(0))
    one.clock.advance(30 * HOUR_S)
    with pytest.raises(DataLossError, match=rf"retention of 24 h: {shard(0)}"):
        SteppedSpout(one)
    one.put(1)
    spout = SteppedSpout(one, fail_on_data_loss=False)
    found = [emission for _ in range(10) for emission in spout.after(10.0).pump(1)]
    assert len(found) == len(losses(one)) == 1


def killed_after_a_commit(spout: SteppedSpout) -> None:
    """A page comes between the commit and the next listing, as it nearly always does."""
    spout.step("commit")
    spout.fetch()
    spout.step("coordinate")
    spout.crash()


@pytest.mark.parametrize("end", [lambda spout: spout.spout.close(), killed_after_a_commit])
def test_a_spout_that_runs_once_a_day_stores_that_its_idle_shard_was_read(
    one: SimulatedJob, end: Callable[[SteppedSpout], None]
) -> None:
    """It ends before its second listing. Otherwise the next run but one would report a loss. A
    longer retention may be lowered again.
    """
    for hours in (24, 24, 8_760, 24):
        one.fake.stream(STREAM).retention_hours = hours
        spout = SteppedSpout(one)
        spout.fetch()
        assert spout.drain() == []
        end(spout)
        one.clock.advance(20 * HOUR_S)


def test_an_orderly_end_stores_the_last_tip_however_short_ago_the_tip_before_it_was(
    one: SimulatedJob,
) -> None:
    """The next start may come after most of the retention."""
    for hours in (0.9, 23.9, 0):
        spout = SteppedSpout(one)
        spout.fetch()
        spout.spout.close()
        one.clock.advance(hours * HOUR_S)


@pytest.mark.parametrize("hours", [24, 168])
def test_a_spout_that_is_overtaken_by_the_retention_stops_before_the_gap(
    one: SimulatedJob, hours: int
) -> None:
    """Its program takes too long for a record. The state stays before the gap, so the next start
    finds it, too. A longer retention then brings nothing back.
    """
    put_a_day(one)
    spout = SteppedSpout(one, **SLOW)
    read_some(spout, 2)
    one.clock.advance(6 * HOUR_S)
    one.fake.increase_stream_retention_period(
        requests.ChangeRetention(stream_name=STREAM, retention_period_hours=hours)
    )
    spout.coordinate()
    with pytest.raises(DataLossError, match="read after some of their records had expired"):
        read_some(spout, 10)
    spout.crash()
    with pytest.raises(DataLossError, match=rf"{shard(0)}"):
        SteppedSpout(one)


def test_a_spout_that_is_overtaken_by_a_lower_retention_reports_the_gap(
    one: SimulatedJob,
) -> None:
    """It learns of that at its next listing, after it has read on behind the gap."""
    stream = one.fake.stream(STREAM)
    stream.retention_hours = 168
    put_a_day(one)
    spout = SteppedSpout(one, **SLOW).after(10 * HOUR_S)
    read_some(spout, 2)
    stream.retention_hours = 24
    assert "record 11" in read_some(spout, 12)
    spout.after(31.0).coordinate()
    with pytest.raises(DataLossError, match=rf"retention of 24 h: {shard(0)}"):
        spout.drain()


def test_only_a_gap_between_two_reads_is_a_loss_of_a_shard_whose_last_record_nobody_takes(
    one: SimulatedJob,
) -> None:
    """Its program sleeps for days, and the empty pages behind the record are not kept."""
    spout = SteppedSpout(one)
    for gap_h in (0.5, 30):
        one.put(1)
        for _ in range(2 * 48):
            spout.fetch()
            one.clock.advance(0.5 * HOUR_S)
        one.clock.advance((gap_h - 0.5) * HOUR_S)
        one.put(1)
        if gap_h < 24:
            assert len(spout.pump()) == 2
    with pytest.raises(DataLossError, match="read after some of their records had expired"):
        spout.pump()


PIN = StartPin(time_ms=0, requested="TRIM_HORIZON", position=TRIM_HORIZON, shards=())


def test_retries_that_are_far_apart_go_out_as_they_are_found_and_delay_no_other_shard() -> None:
    """After a restart: each takes a read of its own, and a shard allows two of these a second."""
    under_test = SpoutUnderTest(shards=2)
    numbers: dict[str, list[int]] = {shard(0): [], shard(1): []}
    for put in under_test.put(100_000, data=b""):
        shard_id, _, number = put.partition(":")
        numbers[shard_id].append(int(number))
    far_apart = {shard(0): numbers[shard(0)][:40_000:4_000], shard(1): numbers[shard(1)][:1]}
    with closing(under_test.store()) as store:
        store.ownership.acquire(OWNER, timeout_s=0)
        store.identity.pin_start(PIN)
        store.shard_states.save(
            [
                StateChange(
                    before=None,
                    after=ShardState(
                        shard_id=shard_id,
                        read_position=Position.after(SequenceNumber(numbers[shard_id][-1])),
                        unresolved=tuple(map(waiting, failed)),
                    ),
                )
                for shard_id, failed in far_apart.items()
            ]
        )
    services = under_test.services(pacers=ShardPacers(ReadRate()))
    came: dict[str, list[float]] = {shard(0): [], shard(1): []}
    with KinesisSpout(spout_config(), services=services) as spout:
        begun_s = under_test.clock.monotonic_s()
        while len(came[shard(0)]) < len(far_apart[shard(0)]):
            under_test.loops.take("retries")
            for emission in taken(spout, acks=True):
                came[emission.shard_id].append(under_test.clock.monotonic_s() - begun_s)
            under_test.clock.advance(0.2)
            assert under_test.clock.monotonic_s() < begun_s + 30
    assert max(came[shard(0)][0], came[shard(1)][0]) < 2


PAUSE = Pause(by="ann on host-a", since_ms=0)
DAY_S = 86_400.0


@contextmanager
def paused(under_test: SpoutUnderTest) -> Iterator[None]:
    """A pause, as another process begins and ends it."""
    with closing(under_test.store()) as store:
        store.pause.begin(PAUSE)
    yield
    with closing(under_test.store()) as store:
        store.pause.end()


def test_a_paused_spout_commits_and_reads_nothing() -> None:
    """Neither new records nor retries that are due, and nothing is asked of the service. Then it
    goes on where it was.
    """
    under_test = SpoutUnderTest()
    under_test.put(4)
    retry = RetryPolicy(retry_limit=3, first_delay_ms=500, jitter=0)
    with under_test.fresh(retry=retry, prefetch_records=2) as spout:
        acked, failed, *rest = pass_time(under_test, spout, 3)
        assert len(rest) == 2
        under_test.put(3)
        with paused(under_test):
            under_test.loops.take("coordinate")
            assert spout.is_paused
            assert acked.ack()
            assert failed.fail("no")
            assert [one.ack() for one in rest] == [True, True]
            under_test.fake.faults.add(slow(0.0), times=None)
            assert pass_time(under_test, spout, 100) == []
            assert under_test.fake.faults.struck == []
            (state,) = under_test.states().values()
            assert state.checkpoint_text == acked.sequence_number
            assert [one.attempts for one in state.unresolved] == [1]
        came = pass_time(under_test, spout, 5)
        assert [one.attempt for one in came] == [2, 1, 1, 1]
        assert not spout.is_paused


def test_records_that_were_read_before_a_pause_come_after_it() -> None:
    """Also those that nothing else would hold up."""
    under_test = SpoutUnderTest()
    put = under_test.put(5)
    with under_test.fresh() as spout:
        under_test.loops.take("fetch")
        came = [spout.next_tuple() for _ in range(2)]
        with paused(under_test):
            under_test.loops.take("coordinate")
            assert spout.next_tuple() is None
        under_test.loops.take("coordinate")
        came += drain(spout, under_test.loops)
        assert [f"{one.shard_id}:{one.sequence_number}" for one in came if one] == put


def test_a_pause_beyond_the_retention_stops_the_spout_with_the_loss() -> None:
    """When it ends, and before a record comes: during the pause the spout stays."""
    under_test = SpoutUnderTest()
    under_test.put(2)
    with under_test.fresh() as spout:
        for one in pass_time(under_test, spout, 5):
            one.ack()
        with paused(under_test):
            pass_time(under_test, spout, 5)
            under_test.put(2)
            pass_time(under_test, spout, 4 * DAY_S, step_s=DAY_S)
            under_test.put(2)
        with pytest.raises(DataLossError, match="not been read for longer than the retention"):
            pass_time(under_test, spout, 5)


@pytest.mark.parametrize("is_split", [False, True], ids=["it is listed", "it is gone"])
def test_what_expires_in_a_pause_is_a_loss_of_its_own_after_one_that_was_reported(
    *, is_split: bool
) -> None:
    """The shard was not read between the two."""
    under_test = SpoutUnderTest()
    with under_test.fresh() as spout:
        pass_time(under_test, spout, 5)
    under_test.clock.advance(2 * DAY_S)
    with under_test.fresh(fail_on_data_loss=False) as spout:
        with paused(under_test):
            under_test.loops.take("coordinate")
            under_test.put(2)
            if is_split:
                under_test.fake.split(STREAM, shard(0))
            pass_time(under_test, spout, 4 * DAY_S, step_s=DAY_S)
        under_test.loops.take("coordinate", "fetch")  # at the same time
        pass_time(under_test, spout, 100, step_s=10)
        said = [one.says for one in under_test.run().losses if f"{shard(0)} (" in one.says]
    assert len(said) == 2
