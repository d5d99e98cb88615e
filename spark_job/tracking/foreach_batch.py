"""`foreachBatch` for batches whose records fail one by one: opens a report, runs the user's
function, reports what failed.

It runs in the driver's main process, and not where the state is owned: it may only report on the
plan that is open. What it does not report is not acked, whatever happens to it.
"""

from __future__ import annotations

import logging
import secrets
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import KinesisError
from spark_job.process_services import WorkerServices
from spark_job.tracking.batch_frame import BatchFrame, check_columns, with_index
from spark_job.tracking.batch_run import BatchRun, run_batch
from spark_job.tracking.content_check import check_content
from spark_job.tracking.letters_frame import letters_frame
from spark_job.tracking.options import OnExhausted
from spark_job.tracking.outcome_rules import (
    BatchContext,
    BatchOutcomes,
    decide,
    first_tries,
    is_outage,
)
from spark_job.tracking.withholding import plan_rules
from state.failpoint import failpoint
from state.plan import PlanStatus
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from kinesis_spout.clock import Clock
    from spark_job.settings import SourceSettings
    from spark_job.tracking.options import TrackOptions
    from spark_job.tracking.outcomes import FailedRecord
    from spark_job.tracking.tracked_batch import TrackedBatch
    from state.plan import Plan, TaskResult
    from state.report import OpenReport, PlanReport
    from state.shard_state import ShardState
    from state.state_store import OutcomeStore

log = logging.getLogger("kinesis_spout")
TOKEN_BYTES = 8
RUN_PROPERTY = "spark.jobGroup.id"  # Spark sets it to the query's run


class ExhaustedRecordError(KinesisError):
    """A record may not be tried again, and `on_exhausted` is stop. Nothing of its batch
    is acked.
    """


class Tracked:
    """What `KinesisSource.tracked` returns, for `foreachBatch`. Runs in Spark's thread of the
    query, a batch at a time.
    """

    def __init__(
        self,
        process: Callable[[TrackedBatch], object],
        settings: SourceSettings,
        options: TrackOptions,
        clock: Clock | None = None,
    ) -> None:
        self._process = process
        self._settings = settings
        self._options = options
        self._clock = clock or SystemClock()
        self._marked_run: str | None = None
        self._succeeded_ms: int | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Process one batch and report it. Blocks on Spark, ZooKeeper and the sinks; on an error
        nothing is acked.
        """
        check_columns(frame)
        store = WorkerServices.here(self._settings).store
        plan = self._open_plan(store)
        if plan is None:
            self._run_unreported(frame, batch_id)
            return
        self._mark(store, frame)
        opened = store.open_report(plan.plan_id, secrets.token_hex(TOKEN_BYTES))
        failpoint("report-opened")
        states = self._states(store, plan)
        batch = self._batch_frame(frame, plan, states)
        run = None
        try:
            run = run_batch(self._process, batch, batch_id, bisect=self._options.bisect)
            self._report(store, opened, plan, states, run)
        finally:
            if run is not None:
                run.close()
            batch.close()

    # before the function
    # --------------------------------------------------------------------------------------
    def _open_plan(self, store: OutcomeStore) -> Plan | None:
        """The plan that the batch belongs to, as the source keeps no other one open; None for one
        that is repeated.
        """
        pointer = store.read_pointer()
        if pointer is None or pointer.status is not PlanStatus.OPEN:
            return None
        return store.read_plan(pointer.id)

    def _mark(self, store: OutcomeStore, frame: DataFrame) -> None:
        """Once per run of a query: another one may have taken the mark off in between."""
        run = frame.sparkSession.sparkContext.getLocalProperty(RUN_PROPERTY) or ""
        if self._marked_run != run:
            store.mark_tracked(self._options.policy)
            self._marked_run = run

    def _states(self, store: OutcomeStore, plan: Plan) -> dict[str, ShardState]:
        """Shard states, where they matter: what is known of the plan's retries, and what waits
        outside the plan.
        """
        has_retries = any(shard.retries for task in plan.tasks for shard in task.shards)
        if not has_retries and self._options.policy.on_failure is OnFailure.CONTINUE:
            return {}
        return {shard_id: stored.state for shard_id, stored in store.load_states().items()}

    def _batch_frame(
        self, frame: DataFrame, plan: Plan, states: Mapping[str, ShardState]
    ) -> BatchFrame:
        on_failure = self._options.policy.on_failure
        rows = with_index(frame) if self._options.bisect else frame
        return BatchFrame(rows, rules=plan_rules(plan, states, on_failure), on_failure=on_failure)

    def _run_unreported(self, frame: DataFrame, batch_id: int) -> None:
        """A batch of a plan that is not open any more: its records come again, so whatever fails
        here is only logged.
        """
        batch = BatchFrame(
            with_index(frame) if self._options.bisect else frame,
            on_failure=self._options.policy.on_failure,
        )
        run = None
        try:
            run = run_batch(self._process, batch, batch_id, bisect=self._options.bisect)
            log.warning(
                "batch %d is of no open plan: nothing of it is acked, and its records are "
                "delivered again; %d of them failed",
                batch_id,
                len(run.failures),
            )
        finally:
            if run is not None:
                run.close()
            batch.close()

    # after the function
    # ---------------------------------------------------------------------------------------
    def _report(
        self,
        store: OutcomeStore,
        opened: OpenReport,
        plan: Plan,
        states: Mapping[str, ShardState],
        run: BatchRun,
    ) -> None:
        ends = store.read_ends(plan.plan_id)
        content = run.content(ends, tasks=len(plan.tasks))
        check_content(content, ends, plan.plan_id)
        failed: Sequence[FailedRecord] = run.all_failures() if ends else []
        context = self._context(plan, ends, states, failed)
        if is_outage(failed, context.first_tries):
            failed = run.with_ordinals(failed)
        outcomes = decide(failed, context)
        self._write_letters(outcomes, opened, run)
        failpoint("dead-letters-written")
        store.finish_report(opened, self._counted(outcomes))
        if len(failed) < sum(shard.new_count + shard.retry_rows for shard in content.values()):
            self._succeeded_ms = context.now_ms

    def _context(
        self,
        plan: Plan,
        task_ends: Mapping[int, TaskResult],
        states: Mapping[str, ShardState],
        failed: Sequence[FailedRecord],
    ) -> BatchContext:
        slices = {shard.shard_id: shard for task in plan.tasks for shard in task.shards}
        ends = {end.shard_id: end for task in task_ends.values() for end in task.shards}
        return BatchContext(
            policy=self._options.policy,
            slices=slices,
            ends=ends,
            states=states,
            outages=plan.outages,
            first_tries=first_tries(slices.values(), ends.values(), failed),
            succeeded_ms=self._succeeded_ms,
            now_ms=self._clock.now_ms(),
            random=Random(plan.plan_id),  # noqa: S311  # spreads retries; a repetition is to draw the same
        )

    def _write_letters(self, outcomes: BatchOutcomes, opened: OpenReport, run: BatchRun) -> None:
        """Also without letters where the plan was reported before: what was written then is
        replaced.
        """
        letters, exhausted = outcomes.letters, self._options.on_exhausted
        if letters and exhausted is OnExhausted.STOP:
            first = letters[0]
            raise ExhaustedRecordError(
                f"record {first.message_id} failed {first.attempts} times and may not be tried "
                f"again ({first.reason}), and "
                "on_exhausted is stop; nothing of its batch is acked: mend the function, or give "
                "tracked(...) a dead_letter"
            )
        if letters and exhausted is OnExhausted.DROP:
            log.warning(
                "plan %s: %d records may not be tried again and are dropped, record %s first",
                opened.plan_id,
                len(letters),
                letters[0].message_id,
            )
        dead_letter = self._options.dead_letter
        if dead_letter is not None and (letters or opened.reopened):
            frame = letters_frame(
                run.spark,
                letters,
                frame=run.frame,
                evaluations=run.evaluations,
                stream=self._settings.stream.name,
                application=self._settings.application,
            )
            dead_letter.write(frame, plan_id=opened.plan_id)

    def _counted(self, outcomes: BatchOutcomes) -> PlanReport:
        count = len(outcomes.letters)
        if self._options.on_exhausted is OnExhausted.DROP:
            return replace(outcomes.report, dropped=count)
        return replace(outcomes.report, dead_lettered=count)
