"""The ZooKeeper of a drill: one real server or three, a link to it that can be cut, and what an
application has stored there.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from kinesis_spout.drills.consumer import APPLICATION
from kinesis_spout.drills.setting import DrillError, Need
from kinesis_spout.processes import kill_family
from state.codec.values import decode, encode
from state.errors import StoreUnavailableError
from state.store.ownership import OwnerInfo
from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from state.znodes.tree import Delete, Set, TransactionRefusedError
from state.zookeeper.embedded import CONFIG, answers, java_environment, server_command
from state.zookeeper.servers import ask_local
from state.zookeeper.store import DEFAULT_ROOT
from state.zookeeper.tree import ZookeeperTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from state.shard_state import ShardState
    from state.store.ownership import TaskShare

CHROOT = "/soak"
_POLL_S = 0.02
_START_S = 90.0
_STOP_S = 10.0
# The end of the drill, which has the other end of the pipe, is that of the server.
_UNTIL_STDIN_ENDS = ("sh", "-c", '"$@" & cat; kill $!; wait', "sh")
_CHUNK_BYTES = 65_536
_ENSEMBLE_CONFIG = f"{CONFIG}initLimit=20\nsyncLimit=10\n{{members}}"


class ZookeeperServers:
    """One server, or an ensemble of three, each a process of its own, which ends with this one. For
    one thread, but for `znodes`. `ports`: of 127.0.0.1, from the start on. `link`: to one server,
    for the job alone.
    """

    def __init__(self, directory: Path, has: frozenset[Need]) -> None:
        count = 3 if Need.ENSEMBLE in has else 1
        self._folders = [directory / f"server-{id_}" for id_ in range(1, count + 1)]
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}
        self.ports: list[int] = []

    @cached_property
    def link(self) -> Link:
        return Link(f"127.0.0.1:{self.ports[0]}")

    @property
    def connect_string(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports) + CHROOT

    @property
    def data(self) -> list[Path]:
        """The data directory of each server, to be copied while none runs."""
        return [folder / "data" for folder in self._folders]

    def start(self) -> None:
        """Start the servers that do not run, on the ports that they have had. Returns when all of
        them answer.
        """
        if not self.ports:
            self._write_configs()
        for folder in self._folders:
            process = self._processes.get(folder)
            if process is None or process.poll() is not None:
                self._processes[folder] = _started(folder)
        self._wait(lambda: all(answers(port) for port in self.ports), "answer")

    def end(self) -> None:
        """Stop them in order. Idempotent."""
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes.values():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                kill_family(process)

    def kill(self) -> None:
        """Send kill -9 to all at once, and return when they answer again."""
        for process in self._processes.values():
            kill_family(process)
        self.start()

    def restart(self, wait: Callable[[], object]) -> None:
        """Stop them in order, `wait`, and start them again."""
        self.end()
        wait()
        self.start()

    def kill_leader(self) -> None:
        """Send kill -9 to the leader of the ensemble. Returns when another server leads."""
        leaders: list[Path] = []

        def is_led() -> bool:
            roles = zip(self._folders, (ask_local(port).role for port in self.ports), strict=True)
            leaders[:] = [folder for folder, role in roles if role == "leader"]
            return bool(leaders)

        self._wait(is_led, "elect a leader")
        first = leaders[0]
        kill_family(self._processes[first])
        self._wait(lambda: is_led() and leaders[0] != first, "elect another leader")

    def znodes(self) -> int | None:
        """The number of all nodes; None while no server answers."""
        counts = (ask_local(port).nodes for port in self.ports)
        return next((count for count in counts if count is not None), None)

    def _wait(self, fact: Callable[[], bool], what: str) -> None:
        tick = threading.Event()
        deadline_s = time.monotonic() + _START_S
        while not fact():
            if time.monotonic() > deadline_s:
                late = f"ZooKeeper did not {what} within {_START_S:.0f} s"
                raise DrillError(late, f"see the logs in {self._folders[0].parent}")
            tick.wait(_POLL_S)

    def _write_configs(self) -> None:
        count = len(self._folders)
        with ExitStack() as held:  # so that each probe gets another port
            probes = [held.enter_context(socket.socket()) for _ in range(3 * count)]
            for probe in probes:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", 0))
            ports = [int(probe.getsockname()[1]) for probe in probes]
        self.ports, peers, elections = ports[:count], ports[count:-count], ports[-count:]
        members = [
            f"server.{id_}=127.0.0.1:{peer}:{election}"
            for id_, (peer, election) in enumerate(zip(peers, elections, strict=True), 1)
        ]
        for id_, (folder, port) in enumerate(zip(self._folders, self.ports, strict=True), 1):
            (folder / "data").mkdir(parents=True)
            (folder / "data" / "myid").write_text(str(id_))
            config = _ENSEMBLE_CONFIG.format(port=port, members="\n".join(members))
            (folder / "zoo.cfg").write_text(config)


def _started(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "server.out").open("ab") as output:
        return subprocess.Popen(
            [*_UNTIL_STDIN_ENDS, *server_command(heap="128m")],
            cwd=folder,
            env=java_environment(),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C reaches the drill alone, which ends them
        )


class Link:
    """Forwards every connection to `target`, a `host:port`, until it is cut or stalled.

    - `cut` closes all connections and every new one at once: both sides see an error.
    - `stall` forwards nothing and closes nothing: neither side sees anything, as when a network
      drops all packets.
    - `restore` ends both. What a stall has held back is delivered then.

    All methods may be called from any thread. Use it in a with block, which sets `address`.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.address = ""
        self._loop: asyncio.AbstractEventLoop
        self._is_ready, self._ending = threading.Event(), asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="link", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        """End every connection and the thread."""
        self.cut()
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def cut(self) -> None:
        self._is_cut = True
        self._loop.call_soon_threadsafe(lambda: _abort(self._open))

    def stall(self) -> None:
        self._loop.call_soon_threadsafe(self._flows.clear)

    def restore(self) -> None:
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._flows.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_ready.set()
        await self._ending.wait()
        server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = {writer}
        self._open |= pair
        try:
            if not self._is_cut:
                answers, server = await asyncio.open_connection(*self._target)
                pair.add(server)
                self._open |= pair
            if not self._is_cut:
                await asyncio.gather(self._pump(reader, server), self._pump(answers, writer))
        except OSError:
            pass  # the target refuses
        finally:
            self._open -= pair
            _abort(pair)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Forward one direction to its end."""
        with suppress(OSError):
            while data := await source.read(_CHUNK_BYTES):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
            sink.write_eof()


def _abort(writers: Iterable[asyncio.StreamWriter]) -> None:
    for one in writers:
        one.transport.abort()


class StoredStates:
    """What an application has stored of a stream, and who owns a task, seen from outside. Nodes are
    named by their path below that of the stream. `names`, `data` and `remove` raise
    `StoreUnavailableError`.
    """

    def __init__(self, connect_string: str, stream: str) -> None:
        self._lock = threading.Lock()  # held by a call; samples are taken in a thread
        _, slash, chroot = connect_string.partition("/")
        self._paths = ZookeeperPaths(
            chroot=slash + chroot, root=DEFAULT_ROOT, application=APPLICATION, stream=stream
        )
        self._tree = self._connected(connect_string)

    @staticmethod
    def _connected(connect_string: str) -> ZookeeperTree:
        return ZookeeperTree(
            connect_string,
            session_timeout_s=10.0,
            operation_timeout_s=3.0,
            connect_timeout_s=3.0,
        )

    def connect_again(self, connect_string: str) -> None:
        """With a new connection: a server whose data are older than what a connection has seen
        refuses that one for ever.
        """
        with self._lock:
            self._tree.close()
            self._tree = self._connected(connect_string)

    def read(self) -> dict[str, ShardState] | None:
        """None while ZooKeeper does not answer."""
        try:
            with self._lock:
                topics = StoreTopics(self._tree, self._paths, reset_command="")
                loaded = topics.shard_states.load()
                return {shard: stored.state for shard, stored in loaded.items()}
        except StoreUnavailableError:
            return None

    def names(self, below: str = "") -> list[str]:
        """The children of a node; those of the stream without a name."""
        return sorted(self._tree.children([self._path(below)])[0] or [])

    def data(self, name: str) -> bytes | None:
        """None if there is no such node."""
        node = self._tree.read([self._path(name)])[0]
        return None if node is None else node.data

    def remove(self, name: str = "") -> None:
        """Remove a node with all below it, as an operator would; without a name, all of the
        stream.
        """
        for below in self.names(name):
            self.remove(f"{name}/{below}".lstrip("/"))
        self._tree.commit([Delete(self._path(name))])

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

    def wait_gone(self, path: str, session: int, timeout_s: float) -> bool:
        """Wait until the node of this session is gone. False if it is not, or if ZooKeeper did not
        answer meanwhile.
        """
        try:
            return self._tree.wait_gone(path, session, timeout_s)
        except StoreUnavailableError:
            return False

    def close(self) -> None:
        self._tree.close()

    def _path(self, name: str) -> str:
        return f"{self._paths.base}/{name}".rstrip("/")
