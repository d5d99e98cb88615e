"""The plans of one stream: the number of the next plan, the tasks of a plan that run or run again,
and the settling of a plan.

Spark repeats a batch after a restart. The repeated tasks replay the logs that the plan's tasks have
published. While the plan is open, they also read what was not read yet; no task publishes under a
closed plan.

Settling applies the reads of a plan's tasks to the shard states. Each step can be repeated after a
crash. A read that does not fit is not settled, and its records are redelivered. This is so for a
shard whose state is not at the position from which the plan has read (`state.settle`), and for a
task that is not in the batch's report.
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
    """The plans of one stream of a query. Blocks on ZooKeeper. For the driver's thread.

    `newest`: the newest plan that this run has made; None before its first plan.
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
        """Return the plan if it is the newest plan of this run. A plan never changes."""
        plan = self.newest
        return plan if plan is not None and plan.plan_id == plan_id else None

    def known(self, plan_id: str) -> Plan | None:
        """Return the plan, from memory or from ZooKeeper; None if ZooKeeper does not have it."""
        return self.made(plan_id) or self._plans.read(plan_id)

    def next_number(self, start: str) -> int:
        """Return a plan number above all numbers in Spark's log and in ZooKeeper. Either may have
        been restored from a backup, and the states may have been moved to another ZooKeeper.
        """
        if self.newest is not None:
            # Only the owner makes plans, and this process has read all of them.
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
        """Whether this is the newest plan and is not settled yet.

        If ZooKeeper's newest plan is not the plan that Spark knows (new checkpoint location,
        restored backup), nothing is settled, and the records of ZooKeeper's plan are redelivered.
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

        - A shard or a retry without a published result was not read, and stays as it was.
        - In an untracked batch, all records are acked. In a tracked batch, all records are acked
          that the report covers and does not name. If a part of the plan is gone, none is acked.
        - New children get their first states with `tracked_since_ms` (`children_first`).
        - If a task has found that records may have expired unread, the catalog reports the loss.
          That may raise, and then nothing is written.

        Raises `ConflictError` if a state has changed since it was loaded. Idempotent: after a crash
        at any point, another call gives the same states.
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
            # Spark may have repeated the batch without a row (`tasks`).
            log.warning(
                "part of batch %s was removed from ZooKeeper, so none of the batch's outcomes are "
                "stored. Its records are redelivered",
                plan_id,
            )
        seen = [] if unreported or plan is None else _seen(results, report, plan_id)
        planned = {} if plan is None else plan.slices
        if lapsed := {read.shard_id: read.lapsed_ms for read in seen if read.lapsed_ms is not None}:
            self._catalog.loss.report_lapsed(lapsed, self._catalog.view.lineage.states)
        if report is None:  # a tracked batch has dead-lettered expired records
            _warn_of_gone(seen, planned)
        unresolved = {} if report is None else report.unresolved
        changes: list[StateChange] = []
        settled: list[ShardReadResult] = []  # the reads that the new states contain
        for read in seen:
            before, shard = states.get(read.shard_id), planned.get(read.shard_id)
            if before is None or shard is None:
                continue  # removed while the plan was open; the next listing adds it again
            left = unresolved.get(read.shard_id, ())
            try:
                after = settle_shard(before.state, read, plan_id, shard, left)
            except PlanMismatchError as exc:
                log.warning(
                    "%s. No outcome of this shard is stored, so its records are redelivered from "
                    "its stored position. `kinesis-spout shards` shows the stored position",
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
        """Return the newest plan that a shard state names as settled, or ""."""
        return max(self._settled(), key=plan_number, default="")

    def _settled(self) -> list[str]:
        plans = (stored.state.settled_plan for stored in self._catalog.states.values())
        return [plan for plan in plans if plan is not None]

    # running --------------------------------------------------------------------------------------
    def knows(self, plan_id: str) -> bool:
        """Whether ZooKeeper shows that the stream has or had this plan. Needs no loaded states."""
        pointer = self._plans.pointer()
        return (
            (pointer is not None and pointer.id == plan_id)
            or plan_id in self._plans.known()
            or any(
                shard.state.settled_plan == plan_id for shard in self._shard_states.load().values()
            )
        )

    def tasks(self, plan_id: str) -> dict[int, TaskPlan]:
        """Return the tasks of a plan to run now, by number. An empty `plan_id` means that the batch
        has no records of this stream, and gives no tasks.

        Of a closed plan, only the tasks that have published a log run: the other tasks may not
        publish any more, and later batches read their records. This method closes a plan of an
        earlier run if one of its logs was removed, or if it refused aggregates and the option no
        longer does. A plan that is not in ZooKeeper any more gives no tasks, with a warning.
        """
        pointer = self._plans.pointer()
        is_any_open = pointer is not None and pointer.status is PlanStatus.OPEN
        open_plan = pointer.id if pointer is not None and is_any_open else None
        if open_plan is not None and open_plan != plan_id:
            # Spark replays an older batch, or the batch has no records of this stream. A tracked
            # batch treats the open plan as its own, so no other plan may be open.
            self._plans.close(open_plan)
        if not plan_id:
            return {}
        is_open, is_own = open_plan == plan_id, self.made(plan_id) is not None
        plan = self.known(plan_id)
        if plan is None:
            log.warning(
                "batch %s is no longer in ZooKeeper, so Spark repeats this batch without records. "
                "Later batches redeliver the batch's unresolved records",
                plan_id,
            )
            return {}
        tasks = dict(enumerate(plan.tasks))
        if not is_own:  # a replay polls, even if the plan named a consumer
            tasks = {number: replace(task, consumer_arn=None) for number, task in tasks.items()}
        if is_open and is_own:
            return tasks
        if is_open and not self._may_go_on(plan):
            self._plans.close(plan_id)
            is_open = False
        logs = self._plans.read_results(plan_id)
        if is_open:
            # After settling, it could no longer be detected that records expired before this read.
            unread = [tasks[task] for task in tasks if task not in logs or not logs[task].sealed]
            shards = [shard for task in unread for shard in task.shards if shard.max_records]
            self._catalog.check_retention(
                [shard.shard_id for shard in shards if shard.shard_id in self._catalog.states]
            )
            return tasks
        log.warning(
            "batch %s is closed, so the repeated batch contains only the records of its finished "
            "tasks (%d of %d tasks). Later batches read the records of the other tasks",
            plan_id,
            len(logs),
            len(tasks),
        )
        return {task: tasks[task] for task in tasks if task in logs}

    def _may_go_on(self, plan: Plan) -> bool:
        """Whether the tasks of an earlier run's open plan may read what they have not read yet.
        Logs a warning if not.
        """
        if removed := self._plans.removed_logs(plan.plan_id):
            # Rows of these logs may have been returned to Spark, and their range is now unknown.
            log.warning(
                "the logs of tasks %s of batch %s were removed from ZooKeeper, so the batch is "
                "closed. The records of these tasks are redelivered",
                ", ".join(map(str, removed)),
                plan.plan_id,
            )
            return False
        if plan.aggregated_records == FAIL != self._aggregated_records:
            # The published logs contain no aggregate. Reading the rest under the new option would
            # make two ways of reading one plan, and the option may change again.
            log.warning(
                "batch %s was planned while aggregatedRecords was %s, so the batch is closed. "
                "The next batch reads the records that this batch had not read",
                plan.plan_id,
                FAIL,
            )
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of settling a plan.

    - `plan`: None if a part of the plan is gone from ZooKeeper.
    - `reads`: the reads of the plan's tasks, one for each shard.
    - `redelivered`: the shards of which at least some records are redelivered, because the states
      do not contain their reads.
    - `policy`: the outcome policy of an application that tracks its records, or None.
    - `report`: the outcomes of a tracked batch, or None. `unreported`: there is a policy, but no
      complete report. So no state was written, and all records of the plan are redelivered.
    - `acked`: the number of rows that are acked now.
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
        """The reads of shards from which the plan was to read new records."""
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
    """Return how many of the settled rows are acked: all except those that stay unresolved, were
    dead-lettered or were dropped. A dead letter of an expired record had no row.
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
    """Return the reads of the tasks that are in the report; in an untracked batch, of all tasks.

    The rows of the other tasks have not reached the sink.
    """
    named = None if report is None else report.tasks
    late = [] if named is None else sorted(results.keys() - set(named))
    if late:
        log.warning(
            "tasks %s of batch %s published records whose outcomes the batch did not report, so "
            "the records of these tasks are redelivered",
            ", ".join(map(str, late)),
            plan_id,
        )
    return [read for task in sorted(results.keys() - set(late)) for read in results[task].shards]


def _warn_of_gone(reads: Sequence[ShardReadResult], planned: Mapping[str, ShardSlice]) -> None:
    """Warn of retries whose records have expired."""
    gone = {
        read.shard_id: [
            f"{retry.retry.first}"
            if retry.missing == 1
            else f"{retry.missing} records, starting with {retry.retry.first}"
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
