"""The state store in ZooKeeper: of one application, and which applications there are."""

from __future__ import annotations

import functools
import shlex
from typing import TYPE_CHECKING, Any

from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from state.zookeeper.embedded import embedded_directory
from state.zookeeper.security import OPEN, ZookeeperSecurity
from state.zookeeper.servers import EMBEDDED_PREFIX, ConnectString
from state.zookeeper.tree import (
    CONNECT_TIMEOUT_S,
    OPERATION_TIMEOUT_S,
    SESSION_TIMEOUT_S,
    ZookeeperTree,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEFAULT_ROOT = "kinesis-spout"


class ZookeeperStateStore(StoreTopics):
    """The state of one application and stream in ZooKeeper.

    - `address`: `host:port,host:port/chroot`, or `embedded:<directory>` for the embedded server of
      that directory.
    - Blocking: the first call connects. A call blocks for at most `operation_timeout_s`, and the
      first one for up to `connect_timeout_s` more.
    - `security`: TLS, identity, access control lists of what is created.
    - Pickling: possible at any time. The copy is not connected and owns nothing.
    """

    def __init__(
        self,
        address: str,
        *,
        application: str,
        stream: str,
        root: str = DEFAULT_ROOT,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        operation_timeout_s: float = OPERATION_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        security: ZookeeperSecurity = OPEN,
    ) -> None:
        security.check_usable(address)
        directory = embedded_directory(address)
        if directory is not None:
            # Absolute, because a pickled copy may have another working directory.
            address = f"{EMBEDDED_PREFIX}{directory}"
        paths = ZookeeperPaths(
            chroot=_chroot_of(address), root=root, application=application, stream=stream
        )
        connection: dict[str, Any] = {
            "address": address,
            "session_timeout_s": session_timeout_s,
            "operation_timeout_s": operation_timeout_s,
            "connect_timeout_s": connect_timeout_s,
            "security": security,
        }
        self._open_copy = functools.partial(
            ZookeeperStateStore, application=application, stream=stream, root=root, **connection
        )
        command = reset_command(
            address, application=application, stream=stream, root=root, security=security
        )
        super().__init__(ZookeeperTree(**connection), paths, reset_command=command)

    def __reduce__(self) -> tuple[Callable[[], ZookeeperStateStore], tuple[()]]:
        return self._open_copy, ()


def reset_command(
    address: str, *, application: str, stream: str, root: str, security: ZookeeperSecurity
) -> str:
    """The command that drops this state, for a shell: with all that leads to it, but a password."""
    words = ["--application", application, "--stream", stream, "--zookeeper", address]
    if root != DEFAULT_ROOT:
        words += ["--zookeeper-root", root]
    return f"kinesis-spout reset {shlex.join(words)}{security.command_options()}"


class StoredApplications:
    """All applications under a root in ZooKeeper, read through one connection.

    Blocking: the first call connects. Each call blocks for at most 15 s, the first one for up to
    10 s more. It writes nothing.
    """

    def __init__(self, address: str, *, root: str, security: ZookeeperSecurity = OPEN) -> None:
        security.check_usable(address)
        chroot = _chroot_of(address)
        self._top = f"{chroot}/{root}"
        self._paths = functools.partial(ZookeeperPaths, chroot=chroot, root=root)
        self._tree = ZookeeperTree(address, security=security)

    def names(self) -> list[tuple[str, str]]:
        """Each application with each stream that it has state of, by name. One that was reset, or
        was never begun, has none.
        """
        applications = sorted(self._children([self._top])[0])
        streams = self._children(f"{self._top}/{one}" for one in applications)
        pairs = [
            (application, stream)
            for application, found in zip(applications, streams, strict=True)
            for stream in sorted(found)
        ]
        nodes = self._children(
            self._paths(application=one, stream=stream).base for one, stream in pairs
        )
        return [pair for pair, found in zip(pairs, nodes, strict=True) if {*found} - {"reset"}]

    def topics(self, application: str, stream: str) -> StoreTopics:
        """What is stored of one of them. It lives as long as this object; do not close it."""
        paths = self._paths(application=application, stream=stream)
        return StoreTopics(self._tree, paths, reset_command="kinesis-spout reset")

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._tree.close()

    def _children(self, paths: Iterable[str]) -> list[list[str]]:
        return [found or [] for found in self._tree.children(list(paths))]


def _chroot_of(address: str) -> str:
    """Empty for an embedded server."""
    return "" if embedded_directory(address) is not None else ConnectString.parse(address).chroot
