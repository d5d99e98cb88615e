"""The callback of a test's watch."""

from __future__ import annotations

import threading

WAIT_S = 30.0


class Bell:
    """`ring` is the callback. `heard` waits for a call, and takes it."""

    def __init__(self) -> None:
        self._rung = threading.Semaphore(0)

    def ring(self) -> None:
        self._rung.release()

    def heard(self, timeout_s: float = WAIT_S) -> bool:
        return self._rung.acquire(timeout=timeout_s)

    def silence(self) -> None:
        """Forget what has rung until now: there may be more than one ring for a change."""
        while self._rung.acquire(blocking=False):
            pass
