"""A driver's store that dies at a chosen write, and copies of its znodes: for histories of crashes
and of restored backups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.znodes.paths import ZookeeperPaths
from state.znodes.store import ZnodeStateStore
from state.znodes.tree import Create, Delete, Operation, Set, ZnodeTree
from state.zookeeper.connect_string import ConnectString
from state.zookeeper.store import DEFAULT_ROOT
from state.zookeeper.tree import ZookeeperTree
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.state.forwarding_tree import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Sequence

OWNER_NODES = (
    "owner",
    "epoch",
)  # a backup has no sessions, and an epoch that goes back is not under test here


def zookeeper_tree(address: str) -> ZookeeperTree:
    return ZookeeperTree(
        address, session_timeout_s=10.0, operation_timeout_s=15.0, connect_timeout_s=10.0
    )


def paths_of(address: str, application: str, stream: str) -> ZookeeperPaths:
    return ZookeeperPaths(
        chroot=ConnectString.parse(address).chroot,
        root=DEFAULT_ROOT,
        application=application,
        stream=stream,
    )


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


def dying_store(
    address: str, application: str, stream: str, writes: int, *, after: bool
) -> ZnodeStateStore:
    return ZnodeStateStore(
        DyingTree(zookeeper_tree(address), writes, after=after),
        paths_of(address, application, stream),
        reset_command="kinesis-spout reset",
    )


class ZnodeBackup:
    """A copy of an application's znodes. Of a node's version it keeps only whether it is 0: a plan
    has version 0 until it is closed.
    """

    def __init__(self, address: str, application: str, stream: str) -> None:
        self._address = address
        self._base = paths_of(address, application, stream).base
        self.nodes: list[tuple[str, bytes, bool]] = []

    def take(self) -> None:
        tree = zookeeper_tree(self._address)
        try:
            paths = self._below(tree)
            nodes = zip(paths, tree.read(paths), strict=True)
            self.nodes = [
                (path, node.data, node.version > 0) for path, node in nodes if node is not None
            ]
        finally:
            tree.close()

    def restore(self) -> None:
        """Replace the current znodes by the copy. Nobody may own the application meanwhile."""
        tree = zookeeper_tree(self._address)
        try:
            for path in reversed(self._below(tree)):
                tree.commit([Delete(path)])
            for path, data, was_written in self.nodes:
                tree.commit([Create(path, data)])
                if was_written:
                    tree.commit([Set(path, data, 0)])
        finally:
            tree.close()

    def _below(self, tree: ZookeeperTree) -> list[str]:
        """All paths below the application's, parents first."""
        found: list[str] = []
        level = [self._base]
        while level:
            names = tree.children(level)
            level = [
                f"{parent}/{name}"
                for parent, children in zip(level, names, strict=True)
                for name in sorted(children or ())
                if parent != self._base or name not in OWNER_NODES
            ]
            found.extend(level)
        return found
