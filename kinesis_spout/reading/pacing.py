"""Pacing of one shard: when the next call may start without exceeding the service's limits. Pure.

The service allows 5 GetRecords calls and 2 MB a second per shard, and a page of 10 MB blocks the
shard for 5 seconds (API reference of GetRecords). The service sees a call somewhere between its
start and its answer. So a past call counts from its answer, and the next call from its start: then
the service sees no more calls in any second than allowed, whatever the network's delays. A burst of
5 calls is within the limit. The bytes of a page are paid off before the next call.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import TYPE_CHECKING

from kinesis_spout.backoff import Backoff

if TYPE_CHECKING:
    from random import Random

    from kinesis_spout.config import ReadRate

_REFUSED = Backoff(first_s=0.5, longest_s=8.0)
_LARGEST_PAGE_BYTES = 10 * 1024 * 1024
_RETRY_SHARE_OF_CALLS = 2 / 5  # the rest is for new records
_WAITS_S = 1.5  # a reader of retries that has asked within this time still waits for a slot
_KEPT_S = 0.1  # how long a slot is kept for the other reader


class Pacer:
    """One per shard. Times are seconds of one monotonic clock.

    Two threads may read a shard, one of them for retries. They take turns. One call is in flight at
    a time: how large its page is, nobody knows, so it counts as the largest one until it ends. The
    slot after a call for new records is the retries', if they wait for one. The slot after a call
    for retries is kept for new records, and so is their share of the calls.
    """

    def __init__(self, rate: ReadRate) -> None:
        self._calls = _Window(rate.reads_per_second)
        self._retry_calls = _Window(rate.reads_per_second * _RETRY_SHARE_OF_CALLS)
        self._bytes_per_second = rate.bytes_per_second
        self._longest_s = _LARGEST_PAGE_BYTES / rate.bytes_per_second + self._calls.length_s
        self._paid_off_at_s = -math.inf
        self._backoff_until_s = -math.inf
        self._lock = threading.Lock()
        self._was_for_retries: bool | None = None  # the last call
        self._in_flight_until_s = -math.inf
        self._retries_asked_s = -math.inf
        self.refused_in_a_row = 0  # calls since the last page

    def ready_at_s(self, now_s: float, *, retries: bool = False) -> float:
        """When the next call may start: `now_s` or later. Who asks for `retries` waits for it."""
        ready_at_s = max(self._paid_off_at_s, self._backoff_until_s, self._calls.free_at_s)
        if self._was_for_retries is not retries:
            ready_at_s = max(ready_at_s, self._in_flight_until_s)
        elif retries or now_s - self._retries_asked_s < _WAITS_S:
            ready_at_s = max(ready_at_s, self._calls.times_s[-1]) + _KEPT_S
        if retries:
            self._retries_asked_s = now_s
            ready_at_s = max(ready_at_s, self._retry_calls.free_at_s)
        return max(now_s, ready_at_s)

    def wait_for_others(self, now_s: float, wait_s: float) -> None:
        """Another process says that it has used up the shard's limits for `wait_s` from now on.

        Its clock may be wrong, so this waits no longer than the largest page blocks a shard.
        """
        self._paid_off_at_s = max(self._paid_off_at_s, now_s + min(wait_s, self._longest_s))

    def begin(self, now_s: float, *, retries: bool = False) -> bool:
        """A call starts, and `end` follows. False if it must not, as the other's is in flight."""
        with self._lock:
            if self._was_for_retries is not retries and now_s < self._in_flight_until_s:
                return False
            self._was_for_retries, self._in_flight_until_s = retries, now_s + self._longest_s
            self._calls.times_s.append(now_s)
            if retries:
                self._retry_calls.times_s.append(now_s)
                self._retries_asked_s = -math.inf
            return True

    def end(self, *, retries: bool = False) -> None:
        """The call has ended, with a page or an error."""
        with self._lock:
            if self._was_for_retries is retries:
                self._in_flight_until_s = -math.inf

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
        if self._calls.times_s:
            self._calls.times_s[-1] = now_s


class _Window:
    """So many calls a second: the times of the last ones. Below one call a second, it is longer
    than a second and holds one call.
    """

    def __init__(self, calls_per_second: float) -> None:
        self.times_s: deque[float] = deque(maxlen=max(1, int(calls_per_second)))
        self.length_s = max(1, int(calls_per_second)) / calls_per_second

    @property
    def free_at_s(self) -> float:
        """From when on it has room for a call, which may be in the past."""
        is_full = len(self.times_s) == self.times_s.maxlen
        return self.times_s[0] + self.length_s if is_full else -math.inf


class ShardPacers:
    """The pacers of the shards that one process reads. Times are on the clock's monotonic scale."""

    def __init__(self, rate: ReadRate) -> None:
        self._rate = rate
        self._pacers: dict[str, Pacer] = {}

    def of(self, shard_id: str) -> Pacer:
        """The pace at which the shard is read."""
        return self._pacers.setdefault(shard_id, Pacer(self._rate))
