"""Writes the history of an application while it runs. Blocks on the store."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.errors import (
    ConflictError,
    StateTooLargeError,
    StoredDataError,
    StoreUnavailableError,
)
from state.moves import max_entries, resume_position, to_drop
from state.store.history import HistoryEntry, HistoryIndex

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.clock import Clock
    from state.position import Position
    from state.store.history import HistoryStore
    from state.store.shard_states import StoredState

log = logging.getLogger("kinesis_spout")
INTERVAL_S = 10.0
# At most so much of the time goes to the history, however many shards there are.
MAX_SHARE = 0.02
# The service's Date header is cut to whole seconds, so its clock may be ahead by that much. An
# entry may be too late, never too early.
MARGIN_MS = 1_000


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What this process has written last: the list as it is then, the states, and their
    positions.
    """

    index: HistoryIndex
    states: Mapping[str, StoredState]
    positions: Mapping[str, Position]


class HistoryRecorder:
    """One per process that owns an application, or leads its tasks. For any thread. A failure is
    logged and nothing more: who goes back then goes further back.
    """

    def __init__(self, history: HistoryStore, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self._recorded: _Recorded | None = None
        self._due_s = float("-inf")
        self._lock = threading.Lock()

    def record(
        self,
        states: Mapping[str, StoredState],
        *,
        now_ms: int | None,
        retention_ms: int | None,
        at_once: bool = False,
    ) -> None:
        """Write what has changed since the last entry, if something has and it is time; `at_once`:
        also if it is not.

        `states`: as they are stored, in a mapping that never changes. `now_ms`: the service's time,
        None if nobody knows it now: then nothing is written. Raises `StaleOwnerError`.
        """
        if now_ms is None or not states:
            return
        if self._recorded is not None and states is self._recorded.states:
            return
        with self._lock:
            begun_s = self._clock.monotonic_s()
            if begun_s < self._due_s and not at_once:
                return
            try:
                self._recorded = self._written(states, now_ms + MARGIN_MS, retention_ms)
            except ConflictError:
                self._recorded = None  # another task leads, or has led: read its entries
            except (StoreUnavailableError, StoredDataError, StateTooLargeError) as exc:
                self._recorded = None
                log.warning(
                    "cannot write the checkpoint history to ZooKeeper: %s",
                    exc,
                )
            took_s = self._clock.monotonic_s() - begun_s
            self._due_s = begun_s + max(INTERVAL_S, took_s / MAX_SHARE)

    def _written(
        self, states: Mapping[str, StoredState], now_ms: int, retention_ms: int | None
    ) -> _Recorded:
        last = self._recorded or _Recorded(self._history.index(), {}, {})
        positions = {shard: resume_position(stored.state) for shard, stored in states.items()}
        if positions == last.positions:
            return _Recorded(last.index, states, positions)
        horizon_ms = None if retention_ms is None else now_ms - retention_ms
        index = write_entry(
            self._history, last.index, positions, now_ms=now_ms, horizon_ms=horizon_ms
        )
        return _Recorded(index, states, positions)


def write_entry(
    history: HistoryStore,
    index: HistoryIndex,
    positions: Mapping[str, Position],
    *,
    now_ms: int,
    horizon_ms: int | None = None,
    cause: str | None = None,
) -> HistoryIndex:
    """Write the positions of all shards at `now_ms`, and make room for them (`to_drop`). Blocks on
    the store. Raises `ConflictError` when another process has written since `index`.
    """
    marks = index.marks
    # Never earlier than the entry before it, whatever the clock says.
    time_ms = max(now_ms, marks[-1].time_ms) if marks else now_ms
    entry = HistoryEntry(time_ms=time_ms, positions=positions, full=True, cause=cause)
    kept = max_entries(len(positions)) - 1
    drops = to_drop(marks, now_ms=now_ms, horizon_ms=horizon_ms, max_kept=kept)
    return history.write(index, entry, remove=drops)
