"""The ZooKeeper of a soak: a real server that is killed, and stopped and started again."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from kinesis_spout.drills import spout_program as program
from state.codec.values import decode, encode
from state.errors import StoreUnavailableError
from state.store.ownership import OwnerInfo
from state.znodes.paths import ZookeeperPaths
from state.znodes.tree import Delete, Set, TransactionRefusedError
from state.zookeeper.embedded import (
    answers,
    ensure_running,
    read_running,
    stop,
)
from state.zookeeper.server_words import ask_local
from state.zookeeper.store import DEFAULT_ROOT, ZookeeperStateStore
from state.zookeeper.tree import ZookeeperTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from state.shard_state import ShardState
    from state.store.ownership import TaskShare

CHROOT = "/soak"
IDLE_S = 7_200.0  # without a connection; longer than any soak
_POLL_S = 0.02
_START_S = 90.0


class ZookeeperServers(Protocol):
    """One server or an ensemble. For one thread, but for `znodes`.

    `away`: when it did not answer, from and to in monotonic ns.
    """

    away: list[tuple[int, int]]

    @property
    def connect_string(self) -> str: ...

    def start(self) -> None:
        """Blocks until it answers."""
        ...

    def kill(self) -> None:
        """Send kill -9 to it, and return when it answers again."""
        ...

    def restart(self, wait: Callable[[], object]) -> None:
        """Stop it, `wait`, and start it again."""
        ...

    def znodes(self) -> int | None:
        """All nodes; None while it does not answer."""
        ...

    @property
    def data(self) -> list[Path]:
        """The data directory of each server, to be copied while none runs."""
        ...

    def end(self) -> None:
        """Idempotent."""
        ...


class ZookeeperServer:
    """The server of one directory. `away`: when it did not answer, from and to in monotonic ns."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.away: list[tuple[int, int]] = []
        self._address = ""

    def start(self) -> None:
        self._address = ensure_running(self._directory, timeout_s=_START_S, idle_s=IDLE_S)

    @property
    def connect_string(self) -> str:
        return f"{self._address}{CHROOT}"

    @property
    def port(self) -> int:
        return int(self._address.rpartition(":")[2])

    @property
    def data(self) -> list[Path]:
        return [self._directory / "data"]

    def kill(self) -> None:
        """SIGKILL. Returns when its supervisor has started another one."""
        running = read_running(self._directory)
        if running is None:
            raise AssertionError("the ZooKeeper server has no supervisor")
        began_ns = time.monotonic_ns()
        os.kill(running.server_pid, signal.SIGKILL)
        self._wait(lambda: self._is_another(running.server_pid))
        self.away.append((began_ns, time.monotonic_ns()))

    def restart(self, wait: Callable[[], object]) -> None:
        """Stop it, `wait`, and start it again on the same port."""
        began_ns = time.monotonic_ns()
        stop(self._directory)
        wait()
        before = self._address
        self.start()
        self.away.append((began_ns, time.monotonic_ns()))
        if self._address != before:
            raise AssertionError(f"ZooKeeper moved from {before} to {self._address}")

    def end(self) -> None:
        stop(self._directory)

    def znodes(self) -> int | None:
        """All nodes of the server; None while it does not answer."""
        return ask_local(self.port).nodes

    def _is_another(self, pid: int) -> bool:
        running = read_running(self._directory)
        return running is not None and running.server_pid != pid and answers(running.port)

    def _wait(self, fact: Callable[[], bool]) -> None:
        tick = threading.Event()
        deadline_s = time.monotonic() + _START_S
        while not fact():
            if time.monotonic() > deadline_s:
                raise AssertionError("ZooKeeper was not started again")
            tick.wait(_POLL_S)


class StoredStates:
    """What the spouts have stored, and who owns a task, seen from outside."""

    def __init__(
        self,
        connect_string: str,
        *,
        application: str = program.APPLICATION,
        stream: str = program.STREAM,
    ) -> None:
        self._connect_string = connect_string
        self._lock = threading.Lock()  # held by a call; samples are taken in a thread
        _, slash, chroot = connect_string.partition("/")
        self._paths = ZookeeperPaths(
            chroot=slash + chroot,
            root=DEFAULT_ROOT,
            application=application,
            stream=stream,
        )
        self._connect()

    def _connect(self) -> None:
        times: dict[str, Any] = {
            "session_timeout_s": 10.0,
            "operation_timeout_s": 3.0,
            "connect_timeout_s": 3.0,
        }
        self._store = ZookeeperStateStore(
            self._connect_string,
            application=self._paths.application,
            stream=self._paths.stream,
            **times,
        )
        self._tree = ZookeeperTree(self._connect_string.partition("/")[0], **times)

    def connect_again(self) -> None:
        """With new connections: a server whose data are older than what a connection has seen
        refuses that one for ever.
        """
        with self._lock:
            self._store.close()
            self._tree.close()
            self._connect()

    def read(self) -> dict[str, ShardState] | None:
        """None while ZooKeeper does not answer."""
        try:
            with self._lock:
                return {
                    shard: stored.state for shard, stored in self._store.shard_states.load().items()
                }
        except StoreUnavailableError:
            return None

    def names(self, below: str = "") -> list[str]:
        """The children of a node of the application, which is named by its path below that of the
        stream. Raises `StoreUnavailableError`, as `remove` does.
        """
        path = f"{self._paths.base}/{below}".rstrip("/")
        return sorted(self._tree.children([path])[0] or [])

    def data(self, name: str) -> bytes | None:
        """What a node holds, which is named as in `names`; None if there is none. Raises
        `StoreUnavailableError`.
        """
        node = self._tree.read([f"{self._paths.base}/{name}"])[0]
        return None if node is None else node.data

    def remove(self, name: str = "") -> None:
        """Remove a node with all below it, as an operator would; without a name, the application's
        whole stream.
        """
        for below in self.names(name):
            self.remove(f"{name}/{below}".lstrip("/"))
        self._tree.commit([Delete(f"{self._paths.base}/{name}".rstrip("/"))])

    def make_foreign(self, task: TaskShare) -> tuple[str, int] | None:
        """Let the owner of a task look like a process of another machine, so that its successor
        cannot see that it is dead. Returns the node and its session; None if there is no owner now.
        """
        path = self._paths.task_owner(task)
        try:
            node = self._tree.read([path])[0]
            if node is None:
                return None
            owner = replace(decode(node.data, OwnerInfo, path), host_identity="another machine")
            self._tree.commit([Set(path, encode(owner, path), node.version)])
        except (StoreUnavailableError, TransactionRefusedError):
            return None
        return path, node.owner_session

    def wait_gone(self, path: str, session: int, timeout_s: float) -> int | None:
        """Wait until the node of this session is gone. Returns the monotonic time in ns; None if it
        is not, or if ZooKeeper did not answer meanwhile.
        """
        try:
            is_gone = self._tree.wait_gone(path, session, timeout_s)
        except StoreUnavailableError:
            return None
        return time.monotonic_ns() if is_gone else None

    def close(self) -> None:
        self._store.close()
        self._tree.close()
