"""What the topics share: how one application's nodes are read, and written once for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from state.codec.values import decode
from state.znodes.tree import Create, TransactionRefusedError

if TYPE_CHECKING:
    from state.znodes.fence import Fence
    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import Znode, ZnodeTree

T = TypeVar("T")


class Nodes:
    """One application's nodes. A topic writes them behind the fence, unless anybody may write
    them.
    """

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths, fence: Fence) -> None:
        self._tree = tree
        self._paths = paths
        self._fence = fence

    def _read(self, path: str) -> Znode | None:
        return self._tree.read([path])[0]

    def _decoded(self, path: str, kind: type[T]) -> T | None:
        """The value of a node of this kind; None without the node. Raises `StoredDataError`."""
        node = self._read(path)
        return None if node is None else decode(node.data, kind, path)

    def _names(self, path: str) -> list[str]:
        """The names of a node's children in order; none without the node."""
        return sorted(self._tree.children([path])[0] or ())

    def _create_once(self, path: str, data: bytes, *, as_owner: bool = False) -> bytes:
        """The content of a node, which is created with `data` if there is none.

        `as_owner`: the creation is a write of the owner, so that a stale owner creates nothing.
        """
        while True:
            node = self._read(path)
            if node is not None:
                return node.data
            self._tree.ensure(self._paths.base)
            try:
                (self._fence if as_owner else self._tree).commit([Create(path, data)])
            except TransactionRefusedError:
                continue  # another process was faster, or the answer to this call was lost
            return data
