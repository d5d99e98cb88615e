"""Loops in threads of their own: each repeats one step, and waits as long as the step says, or
until it is woken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("kinesis_spout")

Step = Callable[[], float]
"""Does what is due, and says in how many seconds there is more to do."""

_JOIN_S = 30.0


class Loop(Protocol):
    """A step that is being repeated."""

    def wake(self) -> None:
        """Have the step done soon, whatever it said. Safe from any thread, never blocks."""
        ...

    def stop(self) -> None:
        """Have no more steps; waits for one that is under way."""
        ...


StartLoop = Callable[[str, Step, Callable[[Exception], None]], Loop]
"""Starts to repeat a step under a name. An error that it raises ends the repeating and goes to the
last argument.
"""


class ThreadLoop:
    """The loop of production: a daemon thread, so that a program that forgets to close the spout
    can end.
    """

    def __init__(self, name: str, step: Step, on_error: Callable[[Exception], None]) -> None:
        self._step = step
        self._on_error = on_error
        self._woken = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"kinesis-spout-{name}", daemon=True)

    @classmethod
    def start(cls, name: str, step: Step, on_error: Callable[[Exception], None]) -> ThreadLoop:
        """A loop that runs."""
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
                    "thread %s is still busy after %.0f s and is left alone",
                    self._thread.name,
                    _JOIN_S,
                )

    def _run(self) -> None:
        while True:
            self._woken.clear()
            if self._stopped:  # looked at after: a stop that came just before is not slept over
                return
            try:
                wait_s = self._step()
            except Exception as exc:  # noqa: BLE001  # whatever it is, the spout's user gets it
                self._on_error(exc)
                return
            if wait_s > 0:
                self._woken.wait(wait_s)
