"""The embedded ZooKeeper: a real server, started from the jars that PySpark ships. There is one per
directory, shared by all processes that name the directory.

Files. `<directory>/lock` is locked (flock) by the server and its supervisor process while they run.
So the kernel says whether a server runs, and a file that a crash left behind cannot mislead.
Its time is when a process last asked for the server. `<directory>/running.json` has the server's
address. The supervisor writes it when the server answers, and removes it before it starts one.

Start. The first process that needs the server takes the lock, starts the supervisor and passes the
lock to it. Other processes wait for the address.

Lifetime. The server listens on 127.0.0.1 only. It outlives the process that started it, and keeps
its port over restarts while the port is free. The supervisor restarts a server that crashes, and
ends one that had no connection for some minutes. It is a process of its own, `python -m
state.zookeeper.embedded`, so that the server outlives the process that needed it first.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import locale
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from state.errors import EmbeddedZookeeperError, InvalidStoreSettingError
from state.process import process_start
from state.zookeeper.servers import EMBEDDED_PREFIX, ask_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFAULT_IDLE_S = 300.0
LOG_NAME = "server.log"
LOCK_NAME = "lock"
_RUNNING = "running.json"
_POLL_S = 0.05
_STOP_S = 15.0
_UTF8_LOCALES = ("C.UTF-8", "en_US.UTF-8", "UTF-8")
_SERVER_START_S = 60.0
_SERVER_STOP_S = 5.0
_TICK_S = 0.5
_MAX_FAILED_STARTS = 3  # then another start would not help either
_PR_SET_PDEATHSIG = 1  # prctl(2)
CONFIG = """\
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


class Running(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The running server's port and the two processes. Their start times distinguish them from
    processes that reuse a pid.
    """

    port: int
    supervisor_pid: int
    supervisor_start: str
    server_pid: int
    server_start: str


def resolve_connect_string(text: str) -> str:
    """`text`; for `embedded:<directory>` the address of its server, which is started if it does not
    run.
    """
    directory = embedded_directory(text)
    return text if directory is None else ensure_running(directory)


def embedded_directory(text: str) -> Path | None:
    """The absolute directory of `embedded:<directory>`, None for any other text."""
    if not text.startswith(EMBEDDED_PREFIX):
        return None
    directory = text.removeprefix(EMBEDDED_PREFIX).strip()
    if not directory:
        raise InvalidStoreSettingError(
            f"{text!r} does not contain the path of a directory",
            "use embedded:<directory>, such as embedded:.zookeeper",
        )
    return Path(directory).expanduser().absolute()


def unused_directory(text: str) -> Path | None:
    """The directory of an embedded server, if none has run in it yet. Connecting starts one."""
    directory = embedded_directory(text)
    return None if directory is None or (directory / LOCK_NAME).is_file() else directory


def ensure_running(
    directory: Path, *, timeout_s: float = 30.0, idle_s: float = DEFAULT_IDLE_S
) -> str:
    """The address of the directory's server, `127.0.0.1:<port>`. Starts one if none runs, which
    ends after `idle_s` without a connection. Blocks for at most `timeout_s`. Raises
    `EmbeddedZookeeperError` when Java or PySpark is missing, or the server does not answer.
    """
    directory = directory.expanduser().absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Counts as use, so that the server does not end before the caller has connected.
        (directory / LOCK_NAME).touch()
    except OSError as exc:
        raise EmbeddedZookeeperError(
            f"the directory {directory} of the embedded ZooKeeper is not writable ({exc.strerror})",
            "use a writable directory",
        ) from exc
    deadline = time.monotonic() + timeout_s
    started = False
    while time.monotonic() < deadline:
        with _try_lock(directory) as lock:
            if lock is not None and started:
                # The supervisor held the lock and has ended, so the lock is free again.
                raise _failed(directory, "the process ended while it was starting")
            if lock is not None:
                _start_supervisor(directory, lock, idle_s)
                started = True
        running = read_running(directory)
        if running is not None and answers(running.port):
            return f"127.0.0.1:{running.port}"
        threading.Event().wait(_POLL_S)
    raise _failed(directory, f"the server did not respond within {timeout_s:g} s")


def stop(directory: Path) -> None:
    """Stop the directory's server, if one runs, and wait until it has ended. Its data stays."""
    directory = directory.expanduser().absolute()
    if not directory.is_dir():
        return
    deadline = time.monotonic() + _STOP_S
    signalled = False
    while time.monotonic() < deadline:
        with _try_lock(directory) as lock:
            if lock is not None:
                return
        if not signalled:
            # On other systems than Linux the server does not end with its supervisor.
            signalled = any(_signal(each, signal.SIGTERM) for each in _processes(directory))
        threading.Event().wait(_POLL_S)
    for process in _processes(directory):
        _signal(process, signal.SIGKILL)


def read_running(directory: Path) -> Running | None:
    """The content of `running.json`; None if it is missing or damaged."""
    try:
        return msgspec.json.decode((directory / _RUNNING).read_bytes(), type=Running)
    except (OSError, msgspec.MsgspecError):
        return None


def write_running(directory: Path, running: Running | None) -> None:
    """Replace `running.json` atomically, or remove it (None)."""
    path = directory / _RUNNING
    if running is None:
        path.unlink(missing_ok=True)
        return
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(running))
    new.replace(path)


def answers(port: int) -> bool:
    """Whether a ZooKeeper server on this port serves requests."""
    return ask_local(port).role is not None


@contextlib.contextmanager
def _try_lock(directory: Path) -> Iterator[int | None]:
    """Lock the directory. Yields the lock's file descriptor, or None if a process holds it.

    The lock is released at the end, unless a child process has inherited the descriptor: flock
    belongs to the open file, which lives until its last descriptor is closed.
    """
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _start_supervisor(directory: Path, lock: int, idle_s: float) -> None:
    """Start the supervisor and pass it the lock. Waits until its first process has forked."""
    server = server_command("-Dlog4j2.configurationFile=log4j2.properties")
    arguments = [str(directory), str(lock), str(idle_s), *server]
    here, path = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    with (directory / "supervisor.log").open("ab") as log:
        subprocess.run(
            # -P: a package of the working directory must not hide one of ours.
            [sys.executable, "-P", "-m", "state.zookeeper.embedded", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            env=os.environ | {"PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here},
            start_new_session=True,
            check=False,
        )


def find_java() -> str:
    """The `java` of JAVA_HOME, or on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=f"{home}/bin") if home else None) or shutil.which("java")
    if java is None:
        raise EmbeddedZookeeperError(
            "the embedded ZooKeeper needs Java, which was not found",
            "install Java 17 or newer, or set JAVA_HOME to its directory",
        )
    return java


def server_command(*java_options: str, heap: str = "2g") -> list[str]:
    """The command of any ZooKeeper server that we start: for an embedded one, a drill's ensemble, a
    test. It reads `zoo.cfg` in its working directory; without servers in it, it is one alone.

    Raises `EmbeddedZookeeperError` when Java or PySpark is missing.
    """
    return [
        find_java(),
        f"-Xmx{heap}",
        # Else the heap begins with a 64th of the machine's memory, and fills all of it before the
        # first collection: 80 MB more on 24 GB, for the same CPU.
        "-Xms32m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dzookeeper.jmx.log4j.disable=true",
        *java_options,
        "-cp",
        f"{find_jars()}/*",
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        "zoo.cfg",
    ]


def java_environment() -> dict[str, str]:
    """The environment of this process, in a locale in which Java decodes paths as UTF-8, if one is
    installed. In another, Java finds no path that is not ASCII, and writes beside it.

    Sets the locale of the process for a moment.
    """
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        for name in _UTF8_LOCALES:
            with contextlib.suppress(locale.Error):
                locale.setlocale(locale.LC_CTYPE, name)
                return os.environ | {"LC_ALL": name}
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    return dict(os.environ)


def find_jars() -> Path:
    """The folder of PySpark's jars, or else of SPARK_HOME's. PySpark is located, never imported:
    this package must not depend on it.
    """
    spec = importlib.util.find_spec("pyspark")
    package = None if spec is None or spec.origin is None else str(Path(spec.origin).parent)
    for home in filter(None, (package, os.environ.get("SPARK_HOME"))):
        jars = Path(home) / "jars"
        if any(jars.glob("zookeeper-*.jar")):
            return jars
    raise EmbeddedZookeeperError(
        "the embedded ZooKeeper needs the jars of PySpark, which were not found",
        "run pip install 'pyspark>=4.2', or use the address of a ZooKeeper server",
    )


def _failed(directory: Path, what: str) -> EmbeddedZookeeperError:
    return EmbeddedZookeeperError(
        f"the embedded ZooKeeper in {directory} cannot be used: {what}",
        f"read the logs {directory / LOG_NAME} and supervisor.log in the same directory",
    )


def _processes(directory: Path) -> list[tuple[int, str]]:
    """The pid and the start time of the supervisor, and those of the server."""
    known = read_running(directory)
    if known is None:
        return []
    return [(known.supervisor_pid, known.supervisor_start), (known.server_pid, known.server_start)]


def _signal(process: tuple[int, str], number: signal.Signals) -> bool:
    """Whether the process still exists, so that it got the signal."""
    pid, start = process
    with contextlib.suppress(OSError):
        if not start or process_start(pid) == start:
            os.kill(pid, number)
            return True
    return False


def supervise(directory: Path, lock: int, idle_s: float, command: Sequence[str]) -> None:
    """Run the directory's server until it had no connection for `idle_s`, a signal asks for the
    end, or it fails to start several times in a row. A server that crashes is started again.

    `lock`: the inherited descriptor of the directory's lock, which the server inherits as well.
    `command`: the server's (`server_command`).
    """
    before = read_running(directory)
    write_running(directory, None)
    (directory / "log4j2.properties").write_text(_LOG_CONFIG)
    port = free_port(before.port if before else 0)
    failed_starts = 0  # in a row
    while failed_starts < _MAX_FAILED_STARTS:
        (directory / "zoo.cfg").write_text(CONFIG.format(port=port))
        with (directory / "server.out").open("wb") as output:
            server = subprocess.Popen(
                command,
                cwd=directory,
                env=java_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(lock,),
                preexec_fn=_die_with_parent,  # noqa: PLW1509  # this process has one thread only
            )
        try:
            deadline = time.monotonic() + _SERVER_START_S
            while not (is_up := answers(port)) and time.monotonic() < deadline:
                if _ended(server, _POLL_S):
                    break
            if is_up:
                failed_starts = 0
                running = Running(
                    port=port,
                    supervisor_pid=os.getpid(),
                    supervisor_start=process_start(os.getpid()) or "",
                    server_pid=server.pid,
                    server_start=process_start(server.pid) or "",
                )
                write_running(directory, running)
                if _gets_unused(server, port, directory, lock, idle_s):
                    return
            else:
                failed_starts += 1
                port = free_port(0)  # another process may have taken the port
        finally:
            server.terminate()
            if not _ended(server, _SERVER_STOP_S):
                server.kill()
                server.wait()


def _gets_unused(
    server: subprocess.Popen[bytes], port: int, directory: Path, lock: int, idle_s: float
) -> bool:
    """Wait until the server was not used for long enough, or its directory was removed or replaced,
    so that no client can find it. False if it ends by itself before that.
    """
    last_seen = time.monotonic()
    while not _ended(server, _TICK_S):
        if (ask_local(port).connections or 0) > 1:  # the one that asks is connected, too
            last_seen = time.monotonic()
        try:
            file = (directory / LOCK_NAME).stat()
        except OSError:
            return True
        asked_s = time.time() - file.st_mtime  # noqa: TID251  # a file's time
        unused_s = min(time.monotonic() - last_seen, asked_s)
        if unused_s >= idle_s or not os.path.samestat(os.fstat(lock), file):
            return True
    return False


def free_port(wanted: int) -> int:
    """`wanted` if that port of 127.0.0.1 is free, else another port that is free now."""
    for port in (wanted, 0):
        # Connections in TIME_WAIT do not keep the port of the last server taken (SO_REUSEADDR).
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as probe:
            return int(probe.getsockname()[1])
    raise OSError("127.0.0.1 has no free port for the embedded ZooKeeper")


def _ended(server: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether the server ends within `timeout_s`."""
    try:
        server.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _die_with_parent() -> None:
    """Let the server end with its supervisor. Without Linux it continues, with the lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main(arguments: list[str]) -> None:
    directory, lock, idle_s, *command = arguments
    # The starter waits for the first process only. The second one is not its child, so the starter
    # may end at any time and has nothing to reap.
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # ends the server on its way out
    try:
        supervise(Path(directory), int(lock), float(idle_s), command)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if __name__ == "__main__":
    main(sys.argv[1:])
