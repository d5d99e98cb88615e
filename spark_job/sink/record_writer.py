"""Puts the records of one Spark task: several requests in flight, refused records again, until all
of them are accepted.

Rows go two ways. Directly: a run of rows becomes a request, and nothing is computed row by row, not
even the shard of a record. Through the queue (`put_queue`), which knows the shards: refused
records, all rows of a stream for some time after it was throttled, and what is packed into
aggregates. With an order by key a stream's records go one way at a time, and a key is in one
request at a time, so that what waits in the queue holds back the later records of its key.
"""

from __future__ import annotations

import math
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from kinesis_spout.aggregation.packing import Packer, users_of
from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.errors import ThrottledError
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
from spark_job.sink.sink_rows import MOST_RECORD_BYTES, UnwritableRecordError, checked
from spark_job.sink.sink_settings import BY_KEY, refuse_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from kinesis_spout.service.record_putter import OutgoingColumns, OutgoingRecord
    from kinesis_spout.service.shard_info import ShardInfo
    from kinesis_spout.service.wire import PutResult
    from spark_job.sink.sink_rows import SinkColumns, SinkRows
    from spark_job.sink.sink_settings import SinkSettings

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

    def add(self, other: PutCounts) -> None:
        self.records += other.records
        self.size_bytes += other.size_bytes
        self.requests += other.requests
        self.retries += other.retries


class TargetStream:
    """One stream that is written to: its connection, its shards, and its queue.

    - `throttled_s`: when the service last refused a record because of its limits
    """

    def __init__(self, settings: SinkSettings, stream: StreamRef, clock: Clock) -> None:
        retry_for_s = settings.retry_for_ms / 1000
        self._client = KinesisClient(
            settings.aws, stream, clock=clock, retry_for_s=retry_for_s, answered_before=True
        )
        self._clock = clock
        self._name = stream.name
        self.putter = RecordPutter(self._client)
        summary = self._client.describe()
        if summary.ignores_keys:
            refuse_keys(settings, stream)
        self.most_record_bytes = summary.max_record_bytes or MOST_RECORD_BYTES
        shards = self._list()
        self.by_key = settings.ordering == BY_KEY
        open_shards = OpenShards(shards, ignores_keys=summary.ignores_keys)
        self.queue = PutQueue(open_shards, by_key=self.by_key)
        self.throttled_s = -math.inf
        # Of the direct requests in flight, with an order by key: each key is in one of them.
        self._direct_keys: set[str] = set()
        self._packer = Packer(shards) if settings.aggregate else None

    def is_direct(self, now_s: float) -> bool:
        """Whether rows are put directly."""
        if self._packer is not None or now_s - self.throttled_s < CALM_S:
            return False
        return not self.by_key or not len(self.queue)

    def may_put(self, columns: OutgoingColumns) -> bool:
        """Whether no request in flight holds one of their keys, with an order by key."""
        return not self.by_key or self._direct_keys.isdisjoint(columns.partition_keys)

    def on_sent(self, columns: OutgoingColumns) -> None:
        """Rows were put directly."""
        if self.by_key:
            self._direct_keys.update(columns.partition_keys)

    def on_direct_answer(
        self, columns: OutgoingColumns, refused: Iterable[int], now_s: float
    ) -> None:
        """Put those of these indexes into the queue."""
        if self.by_key:
            self._direct_keys.difference_update(columns.partition_keys)
        self.queue.add_refused([columns.record(index) for index in refused], now_s)

    def may_add(self) -> bool:
        """Whether rows may be added to the queue: with an order by key, after all direct requests
        were answered.
        """
        return not self._direct_keys

    def add(self, columns: OutgoingColumns) -> None:
        """Put records into the queue, or into aggregates."""
        for record in columns.records():
            self._add_all([record] if self._packer is None else self._packer.add(record))

    def flush(self) -> None:
        """Put the aggregates that are not full into the queue."""
        self._add_all([] if self._packer is None else self._packer.flush())

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
        return self._client.list_shards()

    def _add_all(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            if len(users_of(record)) == 1 and record.size_bytes > self.most_record_bytes:
                # Rows are checked before. This one is an aggregate that had to be put into another.
                raise UnwritableRecordError(
                    "a row is an aggregate itself. Packed into another aggregate it takes "
                    f"{record.size_bytes} bytes, more than the {self.most_record_bytes} that "
                    f"stream {self._name} accepts",
                    "split the row, or leave option aggregate out",
                )
            self.queue.add(record)

    def close(self) -> None:
        self._client.close()


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
        self._pool: Executor = new_pool(settings.requests_in_flight, "kinesis-put")
        self._targets: dict[str | None, TargetStream] = {}
        # Each request, and the method that takes its answer.
        self._in_flight: dict[Future[Any], Callable[[Any], None]] = {}
        self._accepted_s = clock.monotonic_s()
        self._most_waiting_bytes = 2 * settings.requests_in_flight * REQUEST_BYTES
        self._most_waiting = 2 * settings.requests_in_flight * REQUEST_RECORDS
        self.counts = PutCounts()

    def write(self, batches: Iterable[pa.RecordBatch]) -> PutCounts:
        for batch in batches:
            self._accepted_s = self._clock.monotonic_s()  # Spark may have taken its time
            # The stream of the option is opened here, not before: a task without rows needs none.
            own = self._target(None) if self._settings.stream is not None else None
            most_bytes = MOST_RECORD_BYTES if own is None else own.most_record_bytes
            for stream, rows in checked(batch, self._columns, most_bytes):
                target = self._target(stream)
                for run in rows.runs(by_key=target.by_key):
                    columns = run.columns()
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
            target.close()

    # private --------------------------------------------------------------------------------------
    def _pass_on(self, target: TargetStream, run: SinkRows, columns: OutgoingColumns) -> bool:
        """Put a run directly, or add it to the queue. False if it has to wait."""
        now_s = self._clock.monotonic_s()
        self._start_queued(now_s)
        if self._is_full():
            return False
        if not target.is_direct(now_s):
            if not target.may_add():
                return False
            target.add(columns)
            return True
        if not self._may_start() or not target.may_put(columns):
            return False
        target.on_sent(columns)
        future = self._pool.submit(target.putter.put_columns, columns)
        self._in_flight[future] = partial(self._on_direct_answer, target, run, columns)
        self.counts.requests += 1
        return True

    def _target(self, stream: str | None) -> TargetStream:
        """The target of a row: the stream that it names, or the one of the option."""
        if stream not in self._targets:
            ref = self._settings.stream or StreamRef.of(stream or "")
            aws = self._surroundings.around(self._settings.aws, ref)
            settings = replace(self._settings, aws=aws)
            self._targets[stream] = TargetStream(settings, ref, self._clock)
        return self._targets[stream]

    def _is_full(self) -> bool:
        records = size_bytes = 0
        for target in self._targets.values():
            records += len(target.queue)
            size_bytes += target.queue.waiting_bytes
        return records >= self._most_waiting or size_bytes >= self._most_waiting_bytes

    def _step(self) -> None:
        """Start the requests that may be put now. Then wait for an answer, or until more may be."""
        now_s = self._clock.monotonic_s()
        self._start_queued(now_s)
        pause_s = self._pause_s(now_s)
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

    def _pause_s(self, now_s: float) -> float | None:
        """Seconds until a waiting record may be put; None while none waits."""
        times = [target.queue.ready_at_s(now_s) for target in self._targets.values()]
        return min((time - now_s for time in times if time is not None), default=None)

    def _on_direct_answer(
        self, target: TargetStream, run: SinkRows, columns: OutgoingColumns, refused: dict[int, str]
    ) -> None:
        now_s = self._clock.monotonic_s()
        target.on_direct_answer(columns, refused, now_s)
        self.counts.records += len(run) - len(refused)
        self.counts.retries += len(refused)
        self.counts.size_bytes += run.size_bytes - sum(int(run.sizes[index]) for index in refused)
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
