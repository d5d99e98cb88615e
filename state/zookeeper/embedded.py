"""The embedded ZooKeeper: a real server, started from the jars that PySpark ships. There is one per
directory, shared by all processes that name the directory.

Files. `<directory>/lock` is locked (flock) by the server and its supervisor process while they run.
So the kernel says whether a server runs, and a file that a crash left behind cannot mislead.
`<directory>/running.json` has the server's address. The supervisor writes it when the server
answers, and removes it before it starts a server.

Start. The first process that needs the server takes the lock, starts the supervisor and passes the
lock to it. Other processes wait for the address.

Lifetime. The server listens on 127.0.0.1 only. It outlives the process that started it, and keeps
its port over restarts while the port is free. The supervisor restarts a server that crashes, and
ends one that had no connection for some minutes.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import locale
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from state.errors import EmbeddedZookeeperError, InvalidStoreSettingError
from state.process import process_start
from state.zookeeper.connect_string import EMBEDDED_PREFIX
from state.zookeeper.server_words import ask_local

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_IDLE_S = 300.0
LOG_NAME = "server.log"
LOCK_NAME = "lock"
_RUNNING = "running.json"
_USED = "used"
_POLL_S = 0.05
_STOP_S = 15.0
_UTF8_LOCALES = ("C.UTF-8", "en_US.UTF-8", "UTF-8")


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
    """The address for `embedded:<directory>`, whose server is started if it does not run. Any other
    text is returned unchanged.
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
            f"{text!r} has no directory", "use embedded:<directory>, like embedded:.zookeeper"
        )
    return Path(directory).expanduser().absolute()


def ensure_running(
    directory: Path, *, timeout_s: float = 30.0, idle_s: float = DEFAULT_IDLE_S
) -> str:
    """The address of the directory's server, `127.0.0.1:<port>`. Starts a server if none runs.
    Blocks for at most `timeout_s`.

    `idle_s`: a server that this call starts ends after this time without a connection. Raises
    `EmbeddedZookeeperError` when Java or PySpark is missing, or the server does not answer.
    """
    directory = directory.expanduser().absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Counts as use, so that the server does not end before the caller has connected.
        (directory / _USED).touch()
    except OSError as exc:
        raise EmbeddedZookeeperError(
            f"the embedded ZooKeeper's directory {directory} cannot be written ({exc.strerror})",
            "use another directory",
        ) from exc
    deadline = time.monotonic() + timeout_s
    started = False
    while time.monotonic() < deadline:
        with _try_lock(directory) as lock:
            if lock is not None and started:
                # The supervisor held the lock and has ended, so the lock is free again.
                raise _failed(directory, "ended while it was starting")
            if lock is not None:
                _start_supervisor(directory, lock, idle_s)
                started = True
        running = read_running(directory)
        if running is not None and answers(running.port):
            return f"127.0.0.1:{running.port}"
        threading.Event().wait(_POLL_S)
    raise _failed(directory, f"did not answer within {timeout_s:g} s")


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
        running = read_running(directory)
        if running is not None and not signalled:
            signalled = _signal(running.supervisor_pid, running.supervisor_start, signal.SIGTERM)
            if not signalled:
                # The supervisor is gone but the server runs: on other systems than Linux it does
                # not end with its supervisor.
                _signal(running.server_pid, running.server_start, signal.SIGTERM)
        threading.Event().wait(_POLL_S)
    running = read_running(directory)
    if running is not None:
        _signal(running.supervisor_pid, running.supervisor_start, signal.SIGKILL)
        _signal(running.server_pid, running.server_start, signal.SIGKILL)


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


def seconds_since_use(directory: Path, now_s: float) -> float:
    """Seconds from the last `ensure_running` to `now_s` (seconds since 1970)."""
    try:
        return now_s - (directory / _USED).stat().st_mtime
    except OSError:
        return float("inf")


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
    """Start the supervisor and pass it the lock. Waits only for its first process, which forks and
    exits.
    """
    command = server_command("-Dlog4j2.configurationFile=log4j2.properties")
    here = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")])),
    }
    with (directory / "supervisor.log").open("ab") as log:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "state.zookeeper.embedded_supervisor",
                str(directory),
                str(lock),
                str(idle_s),
                *command,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            env=environment,
            start_new_session=True,
            check=False,
        )


def find_java() -> str:
    """The `java` of JAVA_HOME, or on the PATH."""
    home = os.environ.get("JAVA_HOME")
    candidate = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = candidate or shutil.which("java")
    if java is None:
        raise EmbeddedZookeeperError(
            "the embedded ZooKeeper needs Java, which was not found",
            "install Java 17 or newer, or set JAVA_HOME",
        )
    return java


def server_command(*java_options: str, heap: str = "512m") -> list[str]:
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
    homes = [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []
    homes += [Path(home) for home in [os.environ.get("SPARK_HOME")] if home]
    for home in homes:
        if any((home / "jars").glob("zookeeper-*.jar")):
            return home / "jars"
    raise EmbeddedZookeeperError(
        "the embedded ZooKeeper is started from PySpark's jars, which were not found",
        "run pip install 'pyspark>=4.2', or use the address of a ZooKeeper server",
    )


def _failed(directory: Path, what: str) -> EmbeddedZookeeperError:
    return EmbeddedZookeeperError(
        f"the embedded ZooKeeper of {directory} {what}",
        f"see {directory / LOG_NAME} and supervisor.log beside it",
    )


def _signal(pid: int, start: str, number: signal.Signals) -> bool:
    """Send a signal to the process with this pid and start time. False if it no longer exists."""
    if start and process_start(pid) != start:
        return False
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
