"""The fence around every write of the owner, and what the topics share.

A new owner increments its epochs (`state.znodes.ownership` has the nodes). Every write of the
owner is one transaction that starts with two kinds of checks:

- The epochs are in the versions that this owner knows. If not, another process has taken over.
- The owner's ephemeral node exists. If not, its session expired. The fence creates the node again,
  which is possible only while no epoch has changed, and then repeats the write.

So the epoch is a fencing token (M. Kleppmann, "How to do distributed locking", 2016) that ZooKeeper
itself checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from state.codec.values import MAX_VALUE_BYTES, decode
from state.collections import in_batches
from state.errors import StaleOwnerError, StoreUnavailableError
from state.znodes.paths import ZookeeperPaths, subject
from state.znodes.tree import (
    Check,
    Create,
    Delete,
    Operation,
    Refusal,
    Set,
    TransactionRefusedError,
    Znode,
    ZnodeTree,
    commit_once,
    conflict,
    ensure,
    is_applied,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from state.store.ownership import TaskShare

MAX_OPERATIONS = 500  # in one transaction
_MAX_ROUNDS = 8  # of regaining the ownership; each needs the session to expire once more
T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Claim:
    """An ownership that is held.

    - `task`: the share, or None for the whole application.
    - `guards`: the epochs, in the versions that they keep until another process takes over.
    - `node`: the ephemeral node, which is removed when the session ends.
    """

    task: TaskShare | None
    epoch: int
    guards: tuple[Check, ...]
    node: Create


class Fence:
    """Holds the ownership, and commits the owner's transactions. Safe from any thread.

    `held`: the claim that is held, as far as this process knows. `overtaken`: it was held, and
    another process has taken over, or has removed the state (`is_removed`).
    """

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths) -> None:
        self.tree, self.paths = tree, paths
        self.held: Claim | None = None
        self.overtaken = False
        self.is_removed = False

    @property
    def ever_held(self) -> bool:
        """Whether the ownership is held, or was held and another process has taken over."""
        return self.held is not None or self.overtaken

    def require(self) -> Claim:
        """`held`. Raises `StaleOwnerError` without one."""
        held = self.held
        if held is not None:
            return held
        if self.overtaken:
            raise self._stale()
        raise StaleOwnerError(
            f"this process does not own {subject(self.paths)}",
            "acquire the ownership of the application first",
        )

    def check(self) -> None:
        """Ask ZooKeeper whether the ownership still holds. Raises `StaleOwnerError`."""
        self.commit([])

    def forget(self) -> None:
        """Forget the ownership without a write."""
        self.held, self.overtaken = None, False

    def commit(self, operations: Sequence[Operation]) -> None:
        """Commit the owner's operations behind the fence. Each creates a node, sets it in a version
        that it names, or deletes it.

        Raises `StaleOwnerError`, or `TransactionRefusedError` with the index among `operations`.
        """
        for _ in range(_MAX_ROUNDS):
            held = self.require()
            fence: list[Operation] = [*held.guards, Check(held.node.path, 0)]
            try:
                commit_once(self.tree, [*fence, *operations])
            except TransactionRefusedError as refused:
                # A refusal names the first check that failed. An epoch comes before the ephemeral
                # node: with both gone there is nothing to regain.
                if refused.index < len(held.guards):
                    raise self._lost(held, refused) from refused
                if refused.index > len(held.guards):
                    raise TransactionRefusedError(
                        refused.index - len(fence), refused.refusal, refused.path, uncertain=False
                    ) from refused
                self._regain(held)
                if refused.uncertain and is_applied(self.tree, operations):
                    return  # before the session expired
            else:
                return
        raise StoreUnavailableError(
            f"the ZooKeeper session that owns {subject(self.paths)} expired {_MAX_ROUNDS} times "
            "in a row",
            "check that the ZooKeeper servers are stable",
        )

    def _regain(self, held: Claim) -> None:
        """Create the ephemeral node again."""
        try:
            self.tree.commit([*held.guards, held.node])
        except TransactionRefusedError as refused:
            # Without the node above, which no consumer removes, it cannot be created again.
            if refused.index < len(held.guards) or refused.refusal is Refusal.NO_NODE:
                raise self._lost(held, refused) from refused
            # else another thread has just regained it

    def _lost(self, held: Claim, refused: TransactionRefusedError) -> StaleOwnerError:
        """The error of an owner whose epoch was counted up, or is gone: it owns nothing from now
        on.
        """
        self.held, self.overtaken = None, True
        # An epoch of a task is also removed when another process changes the number of tasks.
        self.is_removed = refused.refusal is Refusal.NO_NODE and refused.path in (
            self.paths.epoch,
            held.node.path,
        )
        return self._stale()

    def _stale(self) -> StaleOwnerError:
        if self.is_removed:
            return StaleOwnerError(
                f"the state of {subject(self.paths)} was removed from ZooKeeper, so this process "
                "stores no more outcomes",
                "restore the state with `kinesis-spout checkpoint import`, or restart this "
                "process to read from its starting position",
            )
        return StaleOwnerError(
            f"another process has taken over {subject(self.paths)}, so this process stores no more "
            "outcomes. The other process redelivers the records that have no stored outcome"
        )

    def write(self, operations: Sequence[Operation]) -> None:
        """As `commit`; where a node has changed since it was read, raises `ConflictError`."""
        try:
            self.commit(operations)
        except TransactionRefusedError as refused:
            raise conflict(refused) from refused

    def remove_tree(self, path: str) -> bool:
        """Remove a node and everything below it, deepest first, behind the fence. False if some of
        it is left because it changed meanwhile.
        """
        doomed = self._below(path)
        for start in range(0, len(doomed), MAX_OPERATIONS):
            try:
                self.commit([Delete(each) for each in doomed[start : start + MAX_OPERATIONS]])
            except TransactionRefusedError:
                return not self._below(path)
        return True

    def _below(self, path: str) -> list[str]:
        """The node and everything below it, children before their parents."""
        level, found = [path], []
        while level:
            names = zip(level, self.tree.children(level), strict=True)
            there = [(parent, children) for parent, children in names if children is not None]
            found += [parent for parent, _ in there]
            level = [f"{parent}/{child}" for parent, children in there for child in children]
        return found[::-1]


def in_transactions(
    writes: Iterable[Create | Set], max_writes: int = MAX_OPERATIONS
) -> Iterator[list[Create | Set]]:
    """The writes in their order, in lists that fit one transaction each: ZooKeeper takes 1 MB. Of
    an application with long names, the paths are most of it; a node's folder may be created, too.
    """
    return in_batches(
        writes,
        lambda write: len(write.data) + 2 * len(write.path),
        most=max_writes,
        most_bytes=MAX_VALUE_BYTES,
    )


class Nodes:
    """One application's nodes. A topic writes them behind the fence, unless anybody may."""

    def __init__(self, fence: Fence) -> None:
        self._tree, self._paths, self._fence = fence.tree, fence.paths, fence

    def _read(self, path: str) -> Znode | None:
        return self._tree.read([path])[0]

    def _decoded(self, path: str, kind: type[T]) -> T | None:
        """The value of a node of this kind; None without the node. Raises `StoredDataError`."""
        return self._value(path, lambda data, path: decode(data, kind, path))

    def _value(self, path: str, read: Callable[[bytes, str], T]) -> T | None:
        """What `read` makes of a node; None without the node."""
        node = self._read(path)
        return None if node is None else read(node.data, path)

    def _values(self, paths: Mapping[K, str], read: Callable[[bytes, str], T]) -> dict[K, T]:
        """The same of each node that exists, by the keys of `paths`. Reads them once."""
        nodes = zip(paths.items(), self._tree.read(list(paths.values())), strict=True)
        return {key: read(node.data, path) for (key, path), node in nodes if node is not None}

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
            ensure(self._tree, self._paths.base)
            try:
                (self._fence if as_owner else self._tree).commit([Create(path, data)])
            except TransactionRefusedError:
                continue  # another process was faster, or the answer to this call was lost
            return data
