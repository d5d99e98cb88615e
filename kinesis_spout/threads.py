"""Threads: loops that repeat one step, and pools for work on several shards at the same time.

Callers are given these as functions (`StartLoop`, `NewPool`). A test or a simulation passes
functions that run every call in the caller's thread, so that a seed determines the whole history.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")

Step = Callable[[], float]
"""Does the work that is due. Returns the seconds until more work is due."""


class Loop(Protocol):
    """A step that is repeated until `stop`."""

    def wake(self) -> None:
        """Run the step soon, regardless of the time it returned. Any thread; never blocks."""
        ...

    def stop(self) -> None:
        """Start no further step. Any thread; never blocks."""
        ...

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the step that is running, after `stop`. Returns whether it has ended in time.
        None waits for ever.
        """
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

    def join(self, timeout_s: float | None) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._woken.clear()
            # Read after clear(): a stop() before it is seen here, a stop() after it sets the event.
            if self._stopped:
                return
            try:
                if (wait_s := self._step()) > 0:
                    self._woken.wait(wait_s)
            except Exception as exc:  # noqa: BLE001  # any error goes to the user of the spout
                self._on_error(exc)
                return


class DaemonPool(Executor):
    """As `ThreadPoolExecutor`, with daemon threads: a call that hangs does not keep its program
    from exiting, and an error that leaves its `with` block does not wait for the calls. Threads are
    started as they are needed.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._changed = threading.Condition()
        self._work: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._is_shut = False

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        future: Future[_T] = Future()
        with self._changed:
            if self._is_shut:
                raise RuntimeError(f"the thread pool {self._name} is shut down")
            self._work.append((future, partial(fn, *args, **kwargs)))
            if len(self._work) > self._idle and len(self._threads) < self._max_threads:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # as `Executor` has it
        with self._changed:
            self._is_shut = True
            if cancel_futures:
                for future, _ in self._work:
                    future.cancel()
                self._work.clear()
            self._changed.notify_all()
        if wait:
            for thread in self._threads:
                thread.join()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.shutdown(wait=error is None, cancel_futures=error is not None)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            future, call = work
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as exc:  # noqa: BLE001  # the caller of result() gets it
                    future.set_exception(exc)
            del work, future, call  # they may hold payload, and the next work may be far away

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._work or self._is_shut)
            self._idle -= 1
            return self._work.popleft() if self._work else None


def thread_pool(max_threads: int, name: str) -> Executor:
    """A pool whose threads are waited for when the program exits."""
    return ThreadPoolExecutor(max_threads, thread_name_prefix=name)
