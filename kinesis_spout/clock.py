"""The clock: the only module that reads the machine's time or sleeps. All other code is given a
`Clock`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from kinesis_spout.errors import InterruptedSleepError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


class Clock(Protocol):
    """Time and sleeping. Tests and simulations replace it."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC, by this machine's clock (not the service's)."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an unknown start, never going back. For durations within one process."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread for that many seconds; zero and less do not block."""
        ...


class SystemClock:
    """The machine's clock. Stateless: it can be pickled, and shared by threads."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Without a wrapping function: a spout calls it twice per record.
    monotonic_s = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)  # noqa: TID251  # the only place that may sleep


class SteadyTime:
    """A time of day that was known once, `time_ms`, and follows the machine's monotonic clock:
    nobody who sets the machine's clock changes it. Immutable, for any thread.

    A machine that sleeps may stop its monotonic clock. Then this time is too early, and it looks as
    if the machine's clock had been set forward.

    `exact_ms`: returns the time in milliseconds since 1970. A spout calls it twice per record, and
    a method would take several times as long.
    """

    __slots__ = ("_clock", "_local_ahead_ms", "exact_ms")

    def __init__(self, clock: Clock, time_ms: int) -> None:
        self._clock = clock
        monotonic_s = clock.monotonic_s
        passed_ms = monotonic_s() * 1_000
        start_ms = time_ms - passed_ms
        self.exact_ms: Callable[[], float] = lambda: monotonic_s() * 1_000 + start_ms
        self._local_ahead_ms = clock.now_ms() - passed_ms

    def now_ms(self) -> int:
        """The time in whole milliseconds."""
        return round(self.exact_ms())

    def set_forward_ms(self) -> int:
        """By how much the machine's clock was set forward since, or the machine has slept; negative
        if it was set back.
        """
        local_ahead_ms = self._clock.now_ms() - self._clock.monotonic_s() * 1_000
        return round(local_ahead_ms - self._local_ahead_ms)


class InterruptibleClock(SystemClock):
    """The machine's clock. Its sleeps end with `InterruptedSleepError` once `interrupted` is set,
    so that no backoff delays an end.
    """

    __slots__ = ("_interrupted",)

    def __init__(self, interrupted: threading.Event) -> None:
        self._interrupted = interrupted

    def sleep(self, seconds: float) -> None:
        if seconds > 0 and self._interrupted.wait(seconds):
            raise InterruptedSleepError(
                "the wait was interrupted, because the spout is being closed"
            )
