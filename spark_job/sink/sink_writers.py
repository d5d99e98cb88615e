"""The writers that Spark runs: `df.write` and `df.writeStream` with `format("kinesis")`.

Spark constructs a writer in a planning process, sends it to the executors, and hands the messages
of all tasks to `commit`. At least once: a task that is run again, and a batch that is repeated,
put their records again. Nothing is undone when a write is aborted.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Self

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


class _Writer:
    """A checked write: its settings, its columns in the frame, and the surroundings of the process
    that planned it, which the executors do not have. Picklable.
    """

    def __init__(
        self, settings: SinkSettings, columns: SinkColumns, surroundings: Surroundings
    ) -> None:
        self._settings = settings
        self._columns = columns
        self._surroundings = surroundings

    @classmethod
    def checked(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """Check the options, the columns, and that the stream exists, before any task begins.

        Calls the service once. Raises `KinesisError`.
        """
        if overwrite:
            raise ConfigError(
                "a stream cannot be overwritten", 'use mode("append"), or outputMode("append")'
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

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PutCounts:
        """Put the rows of one task. Runs on an executor and blocks until all are accepted. Raises
        `KinesisError`.
        """
        with closing(RecordWriter(self._settings, self._columns, self._surroundings)) as writer:
            return writer.write(iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803
    ) -> None:
        log.info("%s: %s", self._target(batchId), summary(messages))

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803
    ) -> None:
        log.warning(
            "%s: the write failed after %s. These and other records may be on the stream%s",
            self._target(batchId),
            summary(messages),
            "" if batchId is None else ", and are put again with the batch",
        )

    def _target(self, batch_id: int | None) -> str:
        stream = self._settings.stream
        named = "the streams of column streamName" if stream is None else f"stream {stream.name}"
        return named if batch_id is None else f"{named}, batch {batch_id}"


class KinesisBatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("kinesis")`."""


class KinesisStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("kinesis")`."""


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
