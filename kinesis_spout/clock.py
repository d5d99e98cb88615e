"""The clock: the one place that asks the machine for the time or sleeps. Everything else takes a
`Clock`.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time and waiting, as something that a test can replace."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC, by this machine's clock (which is not the service's)."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an unknown start that never go back; for measuring durations within one
        process.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread for so many seconds; zero and less do not block."""
        ...


class SystemClock:
    """The machine's clock. Has no state, so it can be pickled and shared by threads."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(
        time.monotonic
    )  # no function around it: it is asked twice for every record of a spout

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)  # noqa: TID251  # the one place that may

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SystemClock)

    def __hash__(self) -> int:
        return hash(SystemClock)
