"""How many openings of a task in a row have not ended in order, as a znode beside its epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.errors import ConflictError
from state.znodes.claim import epoch_number
from state.znodes.tree import Create, Set, TransactionRefusedError, ZnodeTree

if TYPE_CHECKING:
    from state.znodes.fence import Fence
    from state.znodes.paths import ZookeeperPaths


class OpeningZnodes:
    """The part of `StateStore` about openings; the contract is there."""

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths, fence: Fence) -> None:
        self._tree = tree
        self._paths = paths
        self._fence = fence

    def read(self) -> int:
        path = self._path()
        return epoch_number(self._tree.read([path])[0], path)

    def save(self, openings: int) -> None:
        path, data = self._path(), b"%d" % openings
        node = self._tree.read([path])[0]
        try:
            self._fence.commit(
                [Create(path, data) if node is None else Set(path, data, node.version)]
            )
        except TransactionRefusedError as refused:
            raise ConflictError(
                f"{refused.path} was changed by another process meanwhile; nothing was written"
            ) from refused

    def _path(self) -> str:
        held = self._fence.held
        if held is None:
            self._fence.commit([])  # raises
        if held is None or held.task is None:
            raise ValueError("only a task counts its openings; acquire a task's share")
        return self._paths.task_unclosed(held.task)
