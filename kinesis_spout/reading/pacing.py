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
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.backoff import Backoff

if TYPE_CHECKING:
    from random import Random

    from kinesis_spout.config import ReadRate

_REFUSED = Backoff(first_s=0.5, longest_s=8.0)
_LARGEST_PAGE_BYTES = 10 * 1024 * 1024
_RETRY_SHARE_OF_CALLS = 2 / 5  # the rest is for new records
_WAITS_S = 1.5  # who has asked for a slot within this time still waits for it
_KEPT_S = 0.25  # how long the slot is kept


class Pacer:
    """One per shard, for one thread at a time. Times are seconds of one monotonic clock.

    `shard`: of the pacer of a shard's retries, whose calls count for the shard's pacer as well.
    These two are for two threads, which take turns (`_Turns`).
    """

    def __init__(self, rate: ReadRate, shard: Pacer | None = None) -> None:
        # Below one call a second, the window is longer than a second and holds one call.
        self._calls_per_window = max(1, int(rate.reads_per_second))
        self._window_s = self._calls_per_window / rate.reads_per_second
        self._bytes_per_second = rate.bytes_per_second
        self._call_times_s: deque[float] = deque(maxlen=self._calls_per_window)
        self._paid_off_at_s = -math.inf
        self._backoff_until_s = -math.inf
        self._longest_s = _LARGEST_PAGE_BYTES / rate.bytes_per_second + self._window_s
        self._shard = shard
        self._turns: _Turns = _Turns() if shard is None else shard._turns  # noqa: SLF001  # shared
        self.refused_in_a_row = 0  # calls since the last page

    def ready_at_s(self, now_s: float) -> float:
        """When the next call may start: `now_s` or later."""
        free_at_s, turns = self.free_at_s(), self._turns
        if self._shard is not None:
            shard_at_s = max(now_s, self._shard.free_at_s())
            if free_at_s <= shard_at_s:
                turns.asked_s = now_s
            free_at_s = max(free_at_s, shard_at_s)
        elif turns.are_over(self, now_s):
            free_at_s = max(free_at_s, self._call_times_s[-1]) + _KEPT_S
        return max(now_s, free_at_s, turns.others_end_s(self))

    def free_at_s(self) -> float:
        """From when on the limits allow a call, which may be in the past."""
        free_at_s = max(self._paid_off_at_s, self._backoff_until_s)
        if len(self._call_times_s) == self._calls_per_window:
            free_at_s = max(free_at_s, self._call_times_s[0] + self._window_s)
        return free_at_s

    def wait_for_others(self, now_s: float, wait_s: float) -> None:
        """Another process says that it has used up the shard's limits for `wait_s` from now on.

        Its clock may be wrong, so this waits no longer than the largest page blocks a shard.
        """
        self._paid_off_at_s = max(self._paid_off_at_s, now_s + min(wait_s, self._longest_s))

    def begin(self, now_s: float) -> bool:
        """A call starts, unless one of the other pacer of the shard is in flight. `end` follows."""
        begins = self._turns.begin(self, now_s, self._longest_s)
        if begins:
            self.on_fetch(now_s)
            if self._shard is not None:
                self._turns.asked_s = -math.inf
        return begins

    def end(self) -> None:
        """The call has ended, with a page or an error."""
        self._turns.end(self)

    def on_fetch(self, now_s: float) -> None:
        """A call starts."""
        self._call_times_s.append(now_s)
        if self._shard is not None:
            self._shard.on_fetch(now_s)

    def on_page(self, now_s: float, read_bytes: int) -> None:
        """The last call has returned a page. `read_bytes`: of its data and partition keys."""
        self._answered(now_s)
        self.refused_in_a_row = 0
        self._paid_off_at_s = max(self._paid_off_at_s, now_s) + read_bytes / self._bytes_per_second
        if self._shard is not None:
            self._shard.on_page(now_s, read_bytes)

    def back_off(self, now_s: float, random: Random) -> None:
        """The last call was refused, as by throttling: wait longer each time until a page comes."""
        self._answered(now_s)
        self.refused_in_a_row += 1
        self._backoff_until_s = now_s + _REFUSED.wait_s(self.refused_in_a_row, random)
        if self._shard is not None:
            self._shard.back_off(now_s, random)

    def _answered(self, now_s: float) -> None:
        if self._call_times_s:
            self._call_times_s[-1] = now_s


class _Turns:
    """The turns of two pacers of one shard. One call is in flight at a time: how large its page is,
    nobody knows, so the call counts as one of the largest page until it ends. After a call for new
    records, the next slot is the retries' if they wait for one.

    `asked_s`: when the retries asked for a slot last, and nothing but the shard's limits kept them
    from it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Pacer | None = None
        self._ends_s = -math.inf
        self.asked_s = -math.inf

    def others_end_s(self, caller: Pacer) -> float:
        """Until when the call of the other one lasts, at the longest."""
        return -math.inf if self._last is caller else self._ends_s

    def are_over(self, caller: Pacer, now_s: float) -> bool:
        """Whether the slot after this caller's last call is the retries'."""
        return self._last is caller and now_s - self.asked_s < _WAITS_S

    def begin(self, caller: Pacer, now_s: float, longest_s: float) -> bool:
        """Whether the caller may begin a call, which is then in flight."""
        with self._lock:
            if now_s < self.others_end_s(caller):
                return False
            self._last, self._ends_s = caller, now_s + longest_s
            return True

    def end(self, caller: Pacer) -> None:
        """The caller's call has ended."""
        with self._lock:
            if self._last is caller:
                self._ends_s = -math.inf


class ShardPacers:
    """The pacers of the shards that one process reads. Times are on the clock's monotonic scale."""

    def __init__(self, rate: ReadRate) -> None:
        self._rate = rate
        calls_per_second = rate.reads_per_second * _RETRY_SHARE_OF_CALLS
        self._retry_rate = replace(rate, reads_per_second=calls_per_second)
        self._pacers: dict[str, Pacer] = {}
        self._of_retries: dict[str, Pacer] = {}

    def of(self, shard_id: str) -> Pacer:
        """The pace at which the shard is read for new records."""
        return self._pacers.setdefault(shard_id, Pacer(self._rate))

    def of_retries(self, shard_id: str) -> Pacer:
        """The pace at which the shard is read for retries: two of its five calls a second, which
        count for `of`, too.
        """
        pacer = Pacer(self._retry_rate, self.of(shard_id))
        return self._of_retries.setdefault(shard_id, pacer)
