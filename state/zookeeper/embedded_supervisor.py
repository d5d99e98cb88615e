"""The supervisor process of an embedded ZooKeeper server. `state.zookeeper.embedded` starts it as
`python -m state.zookeeper.embedded_supervisor`.

It is a process of its own, so that the server outlives the process that needed it first, and ends
some time after the last one. It restarts a server that crashes, on the same port, so that clients
reconnect and keep their sessions.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from state.process import process_start
from state.zookeeper.embedded import (
    LOCK_NAME,
    LOG_NAME,
    Running,
    answers,
    java_environment,
    read_running,
    seconds_since_use,
    write_running,
)
from state.zookeeper.server_words import ask_local

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_START_S = 60.0
_STOP_S = 5.0
_TICK_S = 0.5
_MAX_FAILED_STARTS = 3  # in a row; then another start would not help either
_PR_SET_PDEATHSIG = 1  # prctl(2)

_CONFIG = """\
dataDir=data
clientPortAddress=127.0.0.1
clientPort={port}
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
snapCount=20000
preAllocSize=4096
"""

_LOG_CONFIG = f"""\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={LOG_NAME}
appender.file.filePattern={LOG_NAME}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{{ISO8601}} %-5p %c{{1}}: %m%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=5MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


class _Ending(Enum):
    """How one run of the server ended."""

    NEVER_UP = "it never answered"
    CRASHED = "it ended by itself"
    UNUSED = "it had no connection for long enough"


class _Stopped(Exception):  # noqa: N818  # not an error
    """A signal asked the supervisor to end."""


class Supervisor:
    """Supervises the server of one directory. `lock` is the inherited descriptor of the directory's
    lock, which the server inherits as well. `command`: the server's (`embedded.server_command`).
    """

    def __init__(self, directory: Path, lock: int, idle_s: float, command: Sequence[str]) -> None:
        self._directory = directory
        self._lock = lock
        self._command = command
        self._idle_s = idle_s

    def run(self) -> None:
        """Run the server until it had no connection for `idle_s`, a signal asks for the end, or it
        fails to start several times in a row.
        """
        before = read_running(self._directory)
        write_running(self._directory, None)
        (self._directory / "log4j2.properties").write_text(_LOG_CONFIG)
        port = free_port(before.port if before else 0)
        failed_starts = 0
        while failed_starts < _MAX_FAILED_STARTS:
            ending = self._serve(port)
            if ending is _Ending.UNUSED:
                return
            failed_starts = failed_starts + 1 if ending is _Ending.NEVER_UP else 0
            if failed_starts:
                port = free_port(0)  # another process may have taken the port

    def _serve(self, port: int) -> _Ending:
        """Run the server once, until it ends."""
        (self._directory / "zoo.cfg").write_text(_CONFIG.format(port=port))
        with (self._directory / "server.out").open("wb") as output:
            server = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=java_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(self._lock,),
                preexec_fn=_die_with_parent,  # noqa: PLW1509  # this process has one thread only
            )
        try:
            if not self._wait_until_up(server, port):
                return _Ending.NEVER_UP
            write_running(
                self._directory,
                Running(
                    port=port,
                    supervisor_pid=os.getpid(),
                    supervisor_start=process_start(os.getpid()) or "",
                    server_pid=server.pid,
                    server_start=process_start(server.pid) or "",
                ),
            )
            return self._watch(server, port)
        finally:
            _end(server)

    def _wait_until_up(self, server: subprocess.Popen[bytes], port: int) -> bool:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if _ended(server, 0.05):
                return False
            if answers(port):
                return True
        return False

    def _watch(self, server: subprocess.Popen[bytes], port: int) -> _Ending:
        """Wait until the server ends, was not used for long enough, or its directory is removed."""
        last_seen = time.monotonic()
        while not _ended(server, _TICK_S):
            if not self._directory_is_ours():
                return _Ending.UNUSED
            if connections(port) > 0:
                last_seen = time.monotonic()
            asked_for_s = seconds_since_use(self._directory, time.time())  # noqa: TID251  # compared with a file's time
            if min(time.monotonic() - last_seen, asked_for_s) >= self._idle_s:
                return _Ending.UNUSED
        return _Ending.CRASHED

    def _directory_is_ours(self) -> bool:
        """False once the directory was removed or replaced: no client can find the server then."""
        try:
            return os.path.samestat(os.fstat(self._lock), (self._directory / LOCK_NAME).stat())
        except OSError:
            return False


def connections(port: int) -> int:
    """The number of connected clients, without the connection that asks."""
    return max(0, (ask_local(port).connections or 0) - 1)


def free_port(wanted: int) -> int:
    """`wanted` if that port of 127.0.0.1 is free, else another port that is free now."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            # Without it, connections in TIME_WAIT would keep the port of the last server taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free on 127.0.0.1")


def _ended(server: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether the server ends within `timeout_s`."""
    try:
        server.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    if not _ended(server, _STOP_S):
        server.kill()
        server.wait()


def _die_with_parent() -> None:
    """Let the server end when its supervisor is killed. Only on Linux; elsewhere the server goes on
    serving and holds the lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    raise _Stopped


def main(arguments: list[str]) -> None:
    directory, lock, idle_s, *command = arguments
    # The starter waits for the first process only. The second one is not its child, so the starter
    # may end at any time and has nothing to reap.
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, _on_signal)
    supervisor = Supervisor(Path(directory), int(lock), float(idle_s), command)
    try:
        supervisor.run()
    except _Stopped:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    main(sys.argv[1:])
