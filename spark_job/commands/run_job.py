"""The query of `kinesis-spout run`: starts it from frozen settings, shows its progress, and follows
it until it ends or a signal stops it.
"""

from __future__ import annotations

import re
import warnings
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

import msgspec
from rich.live import Live
from rich.text import Text

from kinesis_spout.application.run_recorder import amend_newest_run, failure
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import duration
from spark_job.commands.batch_writer import FILE_FORMATS, BatchWriter
from spark_job.metrics.source_report import reports_in
from spark_job.process_services import open_store
from spark_job.query_failure import failure_sentence
from state.store.runs import DONE, STOPPED, ReportedError, RunEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console

    from kinesis_spout.cli.exit_codes import StopSignals
    from spark_job.kinesis_source import KinesisSource
    from state.store.runs import RunLog

POLL_S = 0.5


class Sink(StrEnum):
    """The sinks of `run`."""

    PARQUET = "parquet"
    JSON = "json"
    CONSOLE = "console"
    NOOP = "noop"

    @property
    def writes_files(self) -> bool:
        return self.value in FILE_FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """The query to run.

    - `checkpoint_location`: the directory of Spark's own log. ZooKeeper keeps what was consumed.
    - `trigger`: the processing time between batches, like "5 seconds".
    - `process`: applied to each batch; None writes the batch as it is.
    """

    source: KinesisSource
    sink: Sink
    path: str | None
    checkpoint_location: str
    trigger: str | None = None
    available_now: bool = False
    process: Callable[[DataFrame], DataFrame] | None = None

    def start(self, spark: SparkSession) -> tuple[StreamingQuery, list[str]]:
        """Start the query, and return it with the warnings for the user.

        Raises what `KinesisSource.read_stream` raises.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            frame = self.source.read_stream(spark)
        notes = [str(warning.message) for warning in caught if warning.category is UserWarning]
        writer = frame.writeStream.option("checkpointLocation", self.checkpoint_location)
        if self.available_now:
            writer = writer.trigger(availableNow=True)
        elif self.trigger is not None:
            writer = writer.trigger(processingTime=self.trigger)
        if self.process is not None:
            batch_writer = BatchWriter(process=self.process, format=self.sink.value, path=self.path)
            return writer.foreachBatch(batch_writer).start(), notes
        return writer.format(self.sink.value).start(self.path), notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The figures of a query so far.

    - `rows_per_s`: of the last batch.
    - `lag_ms`, `unresolved`, `oldest_unresolved_ms`, `dead_lettered`, `outage`: from the source's
      reports, over all streams. `lag_ms` is None until there is one.
    """

    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    lag_ms: int | None = None
    unresolved: int = 0
    oldest_unresolved_ms: int = 0
    dead_lettered: int = 0
    outage: bool = False
    last_batch: int = -1

    def after(self, report: Mapping[str, Any]) -> Progress:
        """The figures after one more of Spark's progress reports.

        A report of a batch already counted adds no rows: an idle query repeats its reports.
        """
        streams = [progress.report for progress in reports_in(report)]
        seen = replace(
            self,
            unresolved=sum(stream.unresolved for stream in streams),
            oldest_unresolved_ms=max((each.oldest_unresolved_ms for each in streams), default=0),
            outage=any(stream.outage for stream in streams),
        )
        if streams:
            seen = replace(
                seen,
                lag_ms=max(stream.lag_ms for stream in streams),
                dead_lettered=sum(stream.dead_lettered for stream in streams),
            )
        if int(report["batchId"]) <= self.last_batch or not report.get("numInputRows"):
            return seen
        return replace(
            seen,
            batches=self.batches + 1,
            rows=self.rows + int(report["numInputRows"]),
            rows_per_s=float(report.get("processedRowsPerSecond") or 0.0),
            last_batch=int(report["batchId"]),
        )

    @property
    def total(self) -> str:
        """The totals, without the momentary figures: a run that has ended has no rate or lag."""
        return f"{self.batches:,} {'batch' if self.batches == 1 else 'batches'}  {self.rows:,} rows"

    def __str__(self) -> str:
        parts = [self.total, f"{self.rows_per_s:,.0f} rows/s"]
        if self.lag_ms is not None:
            parts.append(f"lag {duration(self.lag_ms)}")
        if self.unresolved:
            oldest = (
                f" (oldest {duration(self.oldest_unresolved_ms)})"
                if self.oldest_unresolved_ms
                else ""
            )
            parts.append(f"{self.unresolved:,} unresolved{oldest}")
        if self.dead_lettered:
            parts.append(f"{self.dead_lettered:,} dead-lettered")
        if self.outage:
            parts.append("most records fail, so no new records are read")
        return "  ".join(parts)


class ProgressLine:
    """Shows progress on a console during a with block. Call `show` from the main thread only."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: Progress | None = None
        self._live = (
            Live(console=console, auto_refresh=False, transient=False)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show the progress, unless it equals the last one shown."""
        if progress == self._shown:
            return
        self._shown = progress
        if self._live:
            self._live.update(Text(str(progress)), refresh=True)
        else:
            self._console.print(str(progress), highlight=False, soft_wrap=True)


_INTERVAL = re.compile(r"(?:interval )?(\d+) *(second|minute|hour|day)s?", re.IGNORECASE)
_UNITS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def interval_ms(trigger: str) -> int | None:
    """Of a trigger like "15 minutes"; None for another form that Spark takes."""
    match = _INTERVAL.fullmatch(trigger.strip())
    return None if match is None else int(match[1]) * _UNITS_MS[match[2].lower()] or None


def follow(
    query: StreamingQuery, job: RunJob, line: ProgressLine, stop: StopSignals, *, log_file: Path
) -> Progress:
    """Show the query's progress until it ends, or stop the query at a signal. Note in the
    application's state what its source cannot know: the trigger, and how the query ended.

    Blocks; call it with signals deferred. Raises `CliError` with the cause when the query failed.
    """
    progress = Progress()
    trigger_ms = None if job.trigger is None else interval_ms(job.trigger)
    is_noted = trigger_ms is None
    interrupted = False
    while query.isActive and not interrupted:
        interrupted = stop.wait(POLL_S)
        progress = _caught_up(query, progress)
        line.show(progress)
        # The source writes the run that is amended before it reports for the first time.
        if not is_noted and progress.lag_ms is not None:
            is_noted = True
            _amend(job, lambda runs: msgspec.structs.replace(runs, trigger_ms=trigger_ms))
    if interrupted:
        query.stop()
    progress = _caught_up(query, progress)
    line.show(progress)
    error = None if interrupted else query.exception()
    cause = None if error is None else failure_sentence(str(error))
    now_ms = SystemClock().now_ms()
    end = RunEnd(time_ms=now_ms, kind=STOPPED if interrupted else DONE)
    if cause is not None:
        end = failure(ReportedError.of_text(cause), now_ms)
    _amend(job, lambda runs: runs.ended(end))
    if error is not None:
        raise CliError(f"the query failed: {cause}", log_file=log_file) from error
    return progress


def _amend(job: RunJob, amended: Callable[[RunLog], RunLog]) -> None:
    """Amend the newest run of each stream. Blocks on ZooKeeper; raises nothing."""
    with suppress(Exception):
        for settings in job.source.query().with_passwords().streams:
            with closing(open_store(settings)) as store:
                amend_newest_run(store.runs, amended)


def _caught_up(query: StreamingQuery, progress: Progress) -> Progress:
    for report in query.recentProgress:
        progress = progress.after(report)
    return progress
