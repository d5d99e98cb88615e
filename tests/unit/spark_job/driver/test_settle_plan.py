"""Settling has one order of writes, can be repeated, and changes only what was read."""

from __future__ import annotations

from contextlib import closing

import pytest

from spark_job.driver.settle_plan import settle
from state.errors import PlanClosedError, StoreUnavailableError
from state.memory_store import MemoryBackend, MemoryStateStore
from state.plan import Plan, PlanStatus, ShardReadResult, ShardSlice, TaskPlan
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState
from state.state_store import StateChange
from state.task_log import TaskLog
from tests.support.state.breaking_tree import breaking_store
from tests.support.state.settled_plan import (
    CHILDREN,
    LOGS,
    OTHER,
    OWNER,
    PARENT,
    PLAN,
    UNREAD,
    backend_with_plan,
    opened,
    settled,
    states_in,
)


def test_the_states_hold_what_was_read_and_the_plan_is_settled() -> None:
    backend = backend_with_plan(0, 1)
    result = settled(backend)
    states = states_in(MemoryStateStore(backend))
    assert {shard: stored.state for shard, stored in result.states.items()} == states
    assert [end.shard_id for end in result.ends] == [PARENT, OTHER, UNREAD]
    assert (states[PARENT].lifecycle, states[PARENT].read_position) == (
        Lifecycle.FINISHED,
        SHARD_END,
    )
    assert (states[OTHER].checkpoint, states[OTHER].read_position) == (
        SequenceNumber(29),
        Position.after(SequenceNumber(29)),
    )
    pointer = MemoryStateStore(backend).read_pointer()
    assert pointer is not None
    assert (pointer.id, pointer.status) == (PLAN, PlanStatus.SETTLED)


def test_children_start_at_their_oldest_record_with_their_parents_and_tracked_since() -> None:
    states = states_in(_after(backend_with_plan(0, 1)))
    for child in CHILDREN:
        assert states[child] == ShardState(
            shard_id=child, read_position=TRIM_HORIZON, parents=(PARENT,), verified_until_ms=700
        )


def _after(backend: MemoryBackend) -> MemoryStateStore:
    settled(backend)
    return MemoryStateStore(backend)


def test_a_task_that_published_nothing_leaves_its_shards_as_they_were() -> None:
    states = states_in(_after(backend_with_plan(0)))
    assert states[UNREAD] == ShardState(shard_id=UNREAD, read_position=TRIM_HORIZON)
    assert states[OTHER].checkpoint == SequenceNumber(29)


def test_a_plan_without_a_log_is_settled_without_a_change() -> None:
    backend = backend_with_plan()
    before = MemoryStateStore(backend).load_states()
    assert settled(backend).ends == ()
    assert MemoryStateStore(backend).load_states() == before


def test_nothing_can_be_published_once_settling_has_begun() -> None:
    backend = backend_with_plan(0)
    store, tree = breaking_store(backend)
    store.acquire(OWNER, timeout_s=1)
    tree.break_at(1, after=False)
    with pytest.raises(StoreUnavailableError):
        settle(store, PLAN, states_per_write=500)
    with pytest.raises(PlanClosedError):
        MemoryStateStore(backend).append_log(PLAN, 1, LOGS[1], None)


def test_it_closes_the_plan_then_creates_children_then_ends_parents_then_marks_it_settled() -> None:
    store, tree = breaking_store(backend_with_plan(0, 1))
    store.acquire(OWNER, timeout_s=1)
    tree.written.clear()
    settle(store, PLAN, states_per_write=1)
    base = "/kinesis-spout/app/stream"
    assert tree.written == [
        [f"{base}/batches/{PLAN}", f"{base}/plan"],
        *([f"{base}/{child}", f"{base}/{child}/state"] for child in CHILDREN),
        *([f"{base}/{shard}/state"] for shard in (PARENT, OTHER, UNREAD)),
        [f"{base}/plan"],
    ]


@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-the-write"])
@pytest.mark.parametrize(("states_per_write", "writes"), [(1, 7), (2, 5), (500, 3)])
def test_stopped_at_any_write_and_repeated_by_a_successor_it_gives_the_same_states(
    states_per_write: int, writes: int, *, after: bool
) -> None:
    """At no stop has a parent ended without states of its children."""
    wanted = states_in(_after(backend_with_plan(0, 1)))
    for write in range(writes):
        backend = backend_with_plan(0, 1)
        store, tree = breaking_store(backend)
        store.acquire(OWNER, timeout_s=1)
        tree.break_at(write, after=after)
        with pytest.raises(StoreUnavailableError):
            settle(store, PLAN, states_per_write=states_per_write)
        between = states_in(MemoryStateStore(backend))
        assert not between[PARENT].end_was_read or set(CHILDREN) <= set(between)
        store.close()
        settle(opened(backend), PLAN, states_per_write=states_per_write)
        assert states_in(MemoryStateStore(backend)) == wanted


def test_a_second_settling_changes_no_state_and_no_version() -> None:
    backend = backend_with_plan(0, 1)
    settled(backend)
    before = MemoryStateStore(backend).load_states()
    assert settled(backend).states == before
    assert MemoryStateStore(backend).load_states() == before


def test_the_end_of_a_shard_whose_state_was_removed_is_ignored() -> None:
    """As after a reset. Its children get no state here either: the shard list brings them."""
    gone = ShardReadResult(
        shard_id="shardId-9", first=SequenceNumber(1), last=SequenceNumber(2), count=2
    )
    store = opened(MemoryBackend())
    task = TaskPlan(
        shards=(ShardSlice(shard_id="shardId-9", position=TRIM_HORIZON, max_records=1),),
        max_bytes=1,
        fetch_time_ms=1,
        fetch_cap_ms=1,
    )
    store.create_plan(Plan(plan_id=PLAN, created_ms=1, tasks=(task,)))
    store.append_log(PLAN, 0, TaskLog(entries=(gone,), sealed=True), None)
    assert settle(store, PLAN, states_per_write=1).states == {}


def test_a_child_that_has_a_state_is_not_created_again() -> None:
    """The shard list may have shown it before the parent's end was read, and it may have been read
    since.
    """
    backend = backend_with_plan(0, 1)
    store = opened(backend)
    known = ShardState(
        shard_id=CHILDREN[0], read_position=Position.after(SequenceNumber(77)), parents=(PARENT,)
    )
    store.save_states([StateChange(before=None, after=known)])
    settle(store, PLAN, states_per_write=500)
    assert states_in(store)[CHILDREN[0]] == known


class _PublishedAtTheLastMoment(MemoryStateStore):
    """A task appends to its log just before the plan is closed."""

    def close_plan(self, plan_id: str) -> None:
        self.append_log(PLAN, 1, LOGS[1], None)
        super().close_plan(plan_id)


def test_what_is_appended_just_before_the_plan_is_closed_is_settled() -> None:
    """Settling reads the logs after it has closed the plan. Earlier ones may be incomplete, and
    rows would leave a task without being settled.
    """
    store = _PublishedAtTheLastMoment(backend_with_plan(0))
    with closing(store):
        store.acquire(OWNER, timeout_s=1)
        result = settle(store, PLAN, states_per_write=500)
    assert result.states[UNREAD].state.read_position == Position.after(SequenceNumber(39))


def test_a_log_that_was_not_sealed_is_settled_as_far_as_it_goes() -> None:
    """A consumer that takes only some rows, as `limit` does, cuts the task off. Nothing can be
    appended any more, so what is in the log is all that was read.
    """
    backend = backend_with_plan()
    store = MemoryStateStore(backend)
    cut = TaskLog(entries=LOGS[0].entries[:2])
    store.append_log(PLAN, 0, cut, None)
    states = states_in(_after(backend))
    assert (states[PARENT].checkpoint, states[PARENT].end_was_read) == (SequenceNumber(14), False)
    assert states[OTHER].checkpoint == SequenceNumber(29)
    assert set(states) == {PARENT, OTHER, UNREAD}


RESULTS_OF_FORMAT_1 = (
    (
        b'{"token":"one","shards":[{"shardId":"shardId-0","first":"10","last":"19","count":4,'
        b'"tipMs":700,"shardEnd":true,"children":[{"shardId":"shardId-3","parents":["shardId-0"]},'
        b'{"shardId":"shardId-4","parents":["shardId-0"]}]},{"shardId":"shardId-1","first":"20",'
        b'"last":"29","count":2,"lastArrivalMs":600}]}'
    ),
    b'{"token":"two","shards":[{"shardId":"shardId-2","first":"30","last":"39","count":5}]}',
)
"""What the version before logs wrote of the same reads as `LOGS`."""


def test_a_plan_whose_tasks_an_earlier_version_has_read_is_settled_as_before() -> None:
    """The job was upgraded between the read and the settling."""
    backend = backend_with_plan()
    for task, data in enumerate(RESULTS_OF_FORMAT_1):
        backend.put(f"/kinesis-spout/app/stream/batches/{PLAN}/{task}/end", data)
    assert states_in(_after(backend)) == states_in(_after(backend_with_plan(0, 1)))


def test_a_plan_is_settled_alike_however_its_logs_are_divided_into_entries() -> None:
    """Attempts with other pages divide the same records in another way."""
    backend = backend_with_plan()
    store = MemoryStateStore(backend)
    for task, log in enumerate(LOGS):
        store.append_log(PLAN, task, TaskLog(entries=log.folded().shards, sealed=True), None)
    assert states_in(_after(backend)) == states_in(_after(backend_with_plan(0, 1)))
