"""A clock in simulated time, which stands still until a test moves it."""

from __future__ import annotations

import math
import threading

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class ManualClock:
    """A `kinesis_spout.clock.Clock` in simulated time. `sleep` advances it and returns at once.

    Any thread may use it. It starts at `start_ms`, in ms since 1970.
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._passed_s = 0.0
        self._back_s = 0.0
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._start_ms + round((self._passed_s - self._back_s) * 1_000)

    def monotonic_s(self) -> float:
        return self._passed_s

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass without waiting. Zero and negative values do nothing."""
        with self._lock:
            if seconds > 0:
                # A wait that is rounded away would never be over.
                later_s = math.nextafter(self._passed_s, math.inf)
                self._passed_s = max(self._passed_s + seconds, later_s)

    advance = sleep

    def set_back(self, seconds: float) -> None:
        """Correct the time of day, as an operator does. The monotonic time continues."""
        with self._lock:
            self._back_s += seconds
