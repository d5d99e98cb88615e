"""Puts the records of one Spark task: several requests in flight, refused records again, until all
of them are accepted.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import (
    REQUEST_BYTES,
    REQUEST_RECORDS,
    RecordPutter,
    refusal,
)
from kinesis_spout.shards.shard_packer import ShardPacker, user_count
from kinesis_spout.threads import NewPool, thread_pool
from spark_job.sink.put_queue import OpenShards, PutQueue, Waiting, is_elsewhere
from spark_job.sink.sink_columns import MOST_RECORD_BYTES, UnwritableRecordError, outgoing
from spark_job.sink.sink_settings import BY_KEY, refuse_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from kinesis_spout.service.record_putter import OutgoingRecord, PutResult
    from kinesis_spout.service.shard_info import ShardInfo
    from spark_job.sink.sink_columns import SinkColumns
    from spark_job.sink.sink_settings import SinkSettings

RELIST_S = 10.0
RELIST_TO_PACK_S = 1.0
_SYSTEM_CLOCK = SystemClock()


@dataclass(slots=True)
class PutCounts:
    """What a write has done. `records`: rows that were put; `retries`: rows that were put again
    after a refusal, or since a reshard put their aggregate elsewhere. `size_bytes`: data and keys
    of the accepted Kinesis records.
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
    """One stream that is written to: its connection, its shards, and its queue."""

    def __init__(self, settings: SinkSettings, stream: StreamRef, clock: Clock) -> None:
        self._client = KinesisClient(settings.aws, stream, clock=clock)
        self._clock = clock
        self._name = stream.name
        self.putter = RecordPutter(
            settings.aws, stream, clock=clock, retry_for_s=settings.retry_for_ms / 1000
        )
        summary = self._client.describe()
        if summary.ignores_keys:
            refuse_keys(settings, stream)
        self._ignores_keys = summary.ignores_keys
        self.most_record_bytes = summary.max_record_bytes or MOST_RECORD_BYTES
        shards = self._list()
        self.queue = PutQueue(self._open(shards), by_key=settings.ordering == BY_KEY)
        self._packer = ShardPacker(shards) if settings.aggregate else None

    def add(self, record: OutgoingRecord) -> None:
        """Put a record into the queue, or into an aggregate. Raises `UnwritableRecordError`."""
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
        return user_count(record) - len(strays)

    def relist(self) -> None:
        """List the shards again, since the stream was resharded; at most every ten seconds, or
        every second where records of aggregates are put again until then.
        """
        pause_s = RELIST_S if self._packer is None else RELIST_TO_PACK_S
        if self._clock.monotonic_s() - self._listed_s < pause_s:
            return
        shards = self._list()
        self.queue.shards = self._open(shards)
        if self._packer is not None:
            self._add_all(self._packer.on_shards(shards))

    def _list(self) -> tuple[ShardInfo, ...]:
        self._listed_s = self._clock.monotonic_s()
        return self._client.list_shards()

    def _open(self, shards: Iterable[ShardInfo]) -> OpenShards:
        return OpenShards(shards, ignores_keys=self._ignores_keys)

    def _add_all(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            if user_count(record) == 1 and record.size_bytes > self.most_record_bytes:
                # Rows are checked before. This one is an aggregate that had to be put into another.
                raise UnwritableRecordError(
                    f"a row is an aggregate itself, and takes {record.size_bytes} bytes as the "
                    f"only record of another one, more than the {self.most_record_bytes} that "
                    f"stream {self._name} accepts; split it, or leave option aggregate out"
                )
            self.queue.add(record)

    def close(self) -> None:
        self._client.close()
        self.putter.close()


class _InFlight(NamedTuple):
    target: TargetStream
    request: list[Waiting]


class RecordWriter:
    """Writes Arrow batches as records. For one thread. `close` ends its threads and connections.

    `write` blocks on the network until every record is accepted, holds about twice the records of
    the requests in flight besides the batch that it is given, and raises `KinesisError`; then any
    of the records may have been put.
    """

    def __init__(
        self,
        settings: SinkSettings,
        columns: SinkColumns,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        new_pool: NewPool = thread_pool,
    ) -> None:
        self._settings = settings
        self._columns = columns
        self._clock = clock
        self._pool: Executor = new_pool(settings.requests_in_flight, "kinesis-put")
        self._targets: dict[str | None, TargetStream] = {}
        self._in_flight: dict[Future[list[PutResult]], _InFlight] = {}
        self._accepted_s = clock.monotonic_s()
        self._most_waiting_bytes = 2 * settings.requests_in_flight * REQUEST_BYTES
        self._most_waiting = 2 * settings.requests_in_flight * REQUEST_RECORDS
        self.counts = PutCounts()

    def write(self, batches: Iterable[pa.RecordBatch]) -> PutCounts:
        for batch in batches:
            self._accepted_s = self._clock.monotonic_s()  # Spark may have taken its time
            for record, stream in self._outgoing(batch):
                target = self._target(stream)
                while self._is_full():
                    self._step()
                target.add(record)
        for target in self._targets.values():
            target.flush()
        while any(len(target.queue) for target in self._targets.values()):
            self._step()
        return self.counts

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for target in self._targets.values():
            target.close()

    # private --------------------------------------------------------------------------------------
    def _outgoing(self, batch: pa.RecordBatch) -> Iterator[tuple[OutgoingRecord, str | None]]:
        own = self._target(None) if self._settings.stream is not None else None
        most_bytes = MOST_RECORD_BYTES if own is None else own.most_record_bytes
        return outgoing(batch, self._columns, most_bytes)

    def _target(self, stream: str | None) -> TargetStream:
        """The target of a row: the stream that it names, or the one of the option."""
        if stream not in self._targets:
            ref = self._settings.stream or StreamRef.of(stream or "")
            self._targets[stream] = TargetStream(self._settings, ref, self._clock)
        return self._targets[stream]

    def _is_full(self) -> bool:
        records = size_bytes = 0
        for target in self._targets.values():  # no generators: it is asked for every record
            records += len(target.queue)
            size_bytes += target.queue.waiting_bytes
        return records >= self._most_waiting or size_bytes >= self._most_waiting_bytes

    def _step(self) -> None:
        """Start the requests that may be put now. Then wait for an answer, or until more may be."""
        now_s = self._clock.monotonic_s()
        for target in self._targets.values():
            while self._may_start() and (request := target.queue.take(now_s)):
                future = self._pool.submit(
                    target.putter.put_once, [each.record for each in request]
                )
                self._in_flight[future] = _InFlight(target, request)
                self.counts.requests += 1
        pause_s = self._pause_s(now_s)
        if not self._in_flight:
            self._clock.sleep(pause_s or 0.0)
            return
        done, _ = wait(self._in_flight, pause_s if self._may_start() else None, FIRST_COMPLETED)
        for future in done:
            self._on_answer(*self._in_flight.pop(future), future.result())

    def _may_start(self) -> bool:
        return len(self._in_flight) < self._settings.requests_in_flight

    def _pause_s(self, now_s: float) -> float | None:
        """Seconds until a waiting record may be put; None while none waits."""
        times = [target.queue.ready_at_s(now_s) for target in self._targets.values()]
        return min((time - now_s for time in times if time is not None), default=None)

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
                self.counts.retries += user_count(waiting.record) - put
            else:
                self.counts.retries += user_count(waiting.record)
        self.counts.size_bytes += sum(
            waiting.size_bytes
            for waiting, result in zip(request, results, strict=True)
            if result.error_code is None
        )
        if refused < len(request):
            self._accepted_s = now_s
        codes = {result.error_code for result in results if result.error_code is not None}
        is_over = now_s - self._accepted_s >= self._settings.retry_for_ms / 1000
        for code in sorted(codes):
            error = refusal(code, target.putter.where)
            if is_over or not error.retryable:
                raise error
