"""The records of one stream that wait to be put, and those in flight: which go into the next
request, and what a refusal holds back. Pure: `spark_job.sink.record_writer` calls the service.

Records wait by shard, so that a shard that refuses holds back no other. With an order by key, a key
has at most one record in flight: PutRecords does not keep the order of a request's records, and may
accept a later one of a key while it refuses the earlier (API reference of PutRecords).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.service.record_putter import REQUEST_BYTES, REQUEST_RECORDS
from kinesis_spout.service.shard_info import hash_key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesis_spout.service.record_putter import OutgoingRecord, PutResult
    from kinesis_spout.service.shard_info import ShardInfo


class OpenShards:
    """Which shard a record goes to, by the newest listing of the stream's shards.

    `ignores_keys`: the service decides, as in a stream with record distribution AUTO.
    """

    def __init__(self, shards: Iterable[ShardInfo], *, ignores_keys: bool = False) -> None:
        self.ignores_keys = ignores_keys
        ranges = sorted(
            (shard.hash_key_range[0], shard.shard_id) for shard in shards if not shard.is_closed
        )
        self._starts = [start for start, _ in ranges]
        self._ids = [shard_id for _, shard_id in ranges]

    def of(self, record: OutgoingRecord) -> str:
        """The shard's id; empty while no open shard is listed, and where the service decides."""
        if self.ignores_keys:
            return ""
        hash_key = hash_key_of(record.partition_key, record.explicit_hash_key)
        index = bisect_right(self._starts, hash_key) - 1
        return self._ids[index] if index >= 0 else ""

    @property
    def sharing(self) -> int:
        """How many shards may take a record of one id of `of`."""
        return max(1, len(self._ids)) if self.ignores_keys else 1


@dataclass(frozen=True, slots=True)
class Waiting:
    """A record that is to be put, and the shard that it is expected in."""

    record: OutgoingRecord
    shard_id: str
    size_bytes: int


class PutQueue:
    """For one thread. Times are seconds of one monotonic clock. `by_key`: the records of a
    partition key are put in their order.
    """

    def __init__(self, shards: OpenShards, *, by_key: bool) -> None:
        self.shards = shards
        self._by_key = by_key
        self._waiting: dict[str, deque[Waiting]] = {}
        self._pacers: dict[str, PutPacer] = {}
        # By key that has a record in `_waiting` or in flight: its later records.
        self._held: dict[str, deque[OutgoingRecord]] = {}
        self.waiting_bytes = 0  # including those in flight
        self._pending = 0

    def __len__(self) -> int:
        """Records that are not accepted yet."""
        return self._pending

    def add(self, record: OutgoingRecord) -> None:
        self._pending += 1
        self.waiting_bytes += record.size_bytes
        if self._by_key and record.partition_key in self._held:
            self._held[record.partition_key].append(record)
            return
        if self._by_key:
            self._held[record.partition_key] = deque()
        self._append(record)

    def take(self, now_s: float) -> list[Waiting]:
        """The records of the next request, within the limits of a request and of their shards;
        empty while none may be put.
        """
        request: list[Waiting] = []
        left_bytes = REQUEST_BYTES
        for shard_id, queue in list(self._waiting.items()):
            pacer = self._pacer(shard_id)
            may_records, may_bytes = pacer.may_send(now_s)
            records = taken_bytes = 0
            while queue and len(request) < REQUEST_RECORDS:
                is_full = queue[0].size_bytes > left_bytes and request
                if is_full or records + 1 > may_records or taken_bytes >= may_bytes:
                    break
                request.append(queue.popleft())
                records += 1
                taken_bytes += request[-1].size_bytes
                left_bytes -= request[-1].size_bytes
            pacer.on_sent(records, taken_bytes)
            # To the end of the round, whether it has more records or not: every shard has its turn.
            del self._waiting[shard_id]
            if queue:
                self._waiting[shard_id] = queue
            if len(request) == REQUEST_RECORDS or left_bytes <= 0:
                break
        return request

    def ready_at_s(self, now_s: float) -> float | None:
        """When `take` has a request: `now_s` or later; None while nothing waits."""
        times = [self._pacer(shard_id).ready_at_s(now_s) for shard_id in self._waiting]
        return min(times, default=None)

    def add_refused(self, records: Sequence[OutgoingRecord], now_s: float) -> None:
        """Add records that were refused in a request that was not taken from here."""
        for shard_id in {self.shards.of(record) for record in records}:
            self._pacer(shard_id).on_refused(now_s)
        for record in records:
            self.add(record)

    def on_answer(
        self, request: Sequence[Waiting], results: Sequence[PutResult], now_s: float
    ) -> int:
        """Note the outcomes of a request, in its order. The refused records wait again, before the
        others of their shards. Returns the number of refused ones.
        """
        refused = []
        for waiting, result in zip(request, results, strict=True):
            if result.error_code is None:
                self._on_accepted(waiting)
            else:
                refused.append(waiting)
        for shard_id in {waiting.shard_id for waiting in refused}:
            self._pacer(shard_id).on_refused(now_s)
        for waiting in reversed(refused):  # the last one first, so that they keep their order
            self._waiting.setdefault(waiting.shard_id, deque()).appendleft(waiting)
        return len(refused)

    def _on_accepted(self, waiting: Waiting) -> None:
        self._pending -= 1
        self.waiting_bytes -= waiting.size_bytes
        held = self._held.get(waiting.record.partition_key)
        if held:
            self._append(held.popleft())
        elif held is not None:
            del self._held[waiting.record.partition_key]

    def _append(self, record: OutgoingRecord) -> None:
        waiting = Waiting(record, self.shards.of(record), record.size_bytes)
        self._waiting.setdefault(waiting.shard_id, deque()).append(waiting)

    def _pacer(self, shard_id: str) -> PutPacer:
        return self._pacers.setdefault(shard_id, PutPacer(self.shards.sharing))


def is_elsewhere(request: Sequence[Waiting], results: Sequence[PutResult]) -> bool:
    """Whether a record was put in another shard than expected: the listing is out of date."""
    return any(
        result.shard_id is not None and result.shard_id != waiting.shard_id
        for waiting, result in zip(request, results, strict=True)
    )


RECORDS_PER_SECOND = 1000.0
BYTES_PER_SECOND = 1024.0 * 1024.0
_BURST_S = 0.5  # what an idle shard may save up; the service itself forgives about a second
_SMALLEST_SHARE = 1 / 64
_AFTER_REFUSAL = 0.7
_RISE_PER_SECOND = 1.1
_PAUSE_S = 0.1


class PutPacer:
    """How much may be sent to one shard now. For one thread. Times are seconds of one monotonic
    clock. `shards`: how many there are, where nobody knows which of them takes a record.

    A shard takes 1,000 records and 1 MiB a second from all of its producers together (Kinesis
    quotas). A shard that has never refused a record is not limited: emulators and a stream whose
    limits were raised are written to as fast as they answer. From the first refusal on, it gets
    what the service allows, times a share that falls with each refusal and rises with what is
    accepted: other producers, the other tasks of this write among them, use the rest.
    """

    def __init__(self, shards: int = 1) -> None:
        self._records_per_second = RECORDS_PER_SECOND * shards
        self._bytes_per_second = BYTES_PER_SECOND * shards
        self._share = math.inf  # not limited
        self._records = self._bytes = 0.0  # what may be sent at `_counted_s`; below 0: a debt
        self._counted_s = 0.0
        self._paused_until_s = -math.inf

    @property
    def is_limited(self) -> bool:
        return self._share < math.inf

    def may_send(self, now_s: float) -> tuple[float, float]:
        """Records and bytes that may be sent now. At least one record may be, whatever its size,
        when both are above 0: what it has too much is paid off before the next.
        """
        if not self.is_limited:
            return math.inf, math.inf
        if now_s < self._paused_until_s:
            return 0.0, 0.0
        self._count(now_s)
        return self._records, self._bytes

    def ready_at_s(self, now_s: float) -> float:
        """When a record may be sent: `now_s` or later."""
        if not self.is_limited:
            return now_s
        self._count(max(now_s, self._counted_s))
        missing_s = max(
            (1.0 - self._records) / (self._records_per_second * self._share),
            (1.0 - self._bytes) / (self._bytes_per_second * self._share),
            0.0,
        )
        return max(now_s, max(self._counted_s, self._paused_until_s) + missing_s)

    def on_sent(self, records: int, size_bytes: int) -> None:
        if self.is_limited:
            self._records -= records
            self._bytes -= size_bytes

    def on_refused(self, now_s: float) -> None:
        """The shard has refused records of a request."""
        if not self.is_limited:
            self._share, self._counted_s = 1.0, now_s
        elif now_s >= self._paused_until_s:  # the other requests in flight were sent as fast
            self._share = max(_SMALLEST_SHARE, self._share * _AFTER_REFUSAL)
        # What was saved up is gone, since the shard has refused it; a debt stays.
        self._records, self._bytes = min(self._records, 0.0), min(self._bytes, 0.0)
        self._paused_until_s = now_s + _PAUSE_S

    def _count(self, now_s: float) -> None:
        """Add what has become free since the last count."""
        passed_s = max(0.0, now_s - max(self._counted_s, self._paused_until_s))
        if passed_s:
            self._share = min(1.0, self._share * _RISE_PER_SECOND**passed_s)
        records_s = self._records_per_second * self._share
        bytes_s = self._bytes_per_second * self._share
        self._records = min(self._records + records_s * passed_s, max(1.0, records_s * _BURST_S))
        self._bytes = min(self._bytes + bytes_s * passed_s, max(1.0, bytes_s * _BURST_S))
        self._counted_s = max(self._counted_s, now_s)
