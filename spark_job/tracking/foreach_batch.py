"""The `foreachBatch` function of a tracked query: runs the user's function, and reports failures.

The protocol. The report of a batch is a znode beside its plan. In a tracked application a plan is
acked only if its report is done; any other plan is delivered again. A batch goes through these
steps, and an error in any of them fails the batch:

1. Find the open plan. The source keeps at most one plan open, so it is the plan of this batch. If
   none is open, the batch is a replay whose plan was closed since. A report that is done holds, and
   the function is not called again. Without one, it is called, and nothing is acked. Where only
   some of the batch's streams have such a report, the function is not called for the others alone:
   a sink that overwrites by batch would lose what that report acks.
2. Mark the application as tracked, once per query run. From then on a plan without a done report is
   redelivered, so a batch that is lost before step 3 is safe too.
3. Open the report, with a random token, before the function starts. This voids a report that an
   earlier run of the batch has finished: sinks are about to be written again, with other outcomes
   perhaps. It counts as an opening without an answer until step 7, or until the batch has failed.
   After several of them, the function gets only a part of the batch (`unanswered`).
4. Run the user's function, and collect the failed records.
5. Check that the batch's rows are those that the tasks have published. If the missing ones have
   expired since, the batch ends here, without a report.
6. Decide on the failed records, and write the dead letters.
7. Finish the report: it is done, and holds the records that stay unresolved. All others are acked
   when the driver settles the plan. This is written also when nothing failed.

Why compare-and-set: this code runs in the driver's main process, and the owner of the shard states
is another process, so it does not hold the owner's lock. A second process may run the same batch
(a zombie, or a restarted query). Step 7 therefore succeeds only if the plan is still open and
nobody has opened the report since step 3. Otherwise the batch fails, and nothing of it is acked.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.application.run_recorder import amend_newest_run, failure
from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import KinesisError
from spark_job.process_services import ProcessServices
from spark_job.query_failure import failure_told, naming
from spark_job.rows import RAW, mode_of
from spark_job.tracking.batch_frame import BatchFrame, check_columns, with_index
from spark_job.tracking.batch_run import BatchRun, run_batch
from spark_job.tracking.content_check import BatchContentError, check_content
from spark_job.tracking.letters_frame import letters_frame
from spark_job.tracking.options import OnExhausted, SparkConnectError, refuse_connect
from spark_job.tracking.outcome_rules import (
    BatchContext,
    BatchOutcomes,
    decide,
    first_tries,
    is_outage,
    nothing_succeeded,
)
from spark_job.tracking.outcomes import FailedRecord, Outcome
from spark_job.tracking.stream_parts import (
    ExpiredRows,
    StreamPart,
    joined_ends,
    joined_plan,
    joined_rules,
    joined_states,
    refuse_foreign,
)
from spark_job.tracking.unanswered import (
    Given,
    delivery,
    died,
    first_rows,
    give,
    is_limited,
    rows_in,
    with_withheld,
)
from state.failpoint import failpoint
from state.plan import PlanStatus
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from kinesis_spout.clock import Clock
    from spark_job.settings import QuerySettings, SourceSettings
    from spark_job.tracking.content_check import ShardContent
    from spark_job.tracking.options import TrackOptions
    from spark_job.tracking.outcome_rules import LetterNote
    from spark_job.tracking.tracked_batch import TrackedBatch
    from spark_job.tracking.unanswered import Delivery
    from spark_job.tracking.withholding import ShardRules
    from state.plan import Plan, TaskResult
    from state.report import PlanReport
    from state.shard_state import ShardState
    from state.store.plans import PlanReader
    from state.store.shard_states import ShardStateStore
    from state.znodes.topics import StoreTopics

log = logging.getLogger("kinesis_spout")
TOKEN_BYTES = 8
RUN_PROPERTY = "spark.jobGroup.id"  # Spark sets it to the id of the query run


class ExhaustedRecordError(KinesisError):
    """A record's retries are used up, and `on_exhausted` is stop. Nothing of its batch is acked."""


class _RowsExpiredError(Exception):
    """Rows that the tasks had read have expired, so the batch ends without a report."""


class Tracked:
    """The function that `KinesisSource.tracked` returns, for `foreachBatch`.

    It runs in Spark's thread of the query, one batch at a time.
    """

    def __init__(
        self,
        process: Callable[[TrackedBatch], object],
        query: QuerySettings,
        options: TrackOptions,
        clock: Clock | None = None,
    ) -> None:
        self._process = process
        self._query = query
        # The order of the batch's partitions (`driver.joint_coordinator`).
        self._streams = sorted(query.streams, key=lambda one: one.label)
        self._options = options
        self._clock = clock or SystemClock()
        self._marked_run: str | None = None
        self._succeeded_ms: int | None = None

    def __getstate__(self) -> object:
        """Only Spark Connect pickles the function of `foreachBatch`: at `foreachBatch`, before the
        query starts.
        """
        raise SparkConnectError

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Process one batch and report it (module docstring).

        Blocks on Spark, ZooKeeper and the sinks. Raises what the user's function or a sink raises,
        and `KinesisError` or the store's errors; then nothing of the batch is acked.
        """
        refuse_connect(frame)
        check_columns(frame)
        # Before all else: the plan of a batch that cannot be reported must not be settled as acked.
        self._mark(frame)
        plans = [(one, self._open_plan(_store(one).plans)) for one in self._streams]
        is_open = [one for one, plan in plans if plan is not None]
        if not is_open:
            self._repeat_closed(frame, batch_id)
            return
        closed = [one for one, plan in plans if plan is None]
        if (
            closed
            and all(_is_reported(one, plan) for one, plan in plans if plan is not None)
            and self._is_held(frame, closed, batch_id)
        ):
            return
        parts: list[StreamPart] = []
        try:
            for settings, plan in plans:
                if plan is not None:
                    parts.append(self._opened(settings, plan, parts))
            # Only of a batch that was begun before can a part be reported.
            is_repeated = any(part.opened.reopened for part in parts)
            if closed and is_repeated and self._is_held(frame, closed, batch_id):
                _answer(parts)
                return
            self._run_reported(parts, self._of(frame, is_open), batch_id)
        except _RowsExpiredError as exc:
            log.warning("%s", exc)
            _answer(parts)
        except BaseException as exc:
            # An error is an answer, unless the batch failed because a process died. It is noted at
            # best: without the note, the next delivery is taken for one more after a crash.
            if not died(exc):
                with suppress(Exception):
                    _answer(parts)
                self._tell_of(exc)
            raise

    def _tell_of(self, error: BaseException) -> None:
        """The error ends the query, so somebody who looks at the application is told."""
        end = failure(failure_told(error), self._clock.now_ms())
        for settings in self._streams:
            amend_newest_run(_store(settings).runs, lambda told: told.ended(end))

    def _opened(
        self, settings: SourceSettings, plan: Plan, before: Sequence[StreamPart]
    ) -> StreamPart:
        store = _store(settings)
        with naming(settings):
            opened = store.reports.open(plan.plan_id, secrets.token_hex(TOKEN_BYTES))
        failpoint("report-opened")
        return StreamPart(
            settings=settings,
            plans=store.plans,
            reports=store.reports,
            plan=plan,
            opened=opened,
            states=self._states(store.shard_states, plan),
            first_task=sum(len(part.plan.tasks) for part in before),
        )

    def _repeat_closed(self, frame: DataFrame, batch_id: int) -> None:
        """Run a batch that Spark repeats after its plans were closed, unless a report of it holds.
        Nothing of it is acked.
        """
        if self._is_held(frame, self._streams, batch_id):
            return
        try:
            self._run_unreported(frame, batch_id)
        except BaseException as exc:
            if not died(exc):
                self._tell_of(exc)
            raise

    def _is_held(self, frame: DataFrame, closed: Sequence[SourceSettings], batch_id: int) -> bool:
        """Whether a done report of this batch holds for one of the streams, whose plans are closed.

        What a report acks does not come again. Without its rows the function must not be called for
        the batch: a sink that overwrites by batch would lose them.
        """
        for settings in closed:
            known = self._reported_plan(settings, self._of(frame, [settings]))
            if known is None:
                continue
            if self._query.is_of_one or rows_in(_store(settings).plans.read_ends(known)):
                log.warning(
                    "batch %d was processed and reported before its plan %s of stream %s was "
                    "closed, so the function is not called again; what is not reported of it is "
                    "delivered again",
                    batch_id,
                    known,
                    settings.label,
                )
                return True
        return False

    def _of(self, frame: DataFrame, streams: Sequence[SourceSettings]) -> DataFrame:
        """The rows of some of the query's streams."""
        if len(streams) == len(self._streams):
            return frame
        return frame.where(F.col("streamName").isin([one.label for one in streams]))

    def _run_reported(self, parts: Sequence[StreamPart], frame: DataFrame, batch_id: int) -> None:
        whole = batch = self._batch_frame(frame, joined_rules(parts, self._on_failure))
        openings = max(part.opened.openings for part in parts)
        limits = [part.plan.delivery_limit for part in parts]
        limit = min((one for one in limits if one is not None), default=None)
        run = given = None
        try:
            if is_limited(openings, limit):
                batch, given, run = self._limited(parts, whole, openings, limit)
            if run is None:
                run = run_batch(self._process, batch, batch_id, bisect=self._options.bisect)
            self._report(parts, run, given)
        finally:
            if run is not None:
                run.close()
            batch.close()
            whole.close()

    # before the function
    def _open_plan(self, plans: PlanReader) -> Plan | None:
        """The open plan, which is the plan of the batch; None if no plan is open.

        No plan is open if Spark repeats a batch whose plan was closed since. Its records come again
        with a new plan.
        """
        pointer = plans.pointer()
        if pointer is None or pointer.status is not PlanStatus.OPEN:
            return None
        return plans.read(pointer.id)

    def _mark(self, frame: DataFrame) -> None:
        """Mark the application as tracked on each of its streams, once per query run.

        An instance may serve several runs, and a query with `wholeBatchAck` may have taken the mark
        off between them.
        """
        run = frame.sparkSession.sparkContext.getLocalProperty(RUN_PROPERTY) or ""
        if self._marked_run != run:
            for settings in self._streams:
                _store(settings).reports.mark_tracked(self._options.policy)
            self._marked_run = run

    def _states(self, shard_states: ShardStateStore, plan: Plan) -> dict[str, ShardState]:
        """The shard states, or none where nothing depends on them.

        They tell the earlier failures of the plan's retries, and the records that wait outside the
        plan.
        """
        has_retries = any(shard.retries for shard in plan.slices.values())
        if not has_retries and self._options.policy.on_failure is OnFailure.CONTINUE:
            return {}
        return _all_states(shard_states)

    @property
    def _on_failure(self) -> OnFailure:
        return self._options.policy.on_failure

    def _batch_frame(self, frame: DataFrame, rules: Mapping[str, ShardRules]) -> BatchFrame:
        return BatchFrame(
            with_index(frame) if self._options.bisect else frame,
            rules=rules,
            on_failure=self._on_failure,
            several=not self._query.is_of_one,
        )

    def _limited(
        self,
        parts: Sequence[StreamPart],
        whole: BatchFrame,
        openings: int,
        limit: int | None,
    ) -> tuple[BatchFrame, Given | None, BatchRun | None]:
        """The part of a batch that the function is given, and a run that takes its place where the
        only record of that part is not tried again.

        Reads all tasks first: the published ends fix the order of the rows.
        """
        whole.count()
        own_ends = [part.read_ends() for part in parts]
        ends = joined_ends(parts, own_ends)
        rows = rows_in(ends)
        if not rows:
            return whole, None, None
        self._check_all(whole.content(ends), own_ends, parts)
        now = delivery(rows, openings, limit)
        order = first_rows(ends, now.records)
        numbers = whole.first_numbers(order.last, order.rows + 1)
        states = joined_states(parts)
        given = give(order, numbers, joined_plan(parts), ends, states)
        batch = whole.limited(order.shards, order.last, numbers[order.rows - 1])
        if given.withheld:
            log.warning(
                "plans %s: deliveries of its records did not answer, so the function is given the "
                "first %d of its %d records; the others were not tried and are queued again",
                ", ".join(part.plan.plan_id for part in parts),
                now.records,
                rows,
            )
        return batch, given, self._exhausted(now, states, batch) if now.attempts else None

    def _exhausted(
        self, now: Delivery, states: Mapping[str, ShardState], batch: BatchFrame
    ) -> BatchRun | None:
        """The run of a batch of one record that may not be tried again, since its deliveries have
        ended the process; None if it may be tried.
        """
        ids = batch.message_ids()  # none if the record is withheld for another reason
        if not ids:
            return None
        record = FailedRecord.of(ids[0], Outcome.EXHAUSTED)
        attempts = record.attempt - 1 + now.attempts
        known = states[record.shard_id].unresolved if record.shard_id in states else ()
        first_ms = next(
            (one.first_failure_ms for one in known if one.first <= record.sequence <= one.last),
            None,
        )
        if not self._options.policy.retry.exhausted(attempts, first_ms, self._clock.now_ms()):
            return None
        times = "once" if now.attempts == 1 else f"{now.attempts} times"
        reason = f"its process ended without an answer {times}"
        run = BatchRun(batch, is_whole=True)
        run.failures[record.message_id] = dataclasses.replace(
            record, attempt=attempts + 1, reason=reason
        )
        return run

    def _reported_plan(self, settings: SourceSettings, frame: DataFrame) -> str | None:
        """The closed plan of this batch if it has a done report, else None.

        What that report acks stays acked. Called again, the function could fail a record that it
        did not fail before, and a sink that overwrites by batch would lose it. The plan is known by
        its rows: the pointer may name a newer one. They are read only if some plan has a report.
        """
        store = _store(settings)
        reported = [one for one in store.plans.known() if store.reports.read(one) is not None]
        batch = BatchFrame(frame)
        try:
            for plan_id in reversed(reported):
                plan = store.plans.read(plan_id)
                if plan is not None and self._holds(
                    batch, plan, store.plans.read_ends(plan_id), settings
                ):
                    return plan_id
        finally:
            batch.close()
        return None

    def _holds(
        self,
        batch: BatchFrame,
        plan: Plan,
        ends: Mapping[int, TaskResult],
        settings: SourceSettings,
    ) -> bool:
        """Whether these are the rows of the plan, all or what has not expired."""
        try:
            self._check(batch.content(ends), ends, plan, settings)
        except _RowsExpiredError:
            return True
        except BatchContentError:
            return False
        return True

    def _run_unreported(self, frame: DataFrame, batch_id: int) -> None:
        """Run a batch whose plan was closed without a report, and only log its failures.

        Nothing of it is acked. The shard states bring its records again.
        """
        batch = self._batch_frame(frame, {})
        run = None
        try:
            run = run_batch(self._process, batch, batch_id, bisect=self._options.bisect)
            log.warning(
                "the plan of batch %d is not open any more: nothing of the batch is acked, and its "
                "records are delivered again; %d of them failed",
                batch_id,
                len(run.failures),
            )
        finally:
            if run is not None:
                run.close()
            batch.close()

    # after the function
    def _report(self, parts: Sequence[StreamPart], run: BatchRun, given: Given | None) -> None:
        # The ends are read after the function has read the rows: a task publishes before it hands
        # rows over, so every row of the batch is in an end by now.
        own_ends = [part.read_ends() if run.has_read else {} for part in parts]
        for part, ends in zip(parts, own_ends, strict=True):
            with naming(part.settings):
                _refuse_unsealed(part, ends)
        tasks = [tuple(sorted(ends)) for ends in own_ends]
        if any(own_ends) and given is not None:
            own_given = [part.own_given(given) for part in parts]
            own_ends = [one.ends for one in own_given]
        else:
            own_given, given = [], None
        content = run.content(
            joined_ends(parts, own_ends), tasks=sum(len(part.plan.tasks) for part in parts)
        )
        self._check_all(content, own_ends, parts)
        # No ends: the function has read nothing, so nothing can have failed.
        failed: Sequence[FailedRecord] = run.all_failures() if any(own_ends) else []
        contexts = [
            self._context(part, ends, part.own_failures(failed))
            for part, ends in zip(parts, own_ends, strict=True)
        ]
        if any(
            is_outage(part.own_failures(failed), context)
            for part, context in zip(parts, contexts, strict=True)
        ):
            failed = run.with_ordinals(failed)
        outcomes = [
            decide(part.own_failures(failed), context)
            for part, context in zip(parts, contexts, strict=True)
        ]
        for part, decided in zip(parts, outcomes, strict=True):
            self._write_letters(decided, part, run)
        failpoint("dead-letters-written")
        for index, part in enumerate(parts):
            report = replace(self._counted(outcomes[index]), tasks=tasks[index])
            if given is not None:
                report = with_withheld(report, own_given[index])
            if mode_of(part.plan, part.settings) == RAW:
                report = report.of_whole_records
            with naming(part.settings):
                part.reports.finish(part.opened, report)
        if len(failed) < sum(shard.new_count + shard.retry_rows for shard in content.values()):
            self._succeeded_ms = contexts[0].now_ms

    def _check_all(
        self,
        content: Mapping[str, ShardContent],
        own_ends: Sequence[Mapping[int, TaskResult]],
        parts: Sequence[StreamPart],
    ) -> None:
        refuse_foreign(content, parts)
        for part, ends in zip(parts, own_ends, strict=True):
            with naming(part.settings):
                self._check(part.own_content(content), ends, part.plan, part.settings)

    def _check(
        self,
        content: Mapping[str, ShardContent],
        ends: Mapping[int, TaskResult],
        plan: Plan,
        settings: SourceSettings,
    ) -> None:
        """Raise `BatchContentError` if the batch holds other rows than were published, and
        `_RowsExpiredError` if they have expired.
        """
        expired = ExpiredRows(plan, ProcessServices.here(settings))
        if shards := check_content(content, ends, plan.plan_id, has_expired=expired):
            raise _RowsExpiredError(
                f"plan {plan.plan_id}: records that its tasks had read are past the stream's "
                f"retention now (shards {', '.join(shards)}), so nothing of this batch is acked, "
                "and the next plan reads what is left"
            )

    def _context(
        self,
        part: StreamPart,
        task_ends: Mapping[int, TaskResult],
        failed: Sequence[FailedRecord],
    ) -> BatchContext:
        plan, slices = part.plan, part.plan.slices
        ends = {end.shard_id: end for task in task_ends.values() for end in task.shards}
        context = BatchContext(
            policy=self._options.policy,
            slices=slices,
            ends=ends,
            states=part.states,
            records=sum(end.count + end.retry_rows for end in ends.values()),
            outages=plan.outages,
            first_tries=first_tries(slices.values(), ends.values(), failed),
            succeeded_ms=self._succeeded_ms,
            now_ms=self._clock.now_ms(),
            random=Random(plan.plan_id),  # noqa: S311  # jitter; a repeated batch draws the same
            whole=mode_of(plan, part.settings) == RAW,
        )
        if part.states or not nothing_succeeded(failed, context.records):
            return context
        # Records that failed before may tell an outage. The states are read only here, because a
        # batch without any success is rare.
        return dataclasses.replace(context, states=_all_states(_store(part.settings).shard_states))

    def _write_letters(self, outcomes: BatchOutcomes, part: StreamPart, run: BatchRun) -> None:
        """Write the dead letters, or log or raise as `on_exhausted` says.

        If the plan was reported before, this writes also if there are no letters: an earlier run of
        the batch may have written some, and they must be replaced.
        """
        opened, prefix = part.opened, part.settings.id_prefix
        letters = [_named(letter, prefix) for letter in outcomes.letters]
        exhausted = self._options.on_exhausted
        if letters and exhausted is OnExhausted.STOP:
            first = letters[0]
            raise ExhaustedRecordError(
                f"record {first.message_id} failed {first.attempts} times and may not be tried "
                f"again ({first.reason}), and on_exhausted is stop, so nothing of its batch is "
                "acked; repair the function, or give tracked(...) a dead_letter"
            )
        if letters and exhausted is OnExhausted.DROP:
            log.warning(
                "plan %s: %d records may not be tried again and are dropped; the first is %s",
                opened.plan_id,
                sum(letter.records for letter in letters),
                letters[0].message_id,
            )
        dead_letter = self._options.dead_letter
        if dead_letter is not None and (letters or opened.reopened):
            frame = letters_frame(
                run.spark,
                letters,
                frame=run.frame,
                evaluations=run.evaluations,
                stream=part.settings.label,
                application=part.settings.application,
            )
            dead_letter.write(frame, plan_id=opened.plan_id)

    def _counted(self, outcomes: BatchOutcomes) -> PlanReport:
        count = sum(letter.records for letter in outcomes.letters)
        if self._options.on_exhausted is OnExhausted.DROP:
            return replace(outcomes.report, dropped=count)
        return replace(outcomes.report, dead_lettered=count)


def _store(settings: SourceSettings) -> StoreTopics:
    return ProcessServices.here(settings).store


def _is_reported(settings: SourceSettings, plan: Plan) -> bool:
    return _store(settings).reports.read(plan.plan_id) is not None


def _answer(parts: Sequence[StreamPart]) -> None:
    for part in parts:
        part.reports.answer(part.opened)


def _refuse_unsealed(part: StreamPart, ends: Mapping[int, TaskResult]) -> None:
    if unsealed := sorted(task for task, end in ends.items() if not end.sealed):
        # What is appended from now on would be settled as acked, and no sink has its rows.
        raise BatchContentError(
            f"tasks {', '.join(map(str, unsealed))} of plan {part.plan.plan_id} were not read to "
            "their end, so nothing is acked; read all rows of the batch in the function given "
            "to tracked(...), or run the batch again"
        )


def _named(letter: LetterNote, prefix: str) -> LetterNote:
    """The letter of a record that is gone has no row, whose message id names the stream."""
    if not prefix or letter.message_id.startswith(prefix):
        return letter
    return dataclasses.replace(letter, message_id=f"{prefix}{letter.message_id}")


def _all_states(shard_states: ShardStateStore) -> dict[str, ShardState]:
    return {shard_id: stored.state for shard_id, stored in shard_states.load().items()}
