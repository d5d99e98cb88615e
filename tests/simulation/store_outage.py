"""An outage of the store: it answers no process, from one call in the middle of a step until
another. And a process that dies when it has settled a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.errors import StoreUnavailableError
from state.znodes.tree import Set
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.state.trees import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.znodes.tree import Operation, Znode, ZnodeTree


@dataclass
class StoreOutage:
    """After `skipped` more calls, `left` calls fail. `lands`: if the first of them is a write, it
    is done though it fails.
    """

    skipped: int = 0
    left: int = 0
    lands: bool = False

    def strikes(self) -> bool:
        if not self.left:
            return False
        if self.skipped:
            self.skipped -= 1
            return False
        self.left -= 1
        return True

    def check(self) -> None:
        if self.strikes():
            self.lands = False
            raise StoreUnavailableError("the simulated store does not answer")


class OutageTree(ForwardingTree):
    """A tree as one process sees it through the outage."""

    def __init__(self, tree: ZnodeTree, outage: StoreOutage) -> None:
        super().__init__(tree)
        self._outage = outage

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        lands = self._outage.lands
        try:
            self._outage.check()
        except StoreUnavailableError:
            if lands:
                self._tree.commit(operations)
            raise
        return self._tree.commit(operations)

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self._outage.check()
        return self._tree.read(paths)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        self._outage.check()
        return self._tree.children(paths)

    def ensure(self, path: str) -> None:
        self._outage.check()
        self._tree.ensure(path)


class SettledTree(ForwardingTree):
    """A tree as a process sees it that dies, once it is `armed`, when it has settled a plan."""

    def __init__(self, tree: ZnodeTree, plan_path: str) -> None:
        super().__init__(tree)
        self.armed = False
        self._plan_path = plan_path

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        versions = self._tree.commit(operations)
        if self.armed and any(
            isinstance(one, Set) and one.path == self._plan_path and b"settled" in one.data
            for one in operations
        ):
            raise Crash("after a plan was settled")
        return versions
