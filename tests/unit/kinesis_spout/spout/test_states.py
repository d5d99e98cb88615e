"""The standalone spout: commits, restarts, resharding, several tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.spout.kinesis_spout import SpoutClosedError
from kinesis_spout.testing import error
from state.errors import StaleOwnerError
from state.memory_store import MemoryTree
from state.process import this_process
from state.znodes.topics import StoreTopics
from tests.simulation.store_outage import OutageTree, StoreOutage
from tests.support.simulated.simulated_job import (
    APPLICATION,
    STREAM,
    SimulatedJob,
    shard,
    simulated,
)
from tests.support.spout import spout_world
from tests.support.spout.spout_world import SpoutUnderTest, drain
from tests.support.spout.stepped_spout import SteppedSpout, emitted
from tests.support.state.breaking_tree import breaking_store
from tests.support.state.interposed_tree import interposed

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import SpoutEmission
    from state.memory_store import MemoryStateStore


# states -------------------------------------------------------------------------------------------
def test_a_retry_of_a_clock_that_was_hours_ahead_comes_after_its_own_delay(
    one: SimulatedJob,
) -> None:
    one.clock.advance(6 * 3_600.0)
    one.put(1)
    spout = SteppedSpout(one)
    spout.fetch()
    spout.drain(ack=False)[0].fail("once")
    spout.coordinate()
    spout.crash()
    one.clock._passed_s -= 6 * 3_600.0
    again = SteppedSpout(one)
    again.after(2.0).fetch()
    again.step("retries")
    assert [emission.attempt for emission in again.drain()] == [2]


def test_an_idle_shard_is_not_written_at_every_commit() -> None:
    """A later time at the tip is stored at long intervals only. With many shards it would be most
    of all writes.
    """
    under_test = SpoutUnderTest(shards=3)
    under_test.put(3)
    store, tree = breaking_store(
        under_test.backend, application=spout_world.APPLICATION, stream=spout_world.STREAM
    )
    with under_test.fresh(store=store) as spout:
        for emission in drain(spout, under_test.loops):
            emission.ack()
        under_test.loops.take(
            "commit", "coordinate", "fetch", "fetch", "fetch", "commit", "coordinate"
        )
        tree.written.clear()
        for _ in range(10):
            under_test.clock.advance(1)
            under_test.loops.take("fetch", "fetch", "fetch", "commit", "coordinate")
        assert tree.written == []
        under_test.clock.advance(3600)
        under_test.loops.take("fetch", "fetch", "fetch", "commit", "coordinate")
        assert tree.written != []


def test_a_failed_commit_is_repeated_later(one: SimulatedJob) -> None:
    one.put(3)
    store, tree = breaking_store(one.backend, application=APPLICATION, stream=STREAM)
    spout = SteppedSpout(one, store=store)
    spout.fetch()
    last = spout.drain()[-1]
    tree.break_at(0, after=False)
    spout.coordinate()
    assert one.states()[shard(0)].checkpoint is None
    assert spout.spout.next_tuple() is None, "the spout goes on"
    tree.break_at(1_000_000, after=False)
    spout.coordinate()
    assert one.states()[shard(0)].checkpoint_text == last.sequence_number


def test_an_outcome_during_a_commit_is_stored_by_the_next(one: SimulatedJob) -> None:
    """The state that is being written does not have it."""
    one.put(2)
    store, tree = interposed(one.store())
    spout = SteppedSpout(one, store=store)
    spout.fetch()
    first, second = spout.drain(ack=False)
    first.ack()
    tree.before_write("state", second.ack)
    for acked in (first, second):
        spout.coordinate()
        assert one.states()[shard(0)].checkpoint_text == acked.sequence_number


def test_a_shard_is_released_although_the_answer_to_its_last_commit_was_lost() -> None:
    """The state is stored as finished then, and later commits have nothing to change."""
    under_test = SpoutUnderTest()
    under_test.put(1)
    store, tree = breaking_store(
        under_test.backend, application=spout_world.APPLICATION, stream=spout_world.STREAM
    )
    with under_test.fresh(store=store) as spout:
        parent = under_test.fake.shards(spout_world.STREAM)[0].shard_id
        under_test.fake.split(spout_world.STREAM, parent)
        under_test.clock.advance(10)
        (emission,) = drain(spout, under_test.loops)
        emission.ack()
        tree.break_at(0, after=True)
        under_test.loops.take("commit", "coordinate")
        assert under_test.states()[parent].finished
        tree._writes_left = None
        under_test.loops.take("commit", "coordinate", "commit", "coordinate")
        assert parent not in spout.metrics().shards
        assert len(spout.metrics().shards) == 2


@pytest.mark.parametrize("calls_before_the_outage", range(6))
def test_a_store_outage_during_the_reload_after_a_conflict_does_not_stop_the_spout(
    calls_before_the_outage: int,
) -> None:
    """A commit was written but its answer was lost, so the next one is a conflict; and the states
    cannot be loaded yet.
    """
    under_test = SpoutUnderTest()
    under_test.put(2)
    outage = StoreOutage()
    tree = OutageTree(MemoryTree(under_test.backend), outage)
    store = StoreTopics(tree, under_test.store().paths, reset_command="reset")
    with under_test.fresh(store=store) as spout:
        first, second = drain(spout, under_test.loops)
        first.ack()
        outage.skipped, outage.left, outage.lands = 1, 1, True
        under_test.loops.take("commit", "coordinate")
        outage.skipped, outage.left = calls_before_the_outage, 5
        second.ack()
        under_test.loops.take("commit", "coordinate", "commit", "coordinate")
        assert spout.next_tuple() is None
        outage.left = 0
    assert [state.checkpoint_text for state in under_test.states().values()] == [
        second.sequence_number
    ]


def test_closing_commits(one: SimulatedJob) -> None:
    one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    last = spout.drain()[-1]
    spout.spout.close()
    spout.spout.close()
    assert one.states()[shard(0)].checkpoint_text == last.sequence_number
    with pytest.raises(SpoutClosedError):
        spout.spout.next_tuple()


def test_an_outcome_after_the_close_does_not_count(one: SimulatedJob) -> None:
    """It could not be stored any more. The record comes again."""
    spout, (first, second) = emitted(one, 2)
    spout.spout.close()
    assert not first.ack()
    assert not second.fail("late")
    again = SteppedSpout(one)
    again.fetch()
    assert len(again.drain()) == 2


@pytest.mark.parametrize("is_held", [True, False], ids=["in memory", "fetched later"])
def test_a_process_that_was_frozen_emits_nothing_of_its_successors(
    one: SimulatedJob, *, is_held: bool
) -> None:
    """Its session has expired meanwhile. It says that what it has delivered may come again there,
    and stops. If nobody has taken over, it goes on.
    """
    one.put(3)
    spout = SteppedSpout(one)
    spout.fetch()
    first = spout.spout.next_tuple()
    assert first is not None
    for is_taken_over in (False, True):
        cast("MemoryStateStore", spout.services.store).lose_session()
        one.clock.advance(60)
        if is_taken_over:
            other = one.store()
            other.ownership.acquire(this_process(0), timeout_s=0)
        if not is_held:
            one.put(1)
            spout.fetch()
        if not is_taken_over:
            assert spout.spout.next_tuple() is not None
    with pytest.raises(StaleOwnerError, match=r"has taken over .* also records that it has deliv"):
        spout.spout.next_tuple()
    with pytest.raises(StaleOwnerError):
        spout.spout.next_tuple()
    other.close()


def test_a_process_that_was_frozen_goes_on_while_the_store_does_not_answer(
    one: SimulatedJob,
) -> None:
    one.put(2)
    spout = SteppedSpout(one)
    spout.fetch()
    assert spout.spout.next_tuple() is not None
    one.backend.set_unavailable(True)
    one.clock.advance(60)
    assert spout.spout.next_tuple() is not None
    one.backend.set_unavailable(False)


# tasks --------------------------------------------------------------------------------------------
def test_tasks_share_the_shards_over_a_reshard() -> None:
    with simulated(shards=4) as job:
        expected = job.put(40)
        tasks = [SteppedSpout(job, task_index=index, total_tasks=2) for index in (0, 1)]
        job.fake.split(STREAM, shard(1))
        job.fake.merge(STREAM, shard(2), shard(3))
        expected += job.put(40)
        found: list[SpoutEmission] = []
        for _ in range(12):
            for task in tasks:
                found += task.pump(1)
            job.clock.advance(2.1)
        assert sorted(int(emission.sequence_number) for emission in found) == sorted(expected)
        ours = [
            {emission.shard_id for emission in found if int(emission.shard_id[-3:]) % 2 == index}
            for index in (0, 1)
        ]
        assert set(tasks[0].spout.metrics().shards) <= ours[0] | {shard(4), shard(6)}
        with pytest.raises(Exception, match=r"of 3|3 tasks|total"):
            SteppedSpout(job, task_index=0, total_tasks=3)


# shards that are gone -----------------------------------------------------------------------------
def restarted_with_a_retry(job: SimulatedJob, **changes: Any) -> SteppedSpout:
    """A spout that has to read record 1 again."""
    spout, (first, second, third) = emitted(job, 3)
    second.fail("once")
    first.ack()
    third.ack()
    spout.coordinate()
    spout.crash()
    return SteppedSpout(job, **changes)


def test_a_single_false_answer_that_a_shard_is_not_there_writes_no_letter(
    one: SimulatedJob,
) -> None:
    spout = restarted_with_a_retry(one)
    unknown = error("ResourceNotFoundException", f"Shard {shard(0)} does not exist")
    one.fake.faults.add(unknown, operation="GetShardIterator", times=1)
    one.count_calls()
    for _ in range(20):
        spout.after(0.5).step("retries")
        spout.step("letters")
    assert (spout.letters, one.calls("GetShardIterator")) == ([], 1)
    for _ in range(3):
        spout.after(1.0).step("retries")
        spout.coordinate()
    (again,) = spout.drain()
    assert (again.data.decode(), again.attempt, spout.letters) == ("record 1", 2, [])


def test_retries_of_a_shard_that_two_listings_leave_out_are_letters_without_a_payload(
    one: SimulatedJob,
) -> None:
    spout = restarted_with_a_retry(one, shard_refresh_interval_s=30.0, fail_on_data_loss=False)
    spout.pump()
    one.fake.split(STREAM, shard(0))
    spout.pump()
    spout.after(26 * 3_600)
    gone_s = one.clock.monotonic_s()
    while not spout.letters:
        spout.after(1.0).step("retries")
        spout.coordinate()
        spout.step("letters")
        assert one.clock.monotonic_s() - gone_s < 60
    assert one.clock.monotonic_s() - gone_s >= 30
    (letter,) = spout.letters
    assert (letter.shard_id, letter.data, letter.attempts) == (shard(0), None, 1)
