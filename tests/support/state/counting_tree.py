"""A znode tree that counts the round trips: for tests of what a step costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.memory_store import MemoryBackend, MemoryTree
from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from tests.support.state.forwarding_tree import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from state.znodes.tree import Operation, Znode


class CountingTree(ForwardingTree):
    """A `ZnodeTree` over a backend. A call counts once, however many nodes it is about: ZooKeeper
    gets its requests together. A call about no node costs nothing.
    """

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__(MemoryTree(backend))
        self._reads = 0
        self._writes = 0

    def cost_of(self, act: Callable[[], object]) -> tuple[int, int]:
        """The round trips of `act`: those that only read, and those that write."""
        reads, writes = self._reads, self._writes
        act()
        return self._reads - reads, self._writes - writes

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self._reads += bool(paths)
        return super().read(paths)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        self._reads += bool(paths)
        return super().children(paths)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        self._writes += 1
        return super().commit(operations)

    def ensure(self, path: str) -> None:
        self._reads += 1
        super().ensure(path)


def counting_store(
    backend: MemoryBackend, *, application: str, stream: str
) -> tuple[StoreTopics, CountingTree]:
    """A store over such a tree, beside a `MemoryStateStore` of the same names."""
    tree = CountingTree(backend)
    paths = ZookeeperPaths(root="kinesis-spout", application=application, stream=stream)
    return StoreTopics(tree, paths, reset_command="kinesis-spout reset"), tree
