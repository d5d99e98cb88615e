"""A driver's store that dies at a chosen write: for histories of crashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.simulated.micro_batch_engine import Crash
from tests.support.state.forwarding_tree import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.znodes.tree import Operation, ZnodeTree

OWNER_NODES = (
    "owner",
    "epoch",
)  # a backup has no sessions, and an epoch that goes back is not under test here


class DyingTree(ForwardingTree):
    """A `ZnodeTree` over another. The transaction after `writes` others raises `Crash`, before it
    is done or after.
    """

    def __init__(self, tree: ZnodeTree, writes: int, *, after: bool) -> None:
        super().__init__(tree)
        self._writes_left = writes
        self._after = after

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        self._writes_left -= 1
        if self._writes_left < 0 and not self._after:
            raise Crash("before a write")
        versions = self._tree.commit(operations)
        if self._writes_left < 0:
            raise Crash("after a write")
        return versions
