"""Settling can be stopped and repeated, and changes only what was read. A tracked batch is settled
by its report; without one, its records are delivered again.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from spark_job.driver.outcome_summary import OutcomeSummary
from spark_job.driver.settle_plan import Settled, settle
from state.errors import StoreUnavailableError
from state.memory_store import MemoryBackend, MemoryStateStore
from state.plan import ChildShard, Plan, PlanStatus, ShardReadResult, ShardSlice, TaskPlan
from state.position import TRIM_HORIZON, Position
from state.report import OutcomePolicy, PlanReport, ShardOutcome
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.ownership import OwnerInfo
from state.store.shard_states import StateChange
from state.task_log import TaskLog
from tests.support.state.trees import breaking_store

if TYPE_CHECKING:
    from state.znodes.topics import StoreTopics

PLAN = "3-ab"
OWNER = OwnerInfo(host="host", pid=1, since_ms=0)
PARENT, OTHER, UNREAD, CHILDREN = "shardId-0", "shardId-1", "shardId-2", ("shardId-3", "shardId-4")
LOGS = (
    TaskLog(
        entries=(
            ShardReadResult(
                shard_id=PARENT, first=SequenceNumber(10), last=SequenceNumber(14), count=3
            ),
            ShardReadResult(
                shard_id=OTHER,
                first=SequenceNumber(20),
                last=SequenceNumber(29),
                count=2,
                last_arrival_ms=600,
            ),
            ShardReadResult(
                shard_id=PARENT,
                first=SequenceNumber(16),
                last=SequenceNumber(19),
                count=1,
                at_shard_end=True,
                tip_ms=700,
                children=tuple(ChildShard(shard_id=child, parents=(PARENT,)) for child in CHILDREN),
            ),
        ),
        sealed=True,
    ),
    TaskLog(
        entries=(
            ShardReadResult(
                shard_id=UNREAD, first=SequenceNumber(30), last=SequenceNumber(39), count=5
            ),
        ),
        sealed=True,
    ),
)
FAILED = UnresolvedRecord(
    first=SequenceNumber(29), last=SequenceNumber(29), attempts=1, due_ms=9, reason="bad"
)
REPORT = PlanReport(
    shards=(ShardOutcome(shard_id=OTHER, unresolved=(FAILED,)),), failed=1, retried=1
)


def backend_with_plan(*published: int) -> MemoryBackend:
    """Three shards, an open plan of two tasks over them, and the logs of some of the tasks."""
    backend = MemoryBackend()
    store = opened(backend)
    store.shard_states.save(
        [
            StateChange(before=None, after=ShardState(shard_id=s, read_position=TRIM_HORIZON))
            for s in (PARENT, OTHER, UNREAD)
        ]
    )
    groups = ((PARENT, OTHER), (UNREAD,))
    tasks = tuple(
        TaskPlan(
            shards=tuple(
                ShardSlice(shard_id=one, position=TRIM_HORIZON, max_records=100) for one in group
            ),
            max_bytes=1,
            fetch_time_ms=1,
            fetch_cap_ms=1,
        )
        for group in groups
    )
    store.plans.create(Plan(plan_id=PLAN, created_ms=1, tasks=tasks))
    for task in published:
        store.plans.append_log(PLAN, task, LOGS[task], None)
    store.close()
    return backend


def opened(backend: MemoryBackend) -> MemoryStateStore:
    store = MemoryStateStore(backend)
    store.ownership.acquire(OWNER, timeout_s=1)
    return store


def states_in(store: StoreTopics) -> dict[str, ShardState]:
    return {shard: stored.state for shard, stored in store.shard_states.load().items()}


def settled(backend: MemoryBackend) -> Settled:
    """Settle the plan by a process that ends afterwards."""
    with closing(opened(backend)) as store:
        return settle(store.plans, store.shard_states, store.reports, PLAN)


def with_report(
    backend: MemoryBackend, report: PlanReport | None = REPORT, *, mark: bool = True
) -> MemoryBackend:
    """A report of the plan (None: one that was only opened) and the mark of an application that
    tracks its records.
    """
    with closing(MemoryStateStore(backend)) as store:
        if mark:
            store.reports.mark_tracked(OutcomePolicy())
        opened = store.reports.open(PLAN, "token")
        if report is not None:
            store.reports.finish(opened, report)
    return backend


def _after(backend: MemoryBackend) -> MemoryStateStore:
    settled(backend)
    return MemoryStateStore(backend)


@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-the-write"])
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize(("states_per_write", "writes"), [(1, 7), (2, 5), (500, 3)])
def test_stopped_at_any_write_and_repeated_by_a_successor_it_gives_the_same_states(
    states_per_write: int, writes: int, *, tracked: bool, after: bool
) -> None:
    """At no stop has a parent ended without states of its children."""

    def unsettled() -> MemoryBackend:
        return with_report(backend_with_plan(0, 1)) if tracked else backend_with_plan(0, 1)

    wanted = states_in(_after(unsettled()))
    for write in range(writes):
        backend = unsettled()
        store, tree = breaking_store(backend, states_per_write=states_per_write)
        store.ownership.acquire(OWNER, timeout_s=1)
        tree.break_at(write, after=after)
        with pytest.raises(StoreUnavailableError):
            settle(store.plans, store.shard_states, store.reports, PLAN)
        between = states_in(MemoryStateStore(backend))
        assert not between[PARENT].end_was_read or set(CHILDREN) <= set(between)
        store.close()
        again = opened(backend)
        settle(again.plans, again.shard_states, again.reports, PLAN)
        assert states_in(MemoryStateStore(backend)) == wanted


class _PublishedAtTheLastMoment(MemoryStateStore):
    """A task appends to its log just before the plan is closed."""

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__(backend)
        self._close, self.plans.close = self.plans.close, self._close_late  # type: ignore[method-assign]

    def _close_late(self, plan_id: str) -> None:
        self.plans.append_log(PLAN, 1, LOGS[1], None)
        self._close(plan_id)


def test_what_is_appended_just_before_the_plan_is_closed_is_settled() -> None:
    """Settling reads the logs after it has closed the plan. Earlier ones may be incomplete, and
    rows would leave a task without being settled.
    """
    store = _PublishedAtTheLastMoment(backend_with_plan(0))
    with closing(store):
        store.ownership.acquire(OWNER, timeout_s=1)
        result = settle(store.plans, store.shard_states, store.reports, PLAN)
    assert result.states[UNREAD].state.read_position == Position.after(SequenceNumber(39))


def test_a_log_that_was_not_sealed_is_settled_as_far_as_it_goes() -> None:
    """A consumer that takes only some rows, as `limit` does, cuts the task off. Nothing can be
    appended any more, so what is in the log is all that was read.
    """
    backend = backend_with_plan()
    store = MemoryStateStore(backend)
    cut = TaskLog(entries=LOGS[0].entries[:2])
    store.plans.append_log(PLAN, 0, cut, None)
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


@pytest.mark.parametrize("opened", [False, True], ids=["no-report", "open-report"])
def test_a_tracked_batch_without_a_done_report_changes_no_state(*, opened: bool) -> None:
    """All of it is delivered again. A shard's end is too, so its children are not created."""
    backend = backend_with_plan(0, 1)
    if opened:
        with_report(backend, None)
    else:
        MemoryStateStore(backend).reports.mark_tracked(OutcomePolicy())
    before = MemoryStateStore(backend).shard_states.load()
    result = settled(backend)
    assert result.unreported
    assert result.states == before == MemoryStateStore(backend).shard_states.load()
    pointer = MemoryStateStore(backend).plans.pointer()
    assert pointer is not None
    assert pointer.status is PlanStatus.SETTLED


def test_a_done_report_counts_also_when_the_mark_was_removed_since() -> None:
    """Otherwise failed records would be acked because the application acks whole batches from now
    on.
    """
    result = settled(with_report(backend_with_plan(0, 1), mark=False))
    assert result.states[OTHER].state.unresolved == (FAILED,)


OUTAGE = PlanReport(outage=True)


@pytest.mark.parametrize(
    ("before", "report", "is_tracked", "outages"),
    [
        (0, OUTAGE, True, 1),
        (4, OUTAGE, True, 5),
        (4, PlanReport(), True, 0),
        (4, None, True, 4),  # outcomes unknown
        (4, None, False, 0),
    ],
)
def test_outages_in_a_row_are_counted(
    before: int, report: PlanReport | None, outages: int, *, is_tracked: bool
) -> None:
    nothing: Any = None  # it is asked for settings, plans and reports only when it opens
    for plan, found in (
        (Plan(plan_id=PLAN, created_ms=1, tasks=(), outages=before), outages),
        (None, 0),
    ):
        summary = OutcomeSummary(nothing, nothing, nothing)
        policy = OutcomePolicy() if is_tracked else None
        settled = Settled(states={}, ends=(), plan=plan, report=report, policy=policy)
        summary.on_settled(PLAN, settled, 0)
        assert summary.outages == found
