"""Pacing of one shard: when the next call may start without exceeding the service's limits. Pure.

The service allows 5 GetRecords calls and 2 MB a second per shard, and a page of 10 MB blocks the
shard for 5 seconds (API reference of GetRecords). The service sees a call somewhere between its
start and its answer. So a past call counts from its answer, and the next call from its start: then
the service sees no more calls in any second than allowed, whatever the network's delays. A burst of
5 calls is within the limit. The bytes of a page are paid off before the next call.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.backoff import Backoff

if TYPE_CHECKING:
    from random import Random

    from kinesis_spout.config import ReadRate

_REFUSED = Backoff(first_s=0.5, longest_s=8.0)
_LARGEST_PAGE_BYTES = 10 * 1024 * 1024
RETRY_SHARE_OF_CALLS = 2 / 5  # the rest is for new records


class Pacer:
    """One per shard, for one thread at a time. Times are seconds of one monotonic clock."""

    def __init__(self, rate: ReadRate) -> None:
        # Below one call a second, the window is longer than a second and holds one call.
        self._calls_per_window = max(1, int(rate.reads_per_second))
        self._window_s = self._calls_per_window / rate.reads_per_second
        self._bytes_per_second = rate.bytes_per_second
        self._call_times_s: deque[float] = deque(maxlen=self._calls_per_window)
        self._paid_off_at_s = -math.inf
        self._backoff_until_s = -math.inf
        self.refused_in_a_row = 0  # calls since the last page

    def ready_at_s(self, now_s: float) -> float:
        """When the next call may start: `now_s` or later."""
        window_ends_s = -math.inf
        if len(self._call_times_s) == self._calls_per_window:
            window_ends_s = self._call_times_s[0] + self._window_s
        return max(now_s, window_ends_s, self._paid_off_at_s, self._backoff_until_s)

    def wait_for_others(self, now_s: float, wait_s: float) -> None:
        """Another process says that it has used up the shard's limits for `wait_s` from now on.

        Its clock may be wrong, so this waits no longer than the largest page blocks a shard.
        """
        longest_s = _LARGEST_PAGE_BYTES / self._bytes_per_second + self._window_s
        self._paid_off_at_s = max(self._paid_off_at_s, now_s + min(wait_s, longest_s))

    def on_fetch(self, now_s: float) -> None:
        """A call starts."""
        self._call_times_s.append(now_s)

    def on_page(self, now_s: float, read_bytes: int) -> None:
        """The last call has returned a page. `read_bytes`: of its data and partition keys."""
        self._answered(now_s)
        self.refused_in_a_row = 0
        self._paid_off_at_s = max(self._paid_off_at_s, now_s) + read_bytes / self._bytes_per_second

    def back_off(self, now_s: float, random: Random) -> None:
        """The last call was refused, as by throttling: wait longer each time until a page comes."""
        self._answered(now_s)
        self.refused_in_a_row += 1
        self._backoff_until_s = now_s + _REFUSED.wait_s(self.refused_in_a_row, random)

    def _answered(self, now_s: float) -> None:
        if self._call_times_s:
            self._call_times_s[-1] = now_s


class RetryPacer(Pacer):
    """The pacer of a shard's retries: two of the shard's five calls a second, which count for the
    shard as well. For one thread at a time, together with the shard's pacer.
    """

    def __init__(self, rate: ReadRate, shard: Pacer) -> None:
        super().__init__(
            replace(rate, reads_per_second=rate.reads_per_second * RETRY_SHARE_OF_CALLS)
        )
        self._shard = shard

    def ready_at_s(self, now_s: float) -> float:
        return max(super().ready_at_s(now_s), self._shard.ready_at_s(now_s))

    def on_fetch(self, now_s: float) -> None:
        super().on_fetch(now_s)
        self._shard.on_fetch(now_s)

    def on_page(self, now_s: float, read_bytes: int) -> None:
        super().on_page(now_s, read_bytes)
        self._shard.on_page(now_s, read_bytes)

    def back_off(self, now_s: float, random: Random) -> None:
        super().back_off(now_s, random)
        self._shard.back_off(now_s, random)


class ShardPacers:
    """The pacers of the shards that one process reads, each made when it is first asked for. Times
    are on the clock's monotonic scale.
    """

    def __init__(self, rate: ReadRate) -> None:
        self._rate = rate
        self._pacers: dict[str, Pacer] = {}
        self._of_retries: dict[str, RetryPacer] = {}

    def of(self, shard_id: str) -> Pacer:
        """The pace at which the shard is read for new records."""
        if shard_id not in self._pacers:
            self._pacers[shard_id] = Pacer(self._rate)
        return self._pacers[shard_id]

    def of_retries(self, shard_id: str) -> RetryPacer:
        """The pace at which the shard is read for retries. Its reads count for `of`, too."""
        if shard_id not in self._of_retries:
            self._of_retries[shard_id] = RetryPacer(self._rate, self.of(shard_id))
        return self._of_retries[shard_id]
