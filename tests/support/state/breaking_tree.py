"""A znode tree that dies at a chosen write, before or after the write is done: for tests of
repetition after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.errors import StoreUnavailableError
from state.memory_store import MemoryBackend, MemoryTree
from state.znodes.paths import ZookeeperPaths
from state.znodes.shard_states import MAX_STATES_PER_WRITE
from state.znodes.topics import StoreTopics
from state.znodes.tree import Check, Operation
from tests.support.state.forwarding_tree import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Sequence


class BreakingTree(ForwardingTree):
    """A `ZnodeTree` over a backend. `written` lists the paths of each transaction that was done,
    without checks.
    """

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__(MemoryTree(backend))
        self._writes_left: int | None = None
        self._after = False
        self.written: list[list[str]] = []

    def break_at(self, write: int, *, after: bool) -> None:
        """Fail at the `write`-th transaction from now on (0: the next), before it is done or
        `after`; all later ones fail too.
        """
        self._writes_left, self._after = write, after

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        breaks = self._writes_left is not None and self._writes_left <= 0
        if self._writes_left is not None:
            self._writes_left -= 1
        if breaks and not (self._after and self._writes_left == -1):
            raise StoreUnavailableError("the test's tree is broken")
        versions = self._tree.commit(operations)
        self.written.append(
            [operation.path for operation in operations if not isinstance(operation, Check)]
        )
        if breaks:
            raise StoreUnavailableError("the test's tree broke after this write")
        return versions


def breaking_store(
    backend: MemoryBackend,
    *,
    application: str = "app",
    stream: str = "stream",
    states_per_write: int = MAX_STATES_PER_WRITE,
) -> tuple[StoreTopics, BreakingTree]:
    """A store over such a tree, beside a `MemoryStateStore` of the same names."""
    tree = BreakingTree(backend)
    paths = ZookeeperPaths(root="kinesis-spout", application=application, stream=stream)
    store = StoreTopics(
        tree, paths, reset_command="kinesis-spout reset", states_per_write=states_per_write
    )
    return store, tree
