"""The clock: the only module that reads the machine's time or sleeps. All other code is given a
`Clock`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from kinesis_spout.errors import InterruptedSleepError

if TYPE_CHECKING:
    import threading


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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SystemClock)

    def __hash__(self) -> int:
        return hash(SystemClock)


class InterruptibleClock(SystemClock):
    """The machine's clock. Its sleeps end with `InterruptedSleepError` once `interrupted` is set,
    so that no backoff delays an end.
    """

    __slots__ = ("_interrupted",)

    def __init__(self, interrupted: threading.Event) -> None:
        self._interrupted = interrupted

    def sleep(self, seconds: float) -> None:
        if seconds > 0 and self._interrupted.wait(seconds):
            raise InterruptedSleepError("the spout is being closed")
