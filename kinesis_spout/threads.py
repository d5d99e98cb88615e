"""Threads: loops that repeat one step, and pools for work on several shards at the same time.

Callers are given these as functions (`StartLoop`, `NewPool`). A test or a simulation passes
functions that run every call in the caller's thread, so that a seed determines the whole history.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol

log = logging.getLogger("kinesis_spout")

Step = Callable[[], float]
"""Does the work that is due. Returns the seconds until more work is due."""

_JOIN_S = 30.0


class Loop(Protocol):
    """A step that is repeated until `stop`."""

    def wake(self) -> None:
        """Run the step soon, regardless of the time it returned. Any thread; never blocks."""
        ...

    def stop(self) -> None:
        """Start no further step. Waits for the one that is running."""
        ...


StartLoop = Callable[[str, Step, Callable[[Exception], None]], Loop]
"""Starts a loop: its name, its step, and the receiver of an error of the step, which ends the loop.
"""

NewPool = Callable[[int, str], Executor]
"""Creates an executor: its maximum number of threads, and the prefix of their names. The caller
shuts it down.
"""


class ThreadLoop:
    """The loop of production, in a daemon thread: a program that does not close the spout can still
    exit.
    """

    def __init__(self, name: str, step: Step, on_error: Callable[[Exception], None]) -> None:
        self._step = step
        self._on_error = on_error
        self._woken = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"kinesis-spout-{name}", daemon=True)

    @classmethod
    def start(cls, name: str, step: Step, on_error: Callable[[Exception], None]) -> ThreadLoop:
        """Create a loop and start its thread."""
        loop = cls(name, step, on_error)
        loop._thread.start()
        return loop

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self._stopped = True
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)
            if self._thread.is_alive():
                log.warning(
                    "thread %s is still busy after %.0f s and is left running",
                    self._thread.name,
                    _JOIN_S,
                )

    def _run(self) -> None:
        while True:
            self._woken.clear()
            # Read after clear(): a stop() before it is seen here, a stop() after it sets the event.
            if self._stopped:
                return
            try:
                wait_s = self._step()
            except Exception as exc:  # noqa: BLE001  # any error goes to the user of the spout
                self._on_error(exc)
                return
            if wait_s > 0:
                self._woken.wait(wait_s)


def thread_pool(max_threads: int, name: str) -> Executor:
    """The pool of production: its threads are started as they are needed."""
    return ThreadPoolExecutor(max_threads, thread_name_prefix=name)
