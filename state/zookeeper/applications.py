"""The applications that have state under one root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from state.zookeeper.connect_string import ConnectString
from state.zookeeper.embedded import embedded_directory
from state.zookeeper.security import OPEN, ZookeeperSecurity
from state.zookeeper.tree import ZookeeperTree

if TYPE_CHECKING:
    from collections.abc import Iterable

OPERATION_TIMEOUT_S, CONNECT_TIMEOUT_S, SESSION_TIMEOUT_S = 15.0, 10.0, 10.0


class StoredApplications:
    """All applications under a root in ZooKeeper, read through one connection.

    Blocking: the first call connects. Each call blocks for at most 15 s, the first one for up to
    10 s more. It writes nothing.
    """

    def __init__(self, address: str, *, root: str, security: ZookeeperSecurity = OPEN) -> None:
        security.check_usable(address)
        is_embedded = embedded_directory(address) is not None
        self._chroot = "" if is_embedded else ConnectString.parse(address).chroot
        self._root = root
        self._tree = ZookeeperTree(
            address,
            security=security,
            session_timeout_s=SESSION_TIMEOUT_S,
            operation_timeout_s=OPERATION_TIMEOUT_S,
            connect_timeout_s=CONNECT_TIMEOUT_S,
        )

    def names(self) -> list[tuple[str, str]]:
        """Each application with each stream that it has state of, by name. One that was reset, or
        was never begun, has none.
        """
        top = f"{self._chroot}/{self._root}"
        applications = sorted(self._children([top])[0])
        streams = self._children(f"{top}/{one}" for one in applications)
        pairs = [
            (application, stream)
            for application, found in zip(applications, streams, strict=True)
            for stream in sorted(found)
        ]
        nodes = self._children(self._paths(*pair).base for pair in pairs)
        return [pair for pair, found in zip(pairs, nodes, strict=True) if {*found} - {"reset"}]

    def topics(self, application: str, stream: str) -> StoreTopics:
        """What is stored of one of them. It lives as long as this object; do not close it."""
        return StoreTopics(
            self._tree, self._paths(application, stream), reset_command="kinesis-spout reset"
        )

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._tree.close()

    def _children(self, paths: Iterable[str]) -> list[list[str]]:
        return [found or [] for found in self._tree.children(list(paths))]

    def _paths(self, application: str, stream: str) -> ZookeeperPaths:
        return ZookeeperPaths(
            chroot=self._chroot, root=self._root, application=application, stream=stream
        )
