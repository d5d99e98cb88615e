"""The writers that Spark runs: `df.write` and `df.writeStream` with `format("kinesis")`.

Spark constructs a writer in a planning process, sends it to the executors, and hands the messages
of all tasks to `commit`. At least once: a task that is run again, and a batch that is repeated,
put their records again. Nothing is undone when a write is aborted.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from kinesis_spout.errors import ConfigError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.surroundings import Surroundings
from spark_job.sink.record_writer import PutCounts, RecordWriter
from spark_job.sink.sink_rows import SinkColumns
from spark_job.sink.sink_settings import SinkSettings, refuse_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

log = logging.getLogger("kinesis_spout")


@dataclass(frozen=True)
class Sink:
    """A checked write: its settings, its columns in the frame, and the surroundings of the process
    that planned it, which the executors do not have. Picklable.
    """

    settings: SinkSettings
    columns: SinkColumns
    surroundings: Surroundings

    @classmethod
    def checked(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
        """Check the options, the columns, and that the stream exists, before any task begins.

        Calls the service once. Raises `KinesisError`.
        """
        if overwrite:
            raise ConfigError(
                'a stream cannot be overwritten; use mode("append"), or outputMode("append")'
            )
        settings = SinkSettings.from_options(options)
        columns = SinkColumns.of(schema, has_stream=settings.stream is not None)
        # Streams that rows name are checked by the tasks that meet them.
        if settings.stream is not None:
            with closing(KinesisClient(settings.aws, settings.stream)) as client:
                if client.describe().ignores_keys:
                    refuse_keys(settings, settings.stream)
        here = Surroundings.of_this_process(settings.aws, settings.stream)
        return cls(settings, columns, here)

    def put(self, batches: Iterator[pa.RecordBatch]) -> PutCounts:
        """Put the rows of one task. Runs on an executor and blocks until all are accepted. Raises
        `KinesisError`.
        """
        with closing(RecordWriter(self.settings, self.columns, self.surroundings)) as writer:
            return writer.write(batches)

    @property
    def target(self) -> str:
        stream = self.settings.stream
        return "the streams of column streamName" if stream is None else f"stream {stream.name}"


class KinesisBatchWriter(DataSourceArrowWriter):
    """`df.write.format("kinesis")`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PutCounts:
        return self._sink.put(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.info("%s: %s", self._sink.target, summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        log.warning(
            "%s: the write failed after %s; these and others may be on the stream",
            self._sink.target,
            summary(messages),
        )


class KinesisStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("kinesis")`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PutCounts:
        return self._sink.put(iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        log.info("%s: batch %d: %s", self._sink.target, batchId, summary(messages))

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        log.warning(
            "%s: batch %d failed after %s; these and others may be on the stream, and are put "
            "again with the batch",
            self._sink.target,
            batchId,
            summary(messages),
        )


def summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    """The tasks' messages as one text, for the log. A task that failed has none."""
    total = PutCounts()
    for message in messages:
        if isinstance(message, PutCounts):
            total.add(message)
    return (
        f"{total.records} records ({total.size_bytes} bytes) put in {total.requests} requests, "
        f"{total.retries} of them put again after a refusal"
    )
