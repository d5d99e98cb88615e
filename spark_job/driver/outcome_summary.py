"""The outcomes of a stream's batches, as the driver needs them to plan and to report."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import ConfigError
from state.plan import PlanStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_job.driver.retry_queue import RetryQueue
    from spark_job.driver.stream_plans import Settled
    from spark_job.settings import SourceSettings
    from state.plan import Plan
    from state.report import PlanReport
    from state.shard_state import ShardState
    from state.store.plans import PlanReader
    from state.store.reports import ReportStore

log = logging.getLogger("kinesis_spout")
MAX_UNREPORTED = 2  # batches in a row without a report; a single one may be an accident
MAX_UNREAD = 10  # batches in a row that the sink did not read, in an AvailableNow run


class OutcomeSummary:
    """Knows whether the application tracks its records, whether there is an outage, the delivery
    limit, and the totals for the progress report. `open` and `on_settled` update it and the queue
    of retries; the other methods do no I/O.

    `outages`: the number of plans in a row, up to the last one, that were outages.
    `delivery_limit`: the limit that the last report sets for the next plan (`state.plan.Plan`).
    """

    def __init__(
        self, settings: SourceSettings, plans: PlanReader, reports: ReportStore, queue: RetryQueue
    ) -> None:
        self.outages = 0
        self.delivery_limit: int | None = None
        self._acks_whole_batches = False
        self._ends_tracking = False
        self._settings = settings
        self._plans = plans
        self._reports = reports
        self._queue = queue
        self._unreported = 0
        self._unread = 0
        self._totals: Counter[str] = Counter()
        self._emitted: Counter[str] = Counter()  # by shard
        self._retried: Counter[str] = Counter()

    def open(self, states: Mapping[str, ShardState], now_ms: int) -> None:
        """Restore the outcomes of an earlier run from ZooKeeper. `now_ms`: the machine's time."""
        policy = self._reports.read_policy()
        self._acks_whole_batches = self._settings.whole_batch_ack
        self._ends_tracking = policy is not None and self._settings.whole_batch_ack
        self._queue.update(states, policy, now_ms)
        pointer = self._plans.pointer()
        if pointer is not None:
            is_settled = pointer.status is PlanStatus.SETTLED
            self._acks_whole_batches |= is_settled and policy is None
            report = self._reports.read(pointer.id) if is_settled else None
            self._carry_over(self._plans.read(pointer.id), report, is_tracked=policy is not None)

    def end_tracking(self, states: Mapping[str, ShardState], now_ms: int) -> None:
        """With option `wholeBatchAck`, remove the policy that an earlier, tracking run has stored.
        `now_ms`: the time by which retries are due.

        Call it before this run's first batch runs, but only after the last batch of an earlier run
        is settled: if that batch has no report, only the policy shows that its records must not be
        acked.
        """
        if not self._ends_tracking:
            return
        self._ends_tracking = False
        self._reports.clear_policy()
        self._acks_whole_batches = True
        self._queue.update(states, None, now_ms)
        log.warning(
            "application %s now acks whole batches, because wholeBatchAck is true",
            self._settings.application,
        )

    def _carry_over(
        self, plan: Plan | None, report: PlanReport | None, *, is_tracked: bool
    ) -> None:
        """Set the outages and the delivery limit for the next plan. If the plan is tracked and has
        no report, both stay as they were when it was made: it neither ends nor continues a row of
        outages. `plan`: None if ZooKeeper does not have it any more.
        """
        if report is not None:
            outages = 0 if plan is None or not report.outage else plan.outages + 1
            self.outages, self.delivery_limit = outages, report.delivery_limit
        elif plan is not None and is_tracked:
            self.outages, self.delivery_limit = plan.outages, plan.delivery_limit
        else:
            self.outages, self.delivery_limit = 0, None

    def on_settled(
        self,
        plan_id: str,
        settled: Settled,
        states: Mapping[str, ShardState],
        now_ms: int,
        *,
        is_available_now: bool,
    ) -> None:
        """Note a settled plan. `states`: after settling. `now_ms`: the machine's time.

        Raises `ConfigError` if several batches in a row ended without a report of their outcomes,
        and if the sink read no row of many batches of an AvailableNow run, which would never end.
        """
        self._queue.update(states, settled.policy, now_ms)
        outages, delivery_limit = self.outages, self.delivery_limit
        is_tracked = settled.policy is not None
        self._acks_whole_batches = not is_tracked
        self._carry_over(settled.plan, settled.report, is_tracked=is_tracked)
        if self.outages and not outages:
            log.warning(
                "most records of batch %s failed. The error of the last failed record is %r. No "
                "new records are read until the retries succeed",
                plan_id,
                _newest_reason(states.values()),
            )
        elif outages and not self.outages:
            log.warning("most records of batch %s succeeded. New records are read again", plan_id)
        if self.delivery_limit is not None and delivery_limit is None:
            log.warning(
                "the job did not report which records of batch %s succeeded or failed. A record "
                "may be killing the job's process. No new records are read until that record is "
                "found",
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
        for read in settled.reads:
            self._emitted[read.shard_id] += read.count + read.retry_rows
            self._retried[read.shard_id] += read.retry_rows
        is_unread = not settled.reads and settled.plan is not None and bool(settled.plan.tasks)
        self._unread = self._unread + 1 if is_unread else 0
        if self._unread == 1:
            # Nothing else would explain why the query runs batches and makes no progress.
            log.warning(
                "batch %s has ended, but the sink read none of its rows, so the batch's records "
                "are redelivered. The function passed to foreachBatch must read its DataFrame, "
                "even if it drops the rows",
                plan_id,
            )
        if is_available_now and self._unread >= MAX_UNREAD:
            raise ConfigError(
                f"the sink read no row of the last {self._unread} batches, so this AvailableNow "
                f"run of application {self._settings.application} would never end",
                "make the foreachBatch function read its DataFrame, even if it drops the rows",
            )
        self._unreported = self._unreported + 1 if settled.unreported else 0
        if settled.unreported:
            log.warning(
                "batch %s ended, but the job did not report which of its records succeeded or "
                "failed. The batch's records are redelivered",
                plan_id,
            )
        if self._unreported >= MAX_UNREPORTED:
            raise ConfigError(
                f"application {self._settings.application} tracks its records, but the job did "
                f"not report which records of the last {self._unreported} batches succeeded or "
                "failed, so these records would be redelivered forever",
                "pass source.tracked(...) to foreachBatch again, or set option wholeBatchAck to "
                "true to ack whole batches",
            )

    @property
    def max_unresolved_per_shard(self) -> int | None:
        """The limit of unresolved records in a shard. None if batches are acked as a whole, which
        leaves no record unresolved; that is not known before the first plan is settled.
        """
        return None if self._acks_whole_batches else self._settings.max_unresolved_per_shard

    @property
    def is_outage(self) -> bool:
        """Whether the last plan was an outage and its failed records still wait for their retry. No
        new records are read then.
        """
        return self.outages > 0 and not self._queue.is_empty()

    def search_limit(self, now_ms: int) -> int | None:
        """Return the delivery limit of a plan that is made now; None without a limit.

        One of the queued records may end the process that gets it. The search for that record lasts
        while a queued record is due, and ends only if no new records are read meanwhile.
        """
        limit = self.delivery_limit
        return limit if limit is not None and self._queue.is_due(now_ms) else None

    def blocks_reading(self, shard_id: str, now_ms: int) -> bool:
        """Whether no new records of this shard may be read now."""
        if self._queue.is_empty():  # nearly always true; called for each shard at each poll
            return False
        return (
            self.is_outage
            or self.search_limit(now_ms) is not None
            or self._queue.is_full(shard_id, self._settings.max_unresolved_per_shard)
        )

    def report(self, now_ms: int) -> dict[str, Any]:
        """Return the outcomes for the progress report. Totals count from the start of this run."""
        oldest_ms = self._queue.oldest_failure_ms()
        return {
            "emitted": self._emitted.total(),
            "retried": self._retried.total(),
            "acked": self._totals["acked"],
            "failed": self._totals["failed"],
            "unresolved": self._queue.records(),
            "retriesWaiting": self._queue.waiting(),
            "exhausted": self._totals["exhausted"],
            "deadLettered": self._totals["deadLettered"],
            "dropped": self._totals["dropped"],
            "oldestUnresolvedMs": 0 if oldest_ms is None else max(0, now_ms - oldest_ms),
            "outage": self.is_outage,
        }

    def of_shard(self, shard_id: str) -> dict[str, int]:
        """Return one shard's part of `report`."""
        return {
            "emitted": self._emitted[shard_id],
            "retried": self._retried[shard_id],
            "unresolved": self._queue.records_of(shard_id),
        }


def _newest_reason(states: Iterable[ShardState]) -> str:
    """Return the reason of the record that failed last."""
    failed = (record for state in states for record in state.unresolved)
    newest = max(failed, key=lambda record: record.last_failure_ms or 0, default=None)
    return (newest and newest.reason) or ""
