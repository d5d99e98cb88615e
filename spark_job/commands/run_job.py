"""The query of `kinesis-spout run`: starts it from frozen settings, and follows it until it ends or
a signal stops it.
"""

from __future__ import annotations

import re
import warnings
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.application.run_recorder import amend_newest_run, failure
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.clock import SystemClock
from spark_job.commands.batch_writer import FILE_FORMATS, BatchWriter
from spark_job.commands.run_progress import Progress, ProgressLine
from spark_job.process_services import open_store
from spark_job.query_failure import failure_sentence
from state.store.runs import DONE, STOPPED, RunEnd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

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
        return self._writer(frame).option(
            "checkpointLocation", self.checkpoint_location
        ).start(), notes

    def _writer(self, frame: DataFrame) -> DataStreamWriter:
        writer = frame.writeStream
        if self.available_now:
            writer = writer.trigger(availableNow=True)
        elif self.trigger is not None:
            writer = writer.trigger(processingTime=self.trigger)
        if self.process is not None:
            return writer.foreachBatch(
                BatchWriter(process=self.process, format=self.sink.value, path=self.path)
            )
        writer = writer.format(self.sink.value)
        return writer.option("path", self.path) if self.path is not None else writer


class RunTeller:
    """Tells of the query in the application's state what its source cannot know: the trigger, and
    how it ended. Blocks on ZooKeeper; raises nothing.
    """

    def __init__(self, job: RunJob) -> None:
        self._job = job
        self._trigger_ms = None if job.trigger is None else interval_ms(job.trigger)
        self._is_told = self._trigger_ms is None

    def on_progress(self, progress: Progress) -> None:
        if not self._is_told and progress.lag_ms is not None:
            self._is_told = True
            self._amend(lambda told: replace(told, trigger_ms=self._trigger_ms))

    def on_end(self, failed: str | None, *, stopped: bool) -> None:
        now_ms = SystemClock().now_ms()
        end = RunEnd(time_ms=now_ms, kind=STOPPED if stopped else DONE)
        if failed is not None:
            end = failure(failed, now_ms)
        self._amend(lambda told: told.ended(end))

    def _amend(self, amended: Callable[[RunLog], RunLog]) -> None:
        with suppress(Exception):
            for settings in self._job.source.query().with_passwords().streams:
                with closing(open_store(settings)) as store:
                    amend_newest_run(store.runs, amended)


_INTERVAL = re.compile(r"(?:interval )?(\d+) *(second|minute|hour|day)s?", re.IGNORECASE)
_UNITS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def interval_ms(trigger: str) -> int | None:
    """Of a trigger like "15 minutes"; None for another form that Spark takes."""
    match = _INTERVAL.fullmatch(trigger.strip())
    return None if match is None else int(match[1]) * _UNITS_MS[match[2].lower()] or None


def follow(
    query: StreamingQuery,
    line: ProgressLine,
    stop: StopSignals,
    *,
    log_file: Path,
    told: RunTeller | None = None,
) -> Progress:
    """Show the query's progress until it ends, or stop the query at a signal.

    Blocks; call it with signals deferred. Raises `CliError` with the cause when the query failed.
    """
    progress = Progress()
    interrupted = False
    while query.isActive and not interrupted:
        interrupted = stop.wait(POLL_S)
        progress = _caught_up(query, progress)
        line.show(progress)
        if told is not None:
            told.on_progress(progress)
    if interrupted:
        query.stop()
    progress = _caught_up(query, progress)
    line.show(progress)
    error = query.exception()
    if told is not None:
        failed = None if error is None or interrupted else failure_sentence(str(error))
        told.on_end(failed, stopped=interrupted)
    if error is not None and not interrupted:
        raise CliError(
            f"the query failed: {failure_sentence(str(error))}", log_file=log_file
        ) from error
    return progress


def _caught_up(query: StreamingQuery, progress: Progress) -> Progress:
    for report in query.recentProgress:
        progress = progress.after(report)
    return progress
