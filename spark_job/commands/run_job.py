"""The query of `kinesis-spout run`: starts it from frozen settings, and follows it until it ends or
a signal stops it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kinesis_spout.cli.exit_codes import CliError
from spark_job.commands.batch_writer import FILE_FORMATS, BatchWriter
from spark_job.commands.run_progress import Progress, ProgressLine
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from kinesis_spout.cli.exit_codes import StopSignals
    from spark_job.kinesis_source import KinesisSource

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


def follow(
    query: StreamingQuery, line: ProgressLine, stop: StopSignals, *, log_file: Path
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
    if interrupted:
        query.stop()
    progress = _caught_up(query, progress)
    line.show(progress)
    failure = query.exception()
    if failure is not None and not interrupted:
        raise CliError(
            f"the query failed: {failure_sentence(str(failure))}", log_file=log_file
        ) from failure
    return progress


def _caught_up(query: StreamingQuery, progress: Progress) -> Progress:
    for report in query.recentProgress:
        progress = progress.after(report)
    return progress
