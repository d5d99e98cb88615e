"""Znode trees over another one that interfere with a store: they count its round trips, lose the
answers of its writes, let others act in between, and break or die at a chosen write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.errors import StoreUnavailableError
from state.memory_store import MemoryBackend, MemoryTree
from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from state.znodes.tree import Check, Create, Operation, Set, TransactionRefusedError, ZnodeTree
from tests.support.simulated.micro_batch_engine import Crash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from state.znodes.tree import Grant, Znode


class ForwardingTree:
    """A `ZnodeTree` over another: the base of the others."""

    def __init__(self, tree: ZnodeTree) -> None:
        self._tree = tree

    def commit(self, operations: Sequence[Operation]) -> None:
        self._tree.commit(operations)

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        return self._tree.read(paths)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self._tree.children(paths)

    def grants(self, paths: Sequence[str]) -> list[tuple[Grant, ...] | None]:
        return self._tree.grants(paths)

    def session_id(self) -> int:
        return self._tree.session_id()

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        return self._tree.wait_gone(path, owner_session, timeout_s)

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        self._tree.watch(path, callback)

    def close(self) -> None:
        self._tree.close()


class CountingTree(ForwardingTree):
    """A `ZnodeTree` over another. A call counts once, however many nodes it is about: ZooKeeper
    gets its requests together. A call about no node costs nothing.
    """

    def __init__(self, tree: ZnodeTree) -> None:
        super().__init__(tree)
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

    def commit(self, operations: Sequence[Operation]) -> None:
        self._writes += 1
        super().commit(operations)


def counting_store(
    backend: MemoryBackend, *, application: str, stream: str
) -> tuple[StoreTopics, CountingTree]:
    """A store over such a tree, beside a `MemoryStateStore` of the same names."""
    tree = CountingTree(MemoryTree(backend))
    return _store_over(tree, application, stream), tree


class BreakingTree(ForwardingTree):
    """A `ZnodeTree` over another. `written` lists the paths of each transaction that was done,
    without checks.
    """

    _error: Callable[[str], BaseException] = StoreUnavailableError

    def __init__(self, tree: ZnodeTree) -> None:
        super().__init__(tree)
        self._writes_left: int | None = None
        self._after = False
        self.written: list[list[str]] = []

    def break_at(self, write: int, *, after: bool) -> None:
        """Fail at the `write`-th transaction from now on (0: the next), before it is done or
        `after`; all later ones fail too.
        """
        self._writes_left, self._after = write, after

    def commit(self, operations: Sequence[Operation]) -> None:
        breaks = self._writes_left is not None and self._writes_left <= 0
        if self._writes_left is not None:
            self._writes_left -= 1
        if breaks and not (self._after and self._writes_left == -1):
            raise self._error("the test's tree is broken")
        self._tree.commit(operations)
        self.written.append(
            [operation.path for operation in operations if not isinstance(operation, Check)]
        )
        if breaks:
            raise self._error("the test's tree broke after this write")


def breaking_store(
    backend: MemoryBackend, *, application: str, stream: str
) -> tuple[StoreTopics, BreakingTree]:
    """A store over such a tree, beside a `MemoryStateStore` of the same names."""
    tree = BreakingTree(MemoryTree(backend))
    return _store_over(tree, application, stream), tree


class DyingTree(BreakingTree):
    """The tree of a process that dies at the transaction after `writes` others, before it is done
    or after: that raises `Crash`, and nothing is written any more.
    """

    _error = Crash

    def __init__(self, tree: ZnodeTree, writes: int, *, after: bool) -> None:
        super().__init__(tree)
        self.break_at(writes, after=after)


class InterposedTree(ForwardingTree):
    """A `ZnodeTree` over another. It loses the answer of every write, or runs another process's
    action before a call.

    - `loses_answers`: each transaction is done, and then tried again as after a lost answer.
    - `before_read`, `before_write`: the action is run once, before the next read of a node, or
      transaction that writes it; `path` is the end of its path.
    - `before_list`: the same, before the next listing of a node's children.
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

    def before_list(self, path: str, act: Callable[[], object]) -> None:
        self._acts["list"] = path, act

    def before_wait(self, act: Callable[[], object]) -> None:
        self._acts["wait"] = "", act

    def _run(self, call: str, paths: Iterable[str]) -> None:
        end, _ = self._acts.get(call, ("", None))
        if call in self._acts and any(path.endswith(end) for path in paths):
            self._acts.pop(call)[1]()

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self._run("read", paths)
        return super().read(paths)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        self._run("list", paths)
        return super().children(paths)

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        self._run("wait", [path])
        return super().wait_gone(path, owner_session, timeout_s)

    def commit(self, operations: Sequence[Operation]) -> None:
        self._run("write", [one.path for one in operations if isinstance(one, Create | Set)])
        self._tree.commit(operations)
        if not self.loses_answers:
            return
        try:
            self._tree.commit(operations)
        except TransactionRefusedError as refused:
            raise TransactionRefusedError(
                refused.index, refused.refusal, refused.path, uncertain=True
            ) from refused


def interposed(store: StoreTopics) -> tuple[StoreTopics, InterposedTree]:
    """Another store on the same connection, and its tree. It owns nothing yet."""
    tree = InterposedTree(store._tree)
    return StoreTopics(tree, store.paths, reset_command="kinesis-spout reset"), tree


def _store_over(tree: ZnodeTree, application: str, stream: str) -> StoreTopics:
    paths = ZookeeperPaths(root="kinesis-spout", application=application, stream=stream)
    return StoreTopics(tree, paths, reset_command="kinesis-spout reset")
