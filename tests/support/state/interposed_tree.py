"""A znode tree between a store and its own tree, for tests of events beside a write: lost answers,
and writes of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.znodes.store import ZnodeStateStore
from state.znodes.tree import Create, Operation, Set, TransactionRefusedError, ZnodeTree
from tests.support.state.forwarding_tree import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class InterposedTree(ForwardingTree):
    """A `ZnodeTree` over another. It loses the answer of every write, or runs another process's
    action before one.

    - `loses_answers`: each transaction is done, and then tried again as after a lost answer.
    - `before_write`: called once, before the next transaction that writes `path`.
    - `before_wait`: called once, before the next wait until a node is gone.
    """

    def __init__(self, tree: ZnodeTree) -> None:
        super().__init__(tree)
        self.loses_answers = False
        self._path = ""
        self._act: Callable[[], object] | None = None
        self._act_before_wait: Callable[[], object] | None = None

    def before_write(self, path: str, act: Callable[[], object]) -> None:
        """`path` is the end of the node's path."""
        self._path, self._act = path, act

    def before_wait(self, act: Callable[[], object]) -> None:
        self._act_before_wait = act

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        if self._act_before_wait is not None:
            act, self._act_before_wait = self._act_before_wait, None
            act()
        return super().wait_gone(path, owner_session, timeout_s)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        if self._act is not None and any(
            isinstance(each, Create | Set) and each.path.endswith(self._path) for each in operations
        ):
            act, self._act = self._act, None
            act()
        versions = self._tree.commit(operations)
        if not self.loses_answers:
            return versions
        try:
            return self._tree.commit(operations)
        except TransactionRefusedError as refused:
            raise TransactionRefusedError(
                refused.index, refused.refusal, refused.path, uncertain=True
            ) from refused


def interposed(store: ZnodeStateStore) -> tuple[ZnodeStateStore, InterposedTree]:
    """Another store on the same connection, and its tree. It owns nothing yet."""
    tree = InterposedTree(store._tree)
    return ZnodeStateStore(tree, store._paths, reset_command="kinesis-spout reset"), tree
