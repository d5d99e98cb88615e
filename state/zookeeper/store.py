"""The state store in ZooKeeper."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from state.zookeeper.connect_string import EMBEDDED_PREFIX, ConnectString
from state.zookeeper.embedded import embedded_directory
from state.zookeeper.security import OPEN, ZookeeperSecurity
from state.zookeeper.tree import ZookeeperTree

if TYPE_CHECKING:
    from collections.abc import Callable

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
        session_timeout_s: float = 10.0,
        operation_timeout_s: float = 15.0,
        connect_timeout_s: float = 10.0,
        security: ZookeeperSecurity = OPEN,
    ) -> None:
        security.check_usable(address)
        directory = embedded_directory(address)
        if directory is not None:
            # Absolute, because a pickled copy may have another working directory.
            address = f"{EMBEDDED_PREFIX}{directory}"
        chroot = "" if directory is not None else ConnectString.parse(address).chroot
        paths = ZookeeperPaths(chroot=chroot, root=root, application=application, stream=stream)
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
        root_option = "" if root == DEFAULT_ROOT else f" --zookeeper-root {root}"
        command = (
            f"kinesis-spout reset --application {application} --stream {stream} "
            f"--zookeeper {address}{root_option}{security.command_options()}"
        )
        super().__init__(ZookeeperTree(**connection), paths, reset_command=command)

    def __reduce__(self) -> tuple[Callable[[], ZookeeperStateStore], tuple[()]]:
        return self._open_copy, ()
