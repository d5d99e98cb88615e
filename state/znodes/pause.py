"""The pause of an application as a znode, which any operator may create and remove.

Consumers obey its existence alone. So a node that a person has created by hand pauses, too,
whatever it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.codec.values import decode, encode
from state.errors import InvalidPositionError, StateError, StoredDataError
from state.position import Position
from state.store.pause import Pause
from state.znodes.nodes import Nodes
from state.znodes.tree import Delete, Refusal, TransactionRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


class PauseZnodes(Nodes):
    """A `PauseStore`."""

    def begin(self, pause: Pause) -> Pause:
        path = self._paths.paused
        return _pause(self._create_once(path, encode(pause, path)), path)

    def end(self) -> Pause | None:
        path = self._paths.paused
        stored = self.read()
        if stored is None:
            return None
        try:
            self._tree.commit([Delete(path)])
        except TransactionRefusedError as refused:
            if refused.refusal is Refusal.NO_NODE:
                return stored if refused.uncertain else None  # else another operator was faster
            raise StateError(
                f"{path} has nodes below it, so the pause cannot be ended", "remove these first"
            ) from refused
        return stored

    def read(self) -> Pause | None:
        node = self._read(self._paths.paused)
        return None if node is None else _pause(node.data, self._paths.paused)

    def watch(self, callback: Callable[[], None]) -> None:
        self._tree.watch(self._paths.paused, callback)


def _pause(data: bytes, path: str) -> Pause:
    """What can be read of a node that a person may have written."""
    try:
        pause = decode(data, Pause, path)
        if pause.since_ms is not None:
            Position.at_timestamp(pause.since_ms)  # microseconds are no time that can be shown
    except StoredDataError:
        return Pause()
    except InvalidPositionError:
        return replace(pause, since_ms=None)
    return pause
