"""A ZooKeeper ensemble of three servers on this machine, from the jars that PySpark ships."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.zookeeper import CHROOT
from state.zookeeper.embedded import (
    answers,
    find_jars,
    find_java,
    java_environment,
)
from state.zookeeper.server_words import ask_local

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SERVERS = 3
_START_S = 60.0
_STOP_S = 10.0
_POLL_S = 0.05
_CONFIG = """\
dataDir=data
clientPortAddress=127.0.0.1
clientPort={port}
tickTime=500
initLimit=20
syncLimit=10
minSessionTimeout=1000
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
preAllocSize=4096
{members}
"""


class ZookeeperEnsemble:
    """Three servers, each a process of its own. `away`: when no majority was up."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports: list[int] = []
        self.away: list[tuple[int, int]] = []

    @property
    def connect_string(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports) + CHROOT

    @property
    def data(self) -> list[Path]:
        return [self._directory / f"server-{server + 1}" / "data" for server in range(SERVERS)]

    def start(self) -> None:
        """Start the servers that do not run. Returns when all serve."""
        if not self._ports:
            self._write_configs()
        for server in range(SERVERS):
            process = self._processes.get(server)
            if process is None or process.poll() is not None:
                self._start(server)
        self._wait(lambda: all(answers(port) for port in self._ports), "serve")

    def leader(self) -> int | None:
        """The number of the server that leads; None while there is none."""
        return next(
            (server for server, port in enumerate(self._ports) if ask_local(port).role == "leader"),
            None,
        )

    def kill_leader(self) -> int:
        """Send kill -9 to the leader, and return its number."""
        self._wait(lambda: self.leader() is not None, "elect a leader")
        leader = self.leader()
        if leader is None:
            raise DrillError("the ZooKeeper ensemble has lost its leader by itself")
        self._processes[leader].kill()
        self._processes[leader].wait()
        return leader

    def kill(self) -> None:
        """All at once; and start them again."""
        began_ns = time.monotonic_ns()
        for process in self._processes.values():
            process.kill()
            process.wait()
        self.start()
        self.away.append((began_ns, time.monotonic_ns()))

    def restart(self, wait: Callable[[], object]) -> None:
        began_ns = time.monotonic_ns()
        self.end()
        wait()
        self.start()
        self.away.append((began_ns, time.monotonic_ns()))

    def znodes(self) -> int | None:
        counts = (ask_local(port).nodes for port in self._ports)
        return next((count for count in counts if count is not None), None)

    def end(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _write_configs(self) -> None:
        with ExitStack() as stack:
            ports = [free_port(stack) for _ in range(3 * SERVERS)]
        self._ports = ports[:SERVERS]
        members = "\n".join(
            f"server.{server + 1}=127.0.0.1:{ports[SERVERS + server]}:{ports[2 * SERVERS + server]}"
            for server in range(SERVERS)
        )
        for server, port in enumerate(self._ports):
            folder = self._directory / f"server-{server + 1}"
            (folder / "data").mkdir(parents=True)
            (folder / "data" / "myid").write_text(str(server + 1))
            (folder / "zoo.cfg").write_text(_CONFIG.format(port=port, members=members))

    def _start(self, server: int) -> None:
        folder = self._directory / f"server-{server + 1}"
        with (folder / "server.out").open("ab") as output:
            self._processes[server] = subprocess.Popen(
                [
                    *(find_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    "-Dzookeeper.jmx.log4j.disable=true",
                    *("-cp", f"{find_jars()}/*"),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    "zoo.cfg",
                ],
                cwd=folder,
                env=java_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches the drill alone, which ends them
            )

    def _wait(self, fact: Callable[[], bool], what: str) -> None:
        tick = threading.Event()
        deadline_s = time.monotonic() + _START_S
        while not fact():
            if time.monotonic() > deadline_s:
                raise DrillError(
                    f"the ZooKeeper ensemble did not {what} within {_START_S:.0f} s",
                    f"see the logs in {self._directory}",
                )
            tick.wait(_POLL_S)


def free_port(stack: ExitStack) -> int:
    """A port of 127.0.0.1 that is free, and held until the stack ends, so that the next call gives
    another one.
    """
    probe = stack.enter_context(socket.socket())
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    return int(probe.getsockname()[1])
