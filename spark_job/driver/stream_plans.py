"""The plans of one stream: what number the next one gets, which tasks of one run or run again, and
how a plan is settled.

Spark repeats a batch after a restart. Its tasks replay what the plan's tasks have published. What
they had not read yet they read now, while the plan is open; nobody publishes under a closed one.

Settling applies what the tasks of a plan read to the shard states. Each step can be repeated after
a crash. What does not fit is not settled, and its records are delivered again: a shard whose state
does not stand where the plan read it from (`state.settle`), and a task that the batch's report has
not seen.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spark_job.settings import FAIL
from state.errors import PlanMismatchError
from state.failpoint import failpoint
from state.plan import PlanStatus, TaskPlan, plan_number, retries_read
from state.settle import children_first, settle_shard
from state.store.shard_states import StateChange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.shards.catalog import ShardCatalog
    from state.plan import Plan, ShardReadResult, ShardSlice, TaskResult
    from state.report import OutcomePolicy, PlanReport
    from state.store.plans import PlanStore
    from state.store.reports import ReportStore
    from state.store.shard_states import ShardStateStore

log = logging.getLogger("kinesis_spout")


class StreamPlans:
    """One per stream of a query. Blocks on ZooKeeper. For the driver's thread.

    `newest`: the newest plan that this run has made; None before the first one.
    """

    def __init__(
        self,
        plans: PlanStore,
        shard_states: ShardStateStore,
        reports: ReportStore,
        catalog: ShardCatalog,
        aggregated_records: str,
    ) -> None:
        self.newest: Plan | None = None
        self._plans = plans
        self._shard_states = shard_states
        self._reports = reports
        self._catalog = catalog
        self._aggregated_records = aggregated_records

    # making ---------------------------------------------------------------------------------------
    def create(self, plan: Plan) -> None:
        self._plans.create(plan)
        self.newest = plan

    def made(self, plan_id: str) -> Plan | None:
        """The plan, if this run has made it and no later one: plans never change."""
        plan = self.newest
        return plan if plan is not None and plan.plan_id == plan_id else None

    def known(self, plan_id: str) -> Plan | None:
        """The plan, from ZooKeeper unless this run has made it; None where it is not there."""
        return self.made(plan_id) or self._plans.read(plan_id)

    def next_number(self, start: str) -> int:
        """A plan number above all in Spark's log and in ZooKeeper, since either may have been
        restored from a backup, and the states may have been moved to another ZooKeeper.
        """
        if self.newest is not None:
            # The owner alone makes plans, and this process has read them all.
            return 1 + max(map(plan_number, filter(None, (start, self.newest.plan_id))))
        pointer = self._plans.pointer()
        seen = [
            start,
            pointer.id if pointer else "",
            *self._plans.known(),
            *self._settled(),
        ]
        return 1 + max((plan_number(plan_id) for plan_id in seen if plan_id), default=0)

    # settling -------------------------------------------------------------------------------------
    def is_unsettled(self, plan_id: str) -> bool:
        """Whether this is the newest plan, and is not settled yet.

        When ZooKeeper points to another plan than Spark (new checkpoint location, restored backup),
        nothing is settled, and the records of that other plan are delivered again.
        """
        pointer = self._plans.pointer()
        return (
            pointer is not None
            and pointer.id == plan_id
            and pointer.status is not PlanStatus.SETTLED
        )

    def settle(self, plan_id: str, *, tracked_since_ms: int) -> Settled:
        """Close the plan, read its tasks' results and its report, write the shard states and mark
        the plan settled, in this order.

        A shard or a retry without a published result was not read and stays as it was. All records
        of an untracked batch are acked; of a tracked batch, all that its report has seen and does
        not name; of a plan of which a part is gone, none. New children get their first states with
        `tracked_since_ms` (`state.settle.children_first`). Where a task has found that records may
        have expired unread, the catalog reports the loss, which may raise; then nothing is written.
        A state that has changed since it was loaded raises `ConflictError`.

        Idempotent: stopped anywhere and called again, it gives the same states.
        """
        plans, reports = self._plans, self._reports
        plans.close(plan_id)
        failpoint("plan-closed")
        results = plans.read_results(plan_id)
        plan = self.known(plan_id)
        policy, report = reports.read_policy(), reports.read(plan_id)
        states = self._catalog.states
        reads = tuple(read for _, task in sorted(results.items()) for read in task.shards)
        has_records = any(
            read.first is not None or read.retry_rows or read.retries_gone for read in reads
        )
        unreported = policy is not None and report is None and has_records
        if plan is None and reads:
            # Its batch may have been repeated without a row (`tasks`).
            log.warning(
                "a part of batch %s was removed from ZooKeeper, so no outcome of it is "
                "stored. Its records are redelivered",
                plan_id,
            )
        seen = [] if unreported or plan is None else _seen(results, report, plan_id)
        planned = {} if plan is None else plan.slices
        if lapsed := [read.shard_id for read in seen if read.lapsed_ms is not None]:
            self._catalog.loss.report_lapsed(lapsed, self._catalog.view.lineage.states)
        if report is None:  # a tracked batch has dead-lettered them
            _warn_of_gone(seen, planned)
        unresolved = {} if report is None else report.unresolved
        changes: list[StateChange] = []
        settled: list[ShardReadResult] = []  # what the states contain then
        for read in seen:
            before = states.get(read.shard_id)
            if before is None:
                continue  # it was removed while the plan was open; the shard list brings it again
            shard, left = planned.get(read.shard_id), unresolved.get(read.shard_id, ())
            try:
                after = settle_shard(before.state, read, plan_id, shard, left)
            except PlanMismatchError as exc:
                log.warning(
                    "%s. No outcome is stored for this shard: its records are redelivered from "
                    "its stored position, which `kinesis-spout shards` shows",
                    exc,
                )
                continue
            settled.append(read)
            if after != before.state:
                changes.append(StateChange(before=before, after=after))
        self._catalog.save(
            children_first(changes, settled, states.keys(), tracked_since_ms=tracked_since_ms)
        )
        plans.mark_settled(plan_id)
        failpoint("plan-settled")
        settled_shards = {read.shard_id for read in settled}
        return Settled(
            plan=plan,
            reads=reads,
            redelivered=frozenset(read.shard_id for read in reads) - settled_shards,
            policy=policy,
            report=report,
            unreported=unreported,
            acked=_acked(settled, planned, report),
        )

    def remove_before(self, plan_id: str) -> None:
        for old in self._plans.known():
            if plan_number(old) < plan_number(plan_id):
                self._plans.remove(old)

    def newest_settled(self) -> str:
        """The newest plan that a shard state names as settled; empty for none."""
        return max(self._settled(), key=plan_number, default="")

    def _settled(self) -> list[str]:
        plans = (stored.state.settled_plan for stored in self._catalog.states.values())
        return [plan for plan in plans if plan is not None]

    # running --------------------------------------------------------------------------------------
    def open_plan(self) -> str | None:
        """The newest plan, if it is open."""
        pointer = self._plans.pointer()
        return pointer.id if pointer is not None and pointer.status is PlanStatus.OPEN else None

    def knows(self, plan_id: str) -> bool:
        """Whether the stream has or had this plan, as far as ZooKeeper can still tell. Needs no
        loaded states.
        """
        pointer = self._plans.pointer()
        return (
            (pointer is not None and pointer.id == plan_id)
            or plan_id in self._plans.known()
            or any(
                shard.state.settled_plan == plan_id for shard in self._shard_states.load().values()
            )
        )

    def tasks(self, plan_id: str) -> dict[int, TaskPlan]:
        """The tasks of a plan to run now, by number; of none if `plan_id` is empty, since the batch
        has nothing of this stream.

        Leaves out the tasks of a closed plan that published nothing: they may not publish any more,
        and later batches read their records. A plan of an earlier run is closed when a published
        log of it was removed, or when it refused aggregates and the option no longer does. A plan
        that ZooKeeper no longer has gives no tasks, with a warning.
        """
        open_plan = self.open_plan()
        if open_plan is not None and open_plan != plan_id:
            # Spark replays an older batch, or the batch has nothing of this stream. A tracked batch
            # takes the open plan for its own, so no other plan may be open.
            self._plans.close(open_plan)
        if not plan_id:
            return {}
        is_open, is_own = open_plan == plan_id, self.made(plan_id) is not None
        plan = self.known(plan_id)
        if plan is None:
            log.warning(
                "batch %s is no longer in ZooKeeper, so Spark repeats it without records. Later "
                "batches redeliver its unresolved records",
                plan_id,
            )
            return {}
        tasks = dict(enumerate(plan.tasks))
        if not is_own:  # a replay, which polls
            tasks = {number: replace(task, consumer_arn=None) for number, task in tasks.items()}
        if is_open and is_own:
            return tasks
        if is_open and not self._may_go_on(plan):
            self._plans.close(plan_id)
            is_open = False
        logs = self._plans.read_results(plan_id)
        if is_open:
            # Once the plan is settled, a loss of what it has not read could no longer be detected.
            unread = [tasks[task] for task in tasks if task not in logs or not logs[task].sealed]
            shards = [shard for task in unread for shard in task.shards if shard.max_records]
            self._catalog.check_retention(
                [shard.shard_id for shard in shards if shard.shard_id in self._catalog.states]
            )
            return tasks
        log.warning(
            "batch %s is closed, so the repeated batch contains only the records of %d of "
            "its %d tasks, which had finished. Later batches read the records of the other tasks",
            plan_id,
            len(logs),
            len(tasks),
        )
        return {task: tasks[task] for task in tasks if task in logs}

    def _may_go_on(self, plan: Plan) -> bool:
        """Whether the tasks of an open plan of an earlier run may read what they have not read yet.
        Warns where they may not.
        """
        if removed := self._plans.removed_logs(plan.plan_id):
            # Rows of these logs may have been handed over, in a range that nobody knows any more.
            log.warning(
                "the logs of tasks %s of batch %s were removed from ZooKeeper, so the batch "
                "is closed and their records are redelivered",
                ", ".join(map(str, removed)),
                plan.plan_id,
            )
            return False
        if plan.aggregated_records == FAIL != self._aggregated_records:
            # What its tasks published has no aggregate. With one option or another, what they did
            # not read would be read in two ways if the option changed again.
            log.warning(
                "batch %s was planned while aggregatedRecords was %s, so it is closed. The next "
                "batch reads the records that this batch had not read",
                plan.plan_id,
                FAIL,
            )
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of settling a plan.

    - `plan`: it; None if a part of it is gone.
    - `reads`: what its tasks have read, by shard.
    - `redelivered`: the shards whose records, or a part of them, are delivered again: what was read
      of them is not in the states.
    - `policy`: the mark of an application that tracks its records, or None.
    - `report`: the outcomes of a tracked batch, or None. `unreported`: there is a mark but no done
      report, so no state was written, and all records of the plan are delivered again.
    - `acked`: how many of the rows that were read are acked now.
    """

    plan: Plan | None
    reads: tuple[ShardReadResult, ...]
    redelivered: frozenset[str] = frozenset()
    policy: OutcomePolicy | None = None
    report: PlanReport | None = None
    unreported: bool = False
    acked: int = 0

    @property
    def new_reads(self) -> list[ShardReadResult]:
        """Of the shards that the plan was to read new records of."""
        planned = {} if self.plan is None else self.plan.slices
        return [
            read
            for read in self.reads
            if read.shard_id not in planned or planned[read.shard_id].max_records
        ]


def _acked(
    settled: Sequence[ShardReadResult],
    planned: Mapping[str, ShardSlice],
    report: PlanReport | None,
) -> int:
    """How many of the rows that were settled are acked: all but those that stay unresolved, and
    those that were given up. A letter of a record that is not in the stream any more had no row.
    """
    rows = sum(read.count + read.retry_rows for read in settled)
    if report is None:
        return rows
    shards = {read.shard_id for read in settled}
    unresolved = sum(
        record.count
        for shard_id, left in report.unresolved.items()
        if shard_id in shards
        for record in left
    )
    without_row = sum(
        retry.missing
        for read in settled
        if read.shard_id in planned
        for retry in retries_read(planned[read.shard_id].retries, read)
    )
    given_up = max(0, report.dead_lettered + report.dropped - without_row)
    return max(0, rows - unresolved - given_up)


def _seen(
    results: Mapping[int, TaskResult], report: PlanReport | None, plan_id: str
) -> list[ShardReadResult]:
    """What the tasks read whose results the report has seen; of an untracked batch, of all tasks.

    A task that published after the report was done has given its rows to no sink of the batch.
    """
    named = None if report is None else report.tasks
    late = [] if named is None else sorted(results.keys() - set(named))
    if late:
        log.warning(
            "tasks %s of batch %s published what they had read after the batch had reported "
            "its outcomes, so their records are redelivered",
            ", ".join(map(str, late)),
            plan_id,
        )
    return [read for task in sorted(results.keys() - set(late)) for read in results[task].shards]


def _warn_of_gone(reads: Sequence[ShardReadResult], planned: Mapping[str, ShardSlice]) -> None:
    """Warn of retries past the stream's retention."""
    gone = {
        read.shard_id: [
            f"{retry.retry.first}"
            if retry.missing == 1
            else f"{retry.missing} records from {retry.retry.first} on"
            for retry in retries_read(planned[read.shard_id].retries, read)
            if retry.missing
        ]
        for read in reads
        if read.shard_id in planned
    }
    if any(gone.values()):
        log.warning(
            "records that waited for a retry have expired from the stream and count as acked: %s",
            "; ".join(f"shard {shard}: {', '.join(said)}" for shard, said in gone.items() if said),
        )
