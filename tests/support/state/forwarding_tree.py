"""A znode tree that forwards to another one: the base of trees that interfere with its writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from state.znodes.tree import Grant, Operation, Znode, ZnodeTree


class ForwardingTree:
    """A `ZnodeTree` over another."""

    def __init__(self, tree: ZnodeTree) -> None:
        self._tree = tree

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        return self._tree.commit(operations)

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        return self._tree.read(paths)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self._tree.children(paths)

    def grants(self, paths: Sequence[str]) -> list[tuple[Grant, ...] | None]:
        return self._tree.grants(paths)

    def ensure(self, path: str) -> None:
        self._tree.ensure(path)

    def session_id(self) -> int:
        return self._tree.session_id()

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        return self._tree.wait_gone(path, owner_session, timeout_s)

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        self._tree.watch(path, callback)

    def close(self) -> None:
        self._tree.close()
