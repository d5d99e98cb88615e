"""The `foreachBatch` function of a tracked query: runs the user's function, and reports failures.

The protocol: the report of a batch is a znode beside its plan. In a tracked application, the
records of a plan are acked only if its report is complete; otherwise they are redelivered. A batch
goes through these steps, and an error in any step fails the batch:

1. Mark the application as tracked, once per query run. From then on, a plan without a complete
   report is redelivered. So a batch that is lost before step 3 is safe, too.
2. Find the open plan. The source keeps at most one plan open, so it is the plan of this batch. If a
   row belongs to a stream without an open plan, Spark replays a batch whose plan was closed in the
   meantime. The function is then not called, also not for other streams of the batch: the plan may
   have a complete report, and a sink that overwrites a batch's output would lose the records that
   the report acks. All records without a complete report are redelivered.
3. Open the report, with a random token, before the function starts. This voids the report of an
   earlier run of the batch, because the sinks will be written again, perhaps with other outcomes.
   The opening counts as unanswered until step 7, or until the batch fails.
4. Run the user's function, and collect the failed records. After several unanswered openings, all
   records are queued again instead, for smaller batches (`poison_search`).
5. Check that the batch's rows are the rows that the tasks have published. If rows are missing
   because their records have expired, the batch ends here, without a report.
6. Decide on the failed records, and write the dead letters.
7. Finish the report. The complete report contains the records that stay unresolved; all other
   records are acked when the driver settles the plan. A report is written even if no record failed.

Why compare-and-set: this code runs in Spark's main driver process. The owner of the shard states is
another process, so this code does not have the owner's lock. A second process may run the same
batch (a zombie, or a restarted query). So step 7 succeeds only if the plan is still open and no
process has opened the report since step 3. Otherwise the batch fails, and no record is acked.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
from contextlib import closing, suppress
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.application.run_recorder import amend_newest_run, failure
from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import ConfigError
from spark_job.dead_letter.dead_letter import DeadLetter
from spark_job.process_services import ProcessServices
from spark_job.query_failure import naming, reported_failure
from spark_job.rows import mode_of
from spark_job.settings import RAW
from spark_job.tracking.batch_frame import BatchFrame, check_columns
from spark_job.tracking.batch_letters import write_letters
from spark_job.tracking.batch_run import BatchRun, run_batch
from spark_job.tracking.options import OnExhausted, SparkConnectError
from spark_job.tracking.outcome_rules import (
    BatchContext,
    BatchOutcomes,
    decide,
    first_tries,
    is_outage,
    nothing_succeeded,
)
from spark_job.tracking.outcomes import FailedRecord, Outcome
from spark_job.tracking.poison_search import (
    GROWS_BY,
    SHRINKS_BY,
    counted_deaths,
    deferral,
    died,
    rows_in,
)
from spark_job.tracking.stream_part import (
    RowsExpiredError,
    StreamPart,
    check_failures,
    check_rows,
)
from spark_job.tracking.withholding import BatchRules, plan_rules
from state.failpoint import failpoint
from state.plan import PlanStatus
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from spark_job.settings import QuerySettings, SourceSettings
    from spark_job.tracking.options import TrackOptions
    from spark_job.tracking.tracked_batch import TrackedBatch
    from state.plan import Plan
    from state.shard_state import ShardState
    from state.znodes.topics import StoreTopics

log = logging.getLogger("kinesis_spout")
TOKEN_BYTES = 8
RUN_PROPERTY = "spark.jobGroup.id"  # Spark sets this to the id of the query run


class Tracked:
    """The function that `KinesisSource.tracked` returns, for `foreachBatch`.

    It runs in Spark's thread of the query, one batch at a time.
    """

    def __init__(
        self,
        process: Callable[[TrackedBatch], object],
        query: QuerySettings,
        options: TrackOptions,
    ) -> None:
        self._process = process
        self._query = query
        self._streams = query.streams
        self._options = options
        self._clock = SystemClock()
        self._marked_run: str | None = None
        self._closed_in: str | None = None  # the last query run with a batch that was closed
        self._succeeded_ms: int | None = None

    def __getstate__(self) -> object:
        """Refuse Spark Connect, which alone pickles the function: in the call of `foreachBatch`,
        before the query starts.
        """
        raise SparkConnectError

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Process one batch and report its outcomes (see the module's docstring).

        Blocks on Spark, ZooKeeper and the sinks. Raises the errors of the user's function and of
        the sinks, `KinesisError` and the store's errors; then no record of the batch is acked.
        """
        check_columns(frame)
        self._mark(frame)  # 1
        plans = [(stream, _open_plan(stream)) for stream in self._streams]  # 2
        still_open = [(stream, plan) for stream, plan in plans if plan is not None]
        closed = [stream for stream, plan in plans if plan is None]
        parts: list[StreamPart] = []
        try:
            # This check comes before any report is opened: opening voids a complete report, also
            # that of an open plan. An open plan without a complete report is redelivered.
            if closed and not self._rows_of(frame, closed).isEmpty():
                self._refuse_foreign()
                log.warning(
                    "batch %d is closed, so the function is not called again. Records that are "
                    "not acked in a complete report are redelivered",
                    batch_id,
                )
                return
            if not still_open:
                return  # the batch has no rows
            for stream, plan in still_open:  # 3
                parts.append(self._open_report(stream, plan))
            rows = self._rows_of(frame, [part.settings for part in parts])
            self._process_reported(parts, rows, batch_id)  # 4 to 7
        except RowsExpiredError as exc:
            log.warning("%s", exc)
            for part in parts:
                part.store.reports.answer(part.opened)
        except BaseException as exc:
            # An error answers the opening, unless the batch failed because a process died. If this
            # cannot be stored, the next delivery counts as one more delivery after a crash.
            if not died(exc):
                with suppress(Exception):
                    for part in parts:
                        part.store.reports.answer(part.opened)
                # The error ends the query, so it is stored for `status` and `explain`.
                end = failure(reported_failure(exc), self._clock.now_ms())
                for stream in self._streams:
                    amend_newest_run(_store(stream).runs, lambda runs: runs.ended(end))
            raise

    # 1, 2: the mark and the plan
    def _mark(self, frame: DataFrame) -> None:
        """Mark the application as tracked on each of its streams, once per query run. Raises
        `DeadLetterError` where its letters have no place.

        This comes first, because a plan whose batch cannot be reported must not be settled as
        acked. One instance may serve several runs, and a query with `wholeBatchAck` may have
        removed the mark between two runs.
        """
        run = frame.sparkSession.sparkContext.getLocalProperty(RUN_PROPERTY) or ""
        if self._marked_run != run:
            if isinstance(self._options.dead_letter, DeadLetter):
                self._options.dead_letter.check(frame.sparkSession)
            for stream in self._streams:
                _store(stream).reports.mark_tracked(self._options.policy)
            self._marked_run = run

    def _rows_of(self, frame: DataFrame, streams: Sequence[SourceSettings]) -> DataFrame:
        """The rows of these streams of the query."""
        if len(streams) == len(self._streams):
            return frame
        return frame.where(F.col("streamName").isin([stream.label for stream in streams]))

    def _refuse_foreign(self) -> None:
        """Raise `ConfigError` for rows that cannot come from this source: it has never made a plan,
        or this query run has had a closed batch before, and Spark replays only one. The records
        would not be redelivered, since their own source may be untracked.
        """
        stream, has_had_one = self._streams[0], self._closed_in == self._marked_run
        self._closed_in = self._marked_run
        if has_had_one or all(_store(one).plans.pointer() is None for one in self._streams):
            raise ConfigError(
                "the frame passed to tracked(...) contains records, but application "
                f"{stream.application} has no open batch of stream {stream.label}, so these "
                "records belong to another source",
                "call read_stream(...) and tracked(...) of the same KinesisSource in the query",
            )

    # 3: the report
    def _open_report(self, stream: SourceSettings, plan: Plan) -> StreamPart:
        store = _store(stream)
        with naming(stream):
            opened = store.reports.open(plan.plan_id, secrets.token_hex(TOKEN_BYTES))
        failpoint("report-opened")
        # The states contain the earlier failures of the plan's retries, and waiting records that
        # are not in the plan. They are read only if either is needed.
        has_retries = any(shard.retries for shard in plan.slices.values())
        needs_states = has_retries or self._options.policy.on_failure is not OnFailure.CONTINUE
        return StreamPart(
            settings=stream,
            store=store,
            plan=plan,
            opened=opened,
            states=_all_states(stream) if needs_states else {},
        )

    # 4 to 7, on one frame
    def _process_reported(
        self, parts: Sequence[StreamPart], frame: DataFrame, batch_id: int
    ) -> None:
        on_failure = self._options.policy.on_failure
        of_shards = {
            part.in_batch(shard): rules
            for part in parts
            for shard, rules in plan_rules(part.plan, part.states, on_failure).items()
        }
        rules = BatchRules(
            of_shards=of_shards, on_failure=on_failure, several=not self._query.is_of_one
        )
        with closing(BatchFrame(frame, rules)) as batch:
            deaths = max(
                counted_deaths(part.opened.openings, part.plan.delivery_limit) for part in parts
            )
            published = _published_rows(parts, batch) if deaths >= 0 else 0
            if published > 1:
                self._defer(parts, batch, published)
                return
            with closing(self._run(parts, batch, deaths if published else 0, batch_id)) as run:  # 4
                rows = _checked_rows(parts, run)  # 5
                # Without results, the function has read no row, so no record can have failed.
                failed = run.all_failures() if any(part.results for part in parts) else []
                check_failures(failed, parts)
                now_ms = self._clock.now_ms()
                decided = [(part, self._decide(part, run, failed, now_ms)) for part in parts]
                self._report(decided, run)
                if len(failed) < rows:
                    self._succeeded_ms = now_ms

    # 4: the function
    def _run(
        self, parts: Sequence[StreamPart], batch: BatchFrame, deaths: int, batch_id: int
    ) -> BatchRun:
        """Call the function, unless its only record is poison without attempts left. `deaths`: how
        many deliveries of the only record count as its attempts.
        """
        poison = self._exhausted_poison(parts, batch, deaths) if deaths > 0 else None
        if poison is not None:
            return BatchRun(batch, failures={poison.message_id: poison})
        # If the search has read the frame, the frame would not show whether the function reads it.
        batch.close()
        return run_batch(self._process, batch, batch_id, bisect=self._options.bisect)

    def _exhausted_poison(
        self, parts: Sequence[StreamPart], batch: BatchFrame, deaths: int
    ) -> FailedRecord | None:
        """The only record of the batch, if its deliveries have ended the process so often that it
        has no attempts left.
        """
        ids = batch.message_ids()
        if not ids:  # the only record is withheld for another reason
            return None
        record = FailedRecord.of(ids[0], Outcome.EXHAUSTED)
        attempts = record.attempt - 1 + deaths
        known = (
            row
            for part in parts
            for shard_id, state in part.states.items()
            if part.in_batch(shard_id) == record.shard_id
            for row in state.unresolved
        )
        first_ms = next(
            (row.first_failure_ms for row in known if row.first <= record.sequence <= row.last),
            None,
        )
        if not self._options.policy.retry.exhausted(attempts, first_ms, self._clock.now_ms()):
            return None
        times = "once" if deaths == 1 else f"{deaths} times"
        reason = f"its process ended without an answer, {times}"
        return dataclasses.replace(record, attempt=attempts + 1, reason=reason)

    def _defer(self, parts: Sequence[StreamPart], batch: BatchFrame, rows: int) -> None:
        """Queue all records again, for smaller batches."""
        limit = max(1, rows // SHRINKS_BY)
        log.warning(
            "the job did not report which records of batches %s succeeded or failed. The %d "
            "records are queued for redelivery, in batches of at most %d at first",
            ", ".join(part.plan.plan_id for part in parts),
            rows,
            limit,
        )
        now_ms = self._clock.now_ms()
        reports = (deferral(part.plan, part.results, part.states, limit) for part in parts)
        decided = [
            (part, BatchOutcomes(report=replace(report, done_ms=now_ms), letters=()))
            for part, report in zip(parts, reports, strict=True)
        ]
        self._report(decided, BatchRun(batch))

    # 6: the decision
    def _decide(
        self, part: StreamPart, run: BatchRun, failed: Sequence[FailedRecord], now_ms: int
    ) -> BatchOutcomes:
        own = part.own_failures(failed)
        slices, reads, limit = part.plan.slices, part.reads, part.plan.delivery_limit
        context = BatchContext(
            policy=self._options.policy,
            slices=slices,
            reads=reads,
            states=part.states,
            records=rows_in(part.results),
            outages=part.plan.outages,
            first_tries=first_tries(slices.values(), reads.values(), own),
            succeeded_ms=self._succeeded_ms,
            now_ms=now_ms,
            random=Random(part.plan.plan_id),  # noqa: S311  # jitter; a repeated batch draws the same
            whole=mode_of(part.plan, part.settings) == RAW,
            next_limit=None if limit is None else limit * GROWS_BY,
        )
        if not part.states and nothing_succeeded(own, context.records):
            # Earlier failures may show an outage. The states are read here only, because a batch
            # without any success is rare.
            context = dataclasses.replace(context, states=_all_states(part.settings))
        # In an outage, neighbours are queued as one range, which needs the order of the rows.
        return decide(run.with_ordinals(own) if is_outage(own, context) else own, context)

    # 6 and 7: the letters, and the end of the report
    def _report(self, decided: Sequence[tuple[StreamPart, BatchOutcomes]], run: BatchRun) -> None:
        """Write all letters before the first report is complete: a complete report acks its
        records, even if writing the letters of another stream fails.
        """
        for part, outcomes in decided:
            write_letters(part, outcomes.letters, run, self._options)
        failpoint("dead-letters-written")
        for part, outcomes in decided:
            count = sum(letter.records for letter in outcomes.letters)
            drops = self._options.on_exhausted is OnExhausted.DROP
            report = replace(
                outcomes.report,
                tasks=tuple(sorted(part.results)),
                dropped=count if drops else 0,
                dead_lettered=0 if drops else count,
            )
            if mode_of(part.plan, part.settings) == RAW:
                report = report.of_whole_records
            with naming(part.settings):
                part.store.reports.finish(part.opened, report)


def _published_rows(parts: Sequence[StreamPart], batch: BatchFrame) -> int:
    """Read the rows of all tasks, so that their logs are complete, check them, and return their
    number.
    """
    batch.count()
    for part in parts:
        part.read_results()
    rows = sum(rows_in(part.results) for part in parts)
    if rows:
        check_rows(batch.content(), parts)
    return rows


def _checked_rows(parts: Sequence[StreamPart], run: BatchRun) -> int:
    """Check that the batch's rows are the rows that the tasks have published, and return their
    number.

    Blocks on ZooKeeper, and on a Spark job unless the function has counted the rows.
    """
    for part in parts:
        if run.has_read:
            part.read_results()
        else:
            part.results = {}  # so that the report names no task
    content = run.content() if any(part.results for part in parts) else {}
    # Of tasks that the function has not read, the job has. The report does not name these tasks.
    unread = {part.in_batch(shard) for part in parts for shard in part.unread_shards}
    content = {shard: found for shard, found in content.items() if shard not in unread}
    check_rows(content, parts)
    return sum(shard.new_count + shard.retry_rows for shard in content.values())


def _store(stream: SourceSettings) -> StoreTopics:
    return ProcessServices.here(stream).store


def _open_plan(stream: SourceSettings) -> Plan | None:
    """Return the stream's open plan, which is the plan of the batch.

    None if no plan is open: Spark repeats a batch whose plan was closed in the meantime, and a new
    plan redelivers its records.
    """
    plans = _store(stream).plans
    pointer = plans.pointer()
    if pointer is None or pointer.status is not PlanStatus.OPEN:
        return None
    return plans.read(pointer.id)


def _all_states(stream: SourceSettings) -> dict[str, ShardState]:
    stored = _store(stream).shard_states.load()
    return {shard_id: one.state for shard_id, one in stored.items()}
