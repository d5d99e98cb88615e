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
from state.znodes.tree import Create, Delete, Refusal, TransactionRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import ZnodeTree


class PauseZnodes:
    """A `PauseStore`."""

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths) -> None:
        self._tree = tree
        self._paths = paths

    def begin(self, pause: Pause) -> Pause:
        path = self._paths.paused
        data = encode(pause, path)
        while True:
            stored = self.read()
            if stored is not None:
                return stored
            self._tree.ensure(self._paths.base)
            try:
                self._tree.commit([Create(path, data)])
            except TransactionRefusedError:
                continue  # another operator was faster, or the answer to this call was lost
            return pause

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
                f"{path} has nodes below it, so the pause cannot be ended; remove these first"
            ) from refused
        return stored

    def read(self) -> Pause | None:
        path = self._paths.paused
        node = self._tree.read([path])[0]
        if node is None:
            return None
        try:
            return _with_a_time(decode(node.data, Pause, path))
        except StoredDataError:
            return Pause()

    def watch(self, callback: Callable[[], None]) -> None:
        self._tree.watch(self._paths.paused, callback)


def _with_a_time(pause: Pause) -> Pause:
    """A person's node may have microseconds or less, which are no time that anybody can show."""
    try:
        if pause.since_ms is not None:
            Position.at_timestamp(pause.since_ms)
    except InvalidPositionError:
        return replace(pause, since_ms=None)
    return pause
