"""The writers that Spark runs for `df.write` and `df.writeStream` with `format("kinesis")`.

Spark constructs a writer in a planning process, sends it to the executors, and hands the messages
of all tasks to `commit`. At least once: a task that is run again, and a batch that is repeated,
put their records again. Nothing is undone when a write is aborted.

A task has several requests in flight, and puts refused records again, until all are accepted. Rows
go two ways. Directly: a run of rows becomes a request, and nothing is computed row by row, not
even the shard of a record. Through the queue (`put_queue`), which knows the shards: refused
records, all rows of a stream for some time after it was throttled, and what is packed into
aggregates. With an order by key a stream's records go one way at a time, and a key is in one
request at a time, so that what waits in the queue holds back the later records of its key.
"""

from __future__ import annotations

import logging
import math
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kinesis_spout.aggregation.packing import Packer, users_of
from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.errors import ConfigError, ThrottledError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import (
    REQUEST_BYTES,
    REQUEST_RECORDS,
    RecordPutter,
    refusal,
)
from kinesis_spout.service.surroundings import Surroundings
from kinesis_spout.threads import NewPool, thread_pool
from spark_job.sink.put_queue import OpenShards, PutQueue, Waiting, is_elsewhere
from spark_job.sink.sink_rows import (
    MOST_RECORD_BYTES,
    SinkColumns,
    UnwritableRecordError,
    checked,
    outgoing,
    runs,
)
from spark_job.sink.sink_settings import BY_KEY, SinkSettings, refuse_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kinesis_spout.service.record_putter import OutgoingColumns, OutgoingRecord, PutResult
    from kinesis_spout.service.shard_info import ShardInfo


log = logging.getLogger("kinesis_spout")
RELIST_S = 10.0
RELIST_TO_PACK_S = 1.0
CALM_S = 30.0
_SYSTEM_CLOCK = SystemClock()
_UNKNOWN = Surroundings()


@dataclass(slots=True)
class PutCounts(WriterCommitMessage):
    """What a task has put, as Spark hands it on to `commit`. `records`: rows that were put;
    `retries`: rows that were put again after a refusal, or since a reshard put their aggregate
    elsewhere. `size_bytes`: data and keys of the accepted Kinesis records.
    """

    records: int = 0
    size_bytes: int = 0
    requests: int = 0
    retries: int = 0

    @classmethod
    def of(cls, messages: Iterable[WriterCommitMessage | None]) -> PutCounts:
        """Of all tasks. One that failed has no message."""
        counts = [astuple(one) for one in messages if isinstance(one, cls)]
        return cls(*map(sum, zip(*counts, strict=True)))

    def __str__(self) -> str:
        return (
            f"{self.records} records ({self.size_bytes} bytes) were put in {self.requests} "
            f"requests, and {self.retries} refused records were put again"
        )


class TargetStream:
    """One stream that is written to: its connection, its shards, and its queue.

    - `throttled_s`: when the service last refused a record because of its limits
    - `direct_keys`: of the direct requests in flight, with an order by key: each key is in one of
      them
    """

    def __init__(self, settings: SinkSettings, stream: StreamRef, clock: Clock) -> None:
        retry_for_s = settings.retry_for_ms / 1000
        self.client = KinesisClient(
            settings.aws, stream, clock=clock, retry_for_s=retry_for_s, answered_before=True
        )
        self._clock = clock
        self._name = stream.name
        self.putter = RecordPutter(self.client)
        summary = self.client.describe()
        if summary.ignores_keys:
            refuse_keys(settings, stream)
        self.most_record_bytes = summary.max_record_bytes or MOST_RECORD_BYTES
        shards = self._list()
        self.by_key = settings.ordering == BY_KEY
        open_shards = OpenShards(shards, ignores_keys=summary.ignores_keys)
        self.queue = PutQueue(open_shards, by_key=self.by_key)
        self.throttled_s = -math.inf
        self.direct_keys: set[str] = set()
        self._packer = Packer(shards) if settings.aggregate else None

    def is_direct(self, now_s: float) -> bool:
        """Whether rows are put directly."""
        if self._packer is not None or now_s - self.throttled_s < CALM_S:
            return False
        return not self.by_key or not len(self.queue)

    def add(self, columns: OutgoingColumns) -> None:
        """Put records into the queue, or into aggregates."""
        for record in columns.records():
            self._add_all([record] if self._packer is None else self._packer.add(record))

    def flush(self) -> None:
        """Put the aggregates that are not full into the queue."""
        if self._packer is not None:
            self._add_all(self._packer.flush())

    def on_put(self, record: OutgoingRecord, shard_id: str | None) -> int:
        """Note in which shard a record was put. Returns how many records of the user it has put;
        the others wait again.
        """
        strays = [] if self._packer is None else self._packer.strays(record, shard_id)
        for stray in strays:
            self.queue.add(stray)
        return len(users_of(record)) - len(strays)

    def relist(self) -> None:
        """List the shards again, since the stream was resharded; at most every ten seconds, or
        every second where records of aggregates are put again until then.
        """
        pause_s = RELIST_S if self._packer is None else RELIST_TO_PACK_S
        if self._clock.monotonic_s() - self._listed_s < pause_s:
            return
        shards = self._list()
        self.queue.shards = OpenShards(shards, ignores_keys=self.queue.shards.ignores_keys)
        if self._packer is not None:
            self._add_all(self._packer.on_shards(shards))

    def _list(self) -> tuple[ShardInfo, ...]:
        self._listed_s = self._clock.monotonic_s()
        return self.client.list_shards()

    def _add_all(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            if len(users_of(record)) == 1 and record.size_bytes > self.most_record_bytes:
                # Rows are checked before. This one is an aggregate that had to be put into another.
                raise UnwritableRecordError(
                    "a row is itself an aggregate of the Kinesis Producer Library. Packed into "
                    f"another aggregate, this row takes {record.size_bytes} bytes, but stream "
                    f"{self._name} accepts at most {self.most_record_bytes} bytes",
                    "split the row into several rows, or omit option aggregate",
                )
            self.queue.add(record)


class RecordWriter:
    """Writes Arrow batches as records. For one thread. `close` ends its threads and connections.

    `write` blocks on the network until every record is accepted, and raises `KinesisError`; then
    any of the records may have been put. Besides the batch that it is given it holds the requests
    in flight, and about twice their records that wait; with an order by key, where a batch has keys
    more than once, also a copy of the batch. `surroundings`: of the driver.
    """

    def __init__(
        self,
        settings: SinkSettings,
        columns: SinkColumns,
        surroundings: Surroundings = _UNKNOWN,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        new_pool: NewPool = thread_pool,
    ) -> None:
        self._settings = settings
        self._columns = columns
        self._surroundings = surroundings
        self._clock = clock
        self._pool = new_pool(settings.requests_in_flight, "kinesis-put")
        self._targets: dict[str | None, TargetStream] = {}
        # Each request, and the method that takes its answer.
        self._in_flight: dict[Future[Any], Callable[[Any], None]] = {}
        self._accepted_s = clock.monotonic_s()
        self.counts = PutCounts()

    def write(self, batches: Iterable[pa.RecordBatch]) -> PutCounts:
        for batch in batches:
            self._accepted_s = self._clock.monotonic_s()  # Spark may have taken its time
            # The stream of the option is opened here, not before: a task without rows needs none.
            own = self._target(None) if self._settings.stream is not None else None
            most_bytes = MOST_RECORD_BYTES if own is None else own.most_record_bytes
            for stream, rows in checked(batch, self._columns, most_bytes):
                target = self._target(stream)
                for run in runs(rows, by_key=target.by_key):
                    columns = outgoing(run)
                    while not self._pass_on(target, run, columns):
                        self._step()
        for target in self._targets.values():
            target.flush()
        while self._in_flight or any(len(target.queue) for target in self._targets.values()):
            self._step()
        return self.counts

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for target in self._targets.values():
            target.client.close()

    # private --------------------------------------------------------------------------------------
    def _pass_on(self, target: TargetStream, run: pa.RecordBatch, columns: OutgoingColumns) -> bool:
        """Put a run directly, or add it to the queue. False if it has to wait."""
        now_s = self._clock.monotonic_s()
        self._start_queued(now_s)
        queues = [each.queue for each in self._targets.values()]
        waiting_bytes = sum(queue.waiting_bytes for queue in queues)
        requests = max(sum(map(len, queues)) / REQUEST_RECORDS, waiting_bytes / REQUEST_BYTES)
        if requests >= 2 * self._settings.requests_in_flight:
            return False
        if not target.is_direct(now_s):
            # With an order by key, after all direct requests were answered.
            if target.direct_keys:
                return False
            target.add(columns)
            return True
        keys = columns.partition_keys if target.by_key else ()
        if not self._may_start() or not target.direct_keys.isdisjoint(keys):
            return False
        target.direct_keys.update(keys)
        future = self._pool.submit(target.putter.put_columns, columns)
        self._in_flight[future] = partial(self._on_direct_answer, target, run, columns)
        self.counts.requests += 1
        return True

    def _target(self, stream: str | None) -> TargetStream:
        """The target of a row: the stream that it names, or the one of the option."""
        if stream not in self._targets:
            try:
                ref = self._settings.stream or StreamRef.of(stream or "")
            except ConfigError as exc:
                raise exc.respelt("streamName", "column") from None
            aws = self._surroundings.around(self._settings.aws, ref)
            settings = replace(self._settings, aws=aws)
            self._targets[stream] = TargetStream(settings, ref, self._clock)
        return self._targets[stream]

    def _step(self) -> None:
        """Start the requests that may be put now. Then wait for an answer, or until more may be."""
        now_s = self._clock.monotonic_s()
        self._start_queued(now_s)
        times = [target.queue.ready_at_s(now_s) for target in self._targets.values()]
        pause_s = min((time - now_s for time in times if time is not None), default=None)
        if not self._in_flight:
            self._clock.sleep(pause_s or 0.0)
            return
        # With all requests in flight, a record whose pause ends could not be put: only an answer
        # makes room for it.
        done, _ = wait(self._in_flight, pause_s if self._may_start() else None, FIRST_COMPLETED)
        for future in done:
            self._in_flight.pop(future)(future.result())

    def _start_queued(self, now_s: float) -> None:
        for target in self._targets.values():
            while self._may_start() and (request := target.queue.take(now_s)):
                records = [each.record for each in request]
                future = self._pool.submit(target.putter.put_once, records)
                self._in_flight[future] = partial(self._on_answer, target, request)
                self.counts.requests += 1

    def _may_start(self) -> bool:
        return len(self._in_flight) < self._settings.requests_in_flight

    def _on_direct_answer(
        self,
        target: TargetStream,
        run: pa.RecordBatch,
        columns: OutgoingColumns,
        refused: dict[int, str],
    ) -> None:
        now_s = self._clock.monotonic_s()
        if target.by_key:
            target.direct_keys.difference_update(columns.partition_keys)
        target.queue.add_refused([columns.record(index) for index in refused], now_s)
        self.counts.records += len(run) - len(refused)
        self.counts.retries += len(refused)
        sizes = run.column("size").to_numpy()
        self.counts.size_bytes += int(sizes.sum() - sum(sizes[index] for index in refused))
        self._on_codes(target, set(refused.values()), now_s, accepted=len(run) - len(refused))

    def _on_answer(
        self, target: TargetStream, request: Sequence[Waiting], results: Sequence[PutResult]
    ) -> None:
        now_s = self._clock.monotonic_s()
        if not target.queue.shards.ignores_keys and is_elsewhere(request, results):
            target.relist()
        refused = target.queue.on_answer(request, results, now_s)
        for waiting, result in zip(request, results, strict=True):
            if result.error_code is None:
                put = target.on_put(waiting.record, result.shard_id)
                self.counts.records += put
                self.counts.retries += len(users_of(waiting.record)) - put
                self.counts.size_bytes += waiting.size_bytes
            else:
                self.counts.retries += len(users_of(waiting.record))
        codes = {result.error_code for result in results if result.error_code is not None}
        self._on_codes(target, codes, now_s, accepted=len(request) - refused)

    def _on_codes(
        self, target: TargetStream, codes: set[str], now_s: float, *, accepted: int
    ) -> None:
        """Note the codes with which records of a request were refused. Raises the error of one that
        no repetition resolves, and of any when nothing was accepted for too long.
        """
        if accepted:
            self._accepted_s = now_s
        is_over = now_s - self._accepted_s >= self._settings.retry_for_ms / 1000
        for code in sorted(codes):
            error = refusal(code, target.putter.where)
            if isinstance(error, ThrottledError):
                target.throttled_s = now_s
            if is_over or not error.retryable:
                raise error


@dataclass(eq=False)
class _Writer:
    """A checked write: its settings, its columns in the frame, and the surroundings of the process
    that planned it, which the executors do not have. Picklable.
    """

    _settings: SinkSettings
    _columns: SinkColumns
    _surroundings: Surroundings

    @classmethod
    def checked(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """Check the options, the columns, and that the stream exists, before any task begins.

        Calls the service once. Raises `KinesisError`.
        """
        if overwrite:
            raise ConfigError(
                "a Kinesis stream cannot be overwritten",
                'use mode("append"), or outputMode("append")',
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
        log.info("%s: %s", self._target(batchId), PutCounts.of(messages))

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803
    ) -> None:
        log.warning(
            "%s: the write failed (%s). Other records of the write may be on the stream too%s",
            self._target(batchId),
            PutCounts.of(messages),
            "" if batchId is None else ". A retry of the batch puts all its records again",
        )

    def _target(self, batch_id: int | None) -> str:
        stream = self._settings.stream
        named = (
            ("the streams that column streamName names")
            if stream is None
            else f"stream {stream.name}"
        )
        return named if batch_id is None else f"{named}, batch {batch_id}"


class KinesisBatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("kinesis")`."""


class KinesisStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("kinesis")`."""
