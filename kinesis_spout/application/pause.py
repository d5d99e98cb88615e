"""Whether an operator has paused the application, as a running consumer knows it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.store.identity import Pause, PauseStore

log = logging.getLogger("kinesis_spout")
STANDS_STILL = "it keeps its ownership and reads nothing"


class PauseWatch:
    """Follows the node `paused` by a watch, so that a look costs no read while nothing changes. For
    one thread. `on_change` is called from a thread of the store when the node may have changed:
    then call `look`.
    """

    def __init__(self, store: PauseStore, application: str, on_change: Callable[[], None]) -> None:
        self.application = application
        self._store = store
        self._on_change = on_change
        self._may_have_changed = True
        self._is_on = False

    def watch(self) -> None:
        """Watch from now on. Blocks on the store."""
        self._store.watch(self._on_watch)

    def look(self, meanwhile: str) -> bool:
        """Whether the application is paused. Reads the node only after a change of it; logs when a
        pause begins and ends. `meanwhile`: what the consumer does during one.
        """
        if self._may_have_changed:
            # Before the read: a change during it is looked at again.
            self._may_have_changed = False
            try:
                pause = self._store.read()
            except BaseException:
                self._may_have_changed = True
                raise
            if pause is None and self._is_on:
                log.warning(
                    ("the pause of application %s is over: the application reads again"),
                    self.application,
                )
            elif pause is not None and not self._is_on:
                log.warning(
                    "application %s is paused%s: %s; end the pause with `kinesis-spout resume`",
                    self.application,
                    pause_clause(pause),
                    meanwhile,
                )
            self._is_on = pause is not None
        return self._is_on

    def _on_watch(self) -> None:
        self._may_have_changed = True
        self._on_change()


def pause_clause(pause: Pause) -> str:
    """` by ann on host-a since 2026-01-31T12:00:00.000Z ('deploy')`, as far as it is known."""
    by = ""
    if pause.by is not None:
        # Quoted with escapes if it has characters that a terminal may obey.
        by = f" by {pause.by if pause.by.isprintable() else repr(pause.by)}"
    since = "" if pause.since_ms is None else f" since {Position.at_timestamp(pause.since_ms)}"
    reason = "" if pause.reason is None else f" ({pause.reason!r})"
    return f"{by}{since}{reason}"
