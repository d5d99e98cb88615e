"""The plans of one stream: what number the next one gets, which tasks of one run or run again, how
a plan is settled, and the outcomes that this leaves.

Spark repeats a batch after a restart. Its tasks replay what the plan's tasks have published. What
they had not read yet they read now, while the plan is open; nobody publishes under a closed one.

Settling applies what the tasks of a plan read to the shard states. Each step can be repeated after
a crash. What does not fit is not settled, and its records are delivered again: a shard whose state
does not stand where the plan read it from (`state.settle`), and a task that the batch's report has
not seen.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kinesis_spout.errors import ConfigError
from spark_job.driver.planner import RetryQueue
from spark_job.settings import FAIL
from state.errors import PlanMismatchError
from state.failpoint import failpoint
from state.plan import PlanStatus, TaskPlan, plan_number, retries_read
from state.settle import children_first, settle_shard
from state.store.shard_states import StateChange, StoredState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.shards.catalog import ShardCatalog
    from spark_job.settings import SourceSettings
    from state.plan import Plan, ShardReadResult, ShardSlice, TaskResult
    from state.report import OutcomePolicy, PlanReport
    from state.store.plans import PlanReader, PlanStore
    from state.store.reports import ReportStore
    from state.store.shard_states import ShardStateStore

log = logging.getLogger("kinesis_spout")
MAX_UNREPORTED = 2  # plans in a row: a single one may be an accident


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
        """Close the plan, read its ends and its report, write the shard states and mark the plan
        settled, in this order.

        A shard or a retry without a published end was not read and stays as it was. All records of
        an untracked batch are acked; of a tracked batch, all that its report has seen and does not
        name. New children get their first states with `tracked_since_ms`
        (`state.settle.child_states`). Where a task has found that records may have expired unread,
        the catalog reports the loss, which may raise; then nothing is written. A state that has
        changed since it was loaded raises `ConflictError`.

        Idempotent: stopped anywhere and called again, it gives the same states.
        """
        plans, reports = self._plans, self._reports
        plans.close(plan_id)
        failpoint("plan-closed")
        results = plans.read_ends(plan_id)
        plan = self.made(plan_id) or plans.read(plan_id)
        policy, report = reports.read_policy(), reports.read(plan_id)
        states = dict(self._catalog.states)
        ends = tuple(end for _, task in sorted(results.items()) for end in task.shards)
        has_records = any(
            end.first is not None or end.retry_rows or end.retries_gone for end in ends
        )
        unreported = policy is not None and report is None and has_records
        seen = [] if unreported else _seen(results, report, plan_id)
        planned = {} if plan is None else plan.slices  # a part of the plan may be gone
        if lapsed := [end.shard_id for end in seen if end.lapsed_ms is not None]:
            self._catalog.report_lapsed(lapsed)
        if report is None:  # a tracked batch has dead-lettered them
            _warn_of_gone(seen, planned)
        outcomes = {} if report is None else {one.shard_id: one for one in report.shards}
        changes: list[StateChange] = []
        settled: list[ShardReadResult] = []  # what the states contain then
        for end in seen:
            before = states.get(end.shard_id)
            if before is None:
                continue  # it was removed while the plan was open; the shard list brings it again
            shard = planned.get(end.shard_id)
            outcome = None if shard is None else outcomes.get(end.shard_id)
            try:
                after = settle_shard(before.state, end, plan_id, shard, outcome)
            except PlanMismatchError as exc:
                log.warning(
                    "%s. Nothing is settled for this shard: its records are redelivered from its "
                    "stored position, which `kinesis-spout shards` shows",
                    exc,
                )
                continue
            settled.append(end)
            if after != before.state:
                changes.append(StateChange(before=before, after=after))
        self._shard_states.save(
            children_first(changes, settled, states.keys(), tracked_since_ms=tracked_since_ms),
            cache=states,
        )
        plans.mark_settled(plan_id)
        failpoint("plan-settled")
        return Settled(
            states=states,
            ends=tuple(
                end
                for end in ends
                if end.shard_id not in planned or planned[end.shard_id].max_records
            ),
            redelivered=frozenset(end.shard_id for end in ends)
            - frozenset(end.shard_id for end in settled),
            report=report,
            policy=policy,
            unreported=unreported,
            plan=plan,
            unknown_shards=frozenset(end.shard_id for end in ends if end.gone),
            emitted={end.shard_id: _rows(end) for end in ends},
            retried={end.shard_id: end.retry_rows for end in ends},
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

    def close_open(self) -> None:
        """Close the newest plan if it is open: the batch that runs next has nothing of it, and a
        tracked batch takes an open plan for its own.
        """
        if (plan_id := self.open_plan()) is not None:
            self._plans.close(plan_id)

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
        """The tasks of a plan to run now, by number.

        Leaves out the tasks of a closed plan that published no end: they may not publish any more,
        and later batches read their records. A plan of an earlier run is closed when a published
        end of it was removed, or when it refused aggregates and the option no longer does. A plan
        that ZooKeeper no longer has gives no tasks, with a warning.
        """
        open_plan = self.open_plan()
        if open_plan is not None and open_plan != plan_id:
            # Spark replays an older batch. A tracked batch takes the open plan for its own, so no
            # other plan may be open.
            self._plans.close(open_plan)
        is_open, is_own = open_plan == plan_id, self.made(plan_id) is not None
        plan = self.made(plan_id) or self._plans.read(plan_id)
        if plan is None:
            log.warning(
                "plan %s is no longer in ZooKeeper, so its batch is empty; later batches "
                "redeliver its unacked records",
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
        ends = self._plans.read_ends(plan_id)
        if is_open:
            # Once the plan is settled, a loss of what it has not read could no longer be detected.
            unread = [tasks[task] for task in tasks if task not in ends or not ends[task].sealed]
            shards = [shard for task in unread for shard in task.shards if shard.max_records]
            self._catalog.check_retention(
                [shard.shard_id for shard in shards if shard.shard_id in self._catalog.states]
            )
            return tasks
        log.warning(
            "plan %s is closed, so its batch replays only %d of its %d tasks: those that "
            "published an end. Later batches read the records of the other tasks",
            plan_id,
            len(ends),
            len(tasks),
        )
        return {task: tasks[task] for task in tasks if task in ends}

    def _may_go_on(self, plan: Plan) -> bool:
        """Whether the tasks of an open plan of an earlier run may read what they have not read yet.
        Warns where they may not.
        """
        if removed := self._plans.removed_logs(plan.plan_id):
            # Rows of these logs may have been handed over, in a range that nobody knows any more.
            log.warning(
                "the logs of tasks %s of plan %s were removed from ZooKeeper, so the plan is "
                "closed and their records are redelivered",
                ", ".join(map(str, removed)),
                plan.plan_id,
            )
            return False
        if plan.aggregated_records == FAIL != self._aggregated_records:
            # What its tasks published has no aggregate. With one option or another, what they did
            # not read would be read in two ways if the option changed again.
            log.warning(
                "plan %s was made while aggregatedRecords was %s, so it is closed. The next plan "
                "reads the records that this plan had not read",
                plan.plan_id,
                FAIL,
            )
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of settling a plan.

    - `states`: the states of all shards now.
    - `ends`: the ends of the shards that the plan was to read new records of.
    - `redelivered`: the shards whose records, or a part of them, are delivered again: what was read
      of them is not in the states.
    - `report`: the outcomes of a tracked batch, or None.
    - `policy`: the mark of an application that tracks its records, or None.
    - `unreported`: there is a mark but no done report, so no state was written, and all records of
      the plan are delivered again.
    - `plan`: it; None if a part of it is gone.
    - `unknown_shards`: the shards that the service answered not to know.
    - `emitted`: how many rows the plan's tasks have read, by shard; `retried`: those of them that
      were retries. `acked`: how many of them are acked now.
    """

    states: dict[str, StoredState]
    ends: tuple[ShardReadResult, ...]
    redelivered: frozenset[str] = frozenset()
    report: PlanReport | None = None
    policy: OutcomePolicy | None = None
    unreported: bool = False
    plan: Plan | None = None
    unknown_shards: frozenset[str] = frozenset()
    emitted: Mapping[str, int] = field(default_factory=dict)
    retried: Mapping[str, int] = field(default_factory=dict)
    acked: int = 0


def _rows(end: ShardReadResult) -> int:
    """How many rows the shard's task gave to Spark."""
    return end.in_user_records.count + end.retry_rows


def _acked(
    settled: Sequence[ShardReadResult],
    planned: Mapping[str, ShardSlice],
    report: PlanReport | None,
) -> int:
    """How many of the rows that were settled are acked: all but those that stay unresolved, and
    those that were given up. A letter of a record that is not in the stream any more had no row.
    """
    rows = sum(map(_rows, settled))
    if report is None:
        return rows
    shards = {end.shard_id for end in settled}
    unresolved = sum(
        record.count
        for outcome in report.shards
        if outcome.shard_id in shards
        for record in outcome.unresolved
    )
    without_row = sum(
        read.missing
        for end in settled
        if end.shard_id in planned
        for read in retries_read(planned[end.shard_id].retries, end)
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
            "plan %s: tasks %s published their read results after the batch had reported its "
            "outcomes, so their records are redelivered",
            plan_id,
            ", ".join(map(str, late)),
        )
    return [end for task in sorted(results.keys() - set(late)) for end in results[task].shards]


def _warn_of_gone(ends: Sequence[ShardReadResult], planned: Mapping[str, ShardSlice]) -> None:
    """Warn of retries past the stream's retention."""
    gone = {
        end.shard_id: [
            f"{read.retry.first}"
            if read.missing == 1
            else f"{read.missing} records from {read.retry.first} on"
            for read in retries_read(planned[end.shard_id].retries, end)
            if read.missing
        ]
        for end in ends
        if end.shard_id in planned
    }
    if any(gone.values()):
        log.warning(
            "records that waited for their retry are past the stream's retention and are acked: %s",
            "; ".join(f"shard {shard}: {', '.join(said)}" for shard, said in gone.items() if said),
        )


class OutcomeSummary:
    """The driver's summary of a stream's outcomes between two batches: whether the application
    tracks its records, the records that wait for their retry, outages, the delivery limit, and
    totals for the progress report. `open` and `on_settled` keep it up to date; the other methods do
    no I/O.

    `outages`: how many plans in a row, up to the last one, were outages. `delivery_limit`: that of
    the next plan (`state.plan.Plan`).
    """

    def __init__(self, settings: SourceSettings, plans: PlanReader, reports: ReportStore) -> None:
        self.queue = RetryQueue()
        self.outages = 0
        self.delivery_limit: int | None = None
        self._acks_whole_batches = False
        self._settings = settings
        self._plans = plans
        self._reports = reports
        self._unreported = 0
        self._totals: Counter[str] = Counter()
        self._emitted: Counter[str] = Counter()  # by shard
        self._retried: Counter[str] = Counter()

    def open(self, states: Mapping[str, StoredState], now_ms: int) -> None:
        """Restore what an earlier run left in ZooKeeper. `now_ms`: by the machine's clock.

        With option `wholeBatchAck`, removes the mark of an application that tracks its records.
        """
        self._acks_whole_batches = self._settings.whole_batch_ack
        policy = self._reports.read_policy()
        if policy is not None and self._settings.whole_batch_ack:
            self._reports.clear_policy()
            policy = None
            log.warning(
                "application %s acks whole batches from now on, because wholeBatchAck is true",
                self._settings.application,
            )
        self.queue.update({shard: stored.state for shard, stored in states.items()}, policy, now_ms)
        pointer = self._plans.pointer()
        if pointer is not None:
            is_settled = pointer.status is PlanStatus.SETTLED
            self._acks_whole_batches |= is_settled and policy is None
            report = self._reports.read(pointer.id) if is_settled else None
            self._carry_over(self._plans.read(pointer.id), report, is_tracked=policy is not None)

    def _carry_over(
        self, plan: Plan | None, report: PlanReport | None, *, is_tracked: bool
    ) -> None:
        """Take over what the next plan has to know of this one. Without known outcomes, a plan of
        an application that tracks its records leaves it as it was: it neither ends a row of outages
        nor adds to it. `plan`: None where it is not there any more.
        """
        if report is not None:
            outages = 0 if plan is None or not report.outage else plan.outages + 1
            self.outages, self.delivery_limit = outages, report.delivery_limit
        elif plan is not None and is_tracked:
            self.outages, self.delivery_limit = plan.outages, plan.delivery_limit
        else:
            self.outages, self.delivery_limit = 0, None

    def on_settled(self, plan_id: str, settled: Settled, now_ms: int) -> None:
        """Take in a settled plan. `now_ms`: by the machine's clock. Raises `ConfigError` when
        several plans in a row ended without a report of their outcomes.
        """
        states = {shard: stored.state for shard, stored in settled.states.items()}
        self.queue.update(states, settled.policy, now_ms)
        outages, delivery_limit = self.outages, self.delivery_limit
        is_tracked = settled.policy is not None
        self._acks_whole_batches = not is_tracked
        self._carry_over(settled.plan, settled.report, is_tracked=is_tracked)
        if self.outages and not outages:
            log.warning(
                "most records of plan %s failed. No new records are read until the retries succeed",
                plan_id,
            )
        elif outages and not self.outages:
            log.warning(
                "most records of plan %s were processed. New records are read again", plan_id
            )
        if self.delivery_limit is not None and delivery_limit is None:
            log.warning(
                "deliveries of plan %s ended without an outcome. No new records are read until "
                "the record that ends its process is found",
                plan_id,
            )
        if (report := settled.report) is not None:
            self._totals.update(
                failed=report.failed,
                exhausted=report.exhausted,
                deadLettered=report.dead_lettered,
                dropped=report.dropped,
            )
        self._totals["acked"] += settled.acked
        self._emitted.update(settled.emitted)
        self._retried.update(settled.retried)
        self._unreported = self._unreported + 1 if settled.unreported else 0
        if settled.unreported:
            log.warning(
                "plan %s ended without a report of its outcomes. Its records are redelivered",
                plan_id,
            )
        if self._unreported >= MAX_UNREPORTED:
            raise ConfigError(
                f"application {self._settings.application} tracks its records, but "
                f"{self._unreported} batches in a row ended without a report of their outcomes, "
                "so their records would be redelivered forever",
                "give foreachBatch source.tracked(...) again, or set option wholeBatchAck to "
                "true to ack batches as a whole from now on",
            )

    @property
    def max_unresolved_per_shard(self) -> int | None:
        """The most unresolved records that a plan may leave in a shard; None where batches are
        acked as a whole, which leaves none. Nobody can tell before the first plan is settled.
        """
        return None if self._acks_whole_batches else self._settings.max_unresolved_per_shard

    @property
    def is_outage(self) -> bool:
        """Whether the last plan was an outage and its failed records still wait for their retry.

        No new records are read meanwhile.
        """
        return self.outages > 0 and self.queue.records() > 0

    def blocks_reading(self, shard_id: str) -> bool:
        """Whether no new records of this shard may be read now."""
        if self.queue.is_empty():  # nearly always; a waiting driver asks for each shard
            return False
        # The last plan was delivered in part: a record of it may end the process that gets it.
        # Without new records the search for it ends.
        is_searching = self.delivery_limit is not None and self.queue.records() > 0
        return (
            self.is_outage
            or is_searching
            or self.queue.is_full(shard_id, self._settings.max_unresolved_per_shard)
        )

    def report(self, now_ms: int) -> dict[str, Any]:
        """The outcomes' part of the progress report. Totals count from the start of this run."""
        oldest_ms = self.queue.oldest_failure_ms()
        return {
            "emitted": self._emitted.total(),
            "retried": self._retried.total(),
            "unresolved": self.queue.records(),
            "retriesWaiting": self.queue.waiting(),
            **{
                name: self._totals[name]
                for name in ("acked", "failed", "exhausted", "deadLettered", "dropped")
            },
            "oldestUnresolvedMs": 0 if oldest_ms is None else max(0, now_ms - oldest_ms),
            "outage": self.is_outage,
        }

    def of_shard(self, shard_id: str) -> dict[str, int]:
        """The same of one shard."""
        return {
            "emitted": self._emitted[shard_id],
            "retried": self._retried[shard_id],
            "unresolved": self.queue.records_of(shard_id),
        }
