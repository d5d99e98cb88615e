"""Whether an operator has paused the application, as a running consumer knows it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.clock import Clock
    from state.store.pause import Pause, PauseStore

log = logging.getLogger("kinesis_spout")
HOLD_S = 10.0  # between two checks of the ownership: nothing else writes during a pause


class PauseWatch:
    """Follows the node `paused` by a watch, so that a look costs no read while nothing changes.

    One thread calls all but `is_on`, which any thread may ask. `on_change` is called from a thread
    of the store when the node may have changed: then call `look`.
    """

    def __init__(
        self,
        store: PauseStore,
        clock: Clock,
        application: str,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._application = application
        self._on_change = on_change
        self._may_have_changed = True
        self._held_s = float("-inf")
        self.pause: Pause | None = None
        self.meanwhile = "it keeps its ownership and reads nothing"  # for the log

    def begin(self) -> None:
        """Watch from now on. Blocks on the store."""
        self._store.watch(self._on_watch)

    @property
    def is_on(self) -> bool:
        """Whether the application was paused at the last look."""
        return self.pause is not None

    def look(self) -> bool:
        """Whether the application is paused. Reads the node only after a change of it; logs when a
        pause begins and ends.
        """
        if self._may_have_changed:
            # Before the read: a change during it is looked at again.
            self._may_have_changed = False
            try:
                pause = self._store.read()
            except BaseException:
                self._may_have_changed = True
                raise
            if (pause is None) != (self.pause is None):
                self._say(pause)
            self.pause = pause
        return self.is_on

    def hold(self, acquire: Callable[[], object]) -> None:
        """Call `acquire` from time to time during a pause: a session that lapsed is followed by
        another one, and by an error if another process has taken over.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._held_s >= HOLD_S:
            self._held_s = now_s
            acquire()

    def _on_watch(self) -> None:
        self._may_have_changed = True
        self._on_change()

    def _say(self, pause: Pause | None) -> None:
        if pause is None:
            log.warning("the pause of application %s is over: it reads again", self._application)
        else:
            log.warning(
                "application %s is paused%s: %s; end the pause with `kinesis-spout resume`",
                self._application,
                pause_clause(pause),
                self.meanwhile,
            )


def pause_clause(pause: Pause) -> str:
    """` by ann on host-a since 2026-01-31T12:00:00.000Z ('deploy')`, as far as it is known."""
    by = "" if pause.by is None else f" by {_printable(pause.by)}"
    since = "" if pause.since_ms is None else f" since {Position.at_timestamp(pause.since_ms)}"
    reason = "" if pause.reason is None else f" ({pause.reason!r})"
    return f"{by}{since}{reason}"


def _printable(text: str) -> str:
    """The text, quoted with escapes if it has characters that a terminal may obey."""
    return text if text.isprintable() else repr(text)
