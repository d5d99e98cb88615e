"""Writes the history of an application while it runs. Blocks on the store."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from state.errors import (
    ConflictError,
    StateTooLargeError,
    StoredDataError,
    StoreUnavailableError,
)
from state.moves import max_entries, merged, resume_position, time_of_next, to_drop
from state.store.history import HistoryEntry, HistoryIndex, HistoryMark

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
    """One per process that owns an application, or leads its tasks. For any thread.

    The first entry of a process has all shards. A failure is logged and nothing more: who goes back
    then goes further back.
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
                    "the history of the checkpoints cannot be written to ZooKeeper at present: %s",
                    exc,
                )
            took_s = self._clock.monotonic_s() - begun_s
            self._due_s = begun_s + max(INTERVAL_S, took_s / MAX_SHARE)

    def _written(
        self, states: Mapping[str, StoredState], now_ms: int, retention_ms: int | None
    ) -> _Recorded:
        is_first = self._recorded is None
        last = self._recorded or _Recorded(self._history.index(), {}, {})
        positions = {shard: resume_position(stored.state) for shard, stored in states.items()}
        changed = {shard: at for shard, at in positions.items() if last.positions.get(shard) != at}
        if not changed:
            return _Recorded(last.index, states, positions)
        # Also where most have changed: such an entry takes the place of the one before it without
        # being written again.
        full = is_first or len(changed) * 2 >= len(states)
        entry = HistoryEntry(
            time_ms=time_of_next(last.index.marks, now_ms, after_ms=1),
            positions=positions if full else changed,
            full=full,
        )
        horizon_ms = None if retention_ms is None else now_ms - retention_ms
        added, removed = thinned(
            self._history, last.index, now_ms=now_ms, horizon_ms=horizon_ms, shards=len(states)
        )
        added.append((last.index.next, entry))
        index = self._history.write(last.index, added, remove=removed)
        return _Recorded(index, states, positions)


def thinned(
    history: HistoryStore, index: HistoryIndex, *, now_ms: int, horizon_ms: int | None, shards: int
) -> tuple[list[tuple[int, HistoryEntry]], list[HistoryMark]]:
    """The entries that take the place of others, and those others, to make room for one more.
    Blocks on the store. Raises `ConflictError` where an entry was removed meanwhile.
    """
    added: list[tuple[int, HistoryEntry]] = []
    removed: list[HistoryMark] = []
    drops = to_drop(
        index.marks, now_ms=now_ms, horizon_ms=horizon_ms, max_kept=max_entries(shards) - 1
    )
    # The difference is the same for those that follow each other.
    for _, run in groupby(enumerate(drops), key=lambda drop: drop[1] - drop[0]):
        (_, first), *_ = others = list(run)
        end = first + len(others)
        dropped, following = index.marks[first:end], index.marks[end]
        removed += dropped
        if following.full:
            continue
        # An entry with all shards needs none of those before it.
        full = max((at for at, mark in enumerate(dropped) if mark.full), default=0)
        entries = history.read([*dropped[full:], following])
        both = entries[0]
        for entry in entries[1:]:
            if both is None or entry is None:
                raise ConflictError(
                    f"another process removed entry {dropped[0].number} of the checkpoint history"
                )
            both = merged(both, entry)
        if both is not None:
            added.append((dropped[0].number, both))
        removed.append(following)
    return added, removed
