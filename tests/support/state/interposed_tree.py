"""A znode tree between a store and its own tree, for tests of events beside a write: lost answers,
and writes of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.znodes.topics import StoreTopics
from state.znodes.tree import Create, Operation, Set, TransactionRefusedError, ZnodeTree
from tests.support.state.forwarding_tree import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from state.znodes.tree import Znode


class InterposedTree(ForwardingTree):
    """A `ZnodeTree` over another. It loses the answer of every write, or runs another process's
    action before a call.

    - `loses_answers`: each transaction is done, and then tried again as after a lost answer.
    - `before_read`, `before_write`: the action is run once, before the next read of a node, or
      transaction that writes it; `path` is the end of its path.
    - `before_wait`: the same, before the next wait until a node is gone.
    """

    def __init__(self, tree: ZnodeTree) -> None:
        super().__init__(tree)
        self.loses_answers = False
        self._acts: dict[str, tuple[str, Callable[[], object]]] = {}

    def before_read(self, path: str, act: Callable[[], object]) -> None:
        self._acts["read"] = path, act

    def before_write(self, path: str, act: Callable[[], object]) -> None:
        self._acts["write"] = path, act

    def before_wait(self, act: Callable[[], object]) -> None:
        self._acts["wait"] = "", act

    def _run(self, call: str, paths: Iterable[str]) -> None:
        end, _ = self._acts.get(call, ("", None))
        if call in self._acts and any(path.endswith(end) for path in paths):
            self._acts.pop(call)[1]()

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self._run("read", paths)
        return super().read(paths)

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        self._run("wait", [path])
        return super().wait_gone(path, owner_session, timeout_s)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        self._run("write", [one.path for one in operations if isinstance(one, Create | Set)])
        versions = self._tree.commit(operations)
        if not self.loses_answers:
            return versions
        try:
            return self._tree.commit(operations)
        except TransactionRefusedError as refused:
            raise TransactionRefusedError(
                refused.index, refused.refusal, refused.path, uncertain=True
            ) from refused


def interposed(store: StoreTopics) -> tuple[StoreTopics, InterposedTree]:
    """Another store on the same connection, and its tree. It owns nothing yet."""
    tree = InterposedTree(store._tree)
    return StoreTopics(tree, store.paths, reset_command="kinesis-spout reset"), tree
