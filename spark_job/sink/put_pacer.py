"""Pacing of the puts to one shard: how much may be sent now. Pure.

A shard takes 1,000 records and 1 MiB a second from all of its producers together (Kinesis quotas).
A shard that has never refused a record is not limited: emulators and a stream whose limits were
raised are written to as fast as they answer. From the first refusal on, it gets what the service
allows, times a share that falls with each refusal and rises with what is accepted: other producers,
the other tasks of this write among them, use the rest.
"""

from __future__ import annotations

import math

RECORDS_PER_SECOND = 1000.0
BYTES_PER_SECOND = 1024.0 * 1024.0
_BURST_S = 0.5  # what an idle shard may save up; the service itself forgives about a second
_SMALLEST_SHARE = 1 / 64
_AFTER_REFUSAL = 0.7
_RISE_PER_SECOND = 1.1
_PAUSE_S = 0.1


class PutPacer:
    """One per shard, for one thread. Times are seconds of one monotonic clock. `shards`: how many
    there are, where nobody knows which of them takes a record.
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
