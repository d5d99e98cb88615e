"""The Kinesis emulator inside LocalStack, alone: installs and runs the npm package kinesis-local.

    python localstack/emulator.py install   # once, as package-lock.json pins it
    python localstack/emulator.py run       # serves until Ctrl-C

It is installed into .tools/kinesis-local, and needs Node 18 or newer. It speaks plain HTTP on
loopback, accepts any credentials and forgets everything when it ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent
DEFAULT_DIRECTORY = HERE.parent / ".tools" / "kinesis-local"
_PINS = ("package.json", "package-lock.json")
_NODE_MAJOR = 18
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 10.0
# The emulator's names of changes to streams. By default each takes half a second.
_CHANGES = (
    "CREATE_STREAM",
    "DELETE_STREAM",
    "MERGE_SHARDS",
    "SPLIT_SHARD",
    "UPDATE_SHARD_COUNT",
)


class EmulatorError(Exception):
    """The emulator cannot be installed or started. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running emulator: its address, its process id, and its log file."""

    endpoint_url: str
    pid: int
    log: Path


def install(directory: Path = DEFAULT_DIRECTORY) -> Path:
    """Install what package-lock.json pins, unless it is installed. Returns the package's folder.

    Blocks on the network. Raises `EmulatorError`.
    """
    npm = _path_of("npm")
    _check_node()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may start at the same time
        return _installed(directory, npm)


def _installed(directory: Path, npm: str) -> Path:
    package = directory / "node_modules" / "kinesis-local"
    pins = directory / "package-lock.json"
    if (
        (package / "main.js").exists()
        and pins.exists()
        and pins.read_bytes() == (HERE / "package-lock.json").read_bytes()
    ):
        return package
    for name in _PINS:
        if name != pins.name:
            shutil.copyfile(HERE / name, directory / name)
    shutil.copyfile(HERE / pins.name, pins)
    done = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pins.unlink()
        raise EmulatorError(
            f"npm could not install kinesis-local into {directory}; npm reported: "
            f"{done.stderr.strip()[-500:]}"
        )
    return package


@contextmanager
def running(
    log: Path, *, directory: Path = DEFAULT_DIRECTORY, change_ms: int = 10
) -> Iterator[Emulator]:
    """Install if necessary, serve on a free loopback port, and end the process at the end.

    `change_ms`: how long a stream stays CREATING, UPDATING or DELETING. Blocks until the emulator
    answers, at most 60 s. Raises `EmulatorError`.
    """
    package = install(directory)
    plain_port, tls_port = free_ports(2)
    environment = os.environ | {
        "KINESIS_MOCK_PLAIN_PORT": str(plain_port),
        "KINESIS_MOCK_TLS_PORT": str(tls_port),
        "SHARD_LIMIT": "5000",
        "LOG_LEVEL": "WARN",
        **{f"{change}_DURATION": f"{change_ms}ms" for change in _CHANGES},
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [_path_of("node"), "--require", str(HERE / "loopback_only.cjs"), "main.js"],
            cwd=package,  # it reads server.json from its working directory
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_answering(
            lambda: _answers(plain_port),
            process,
            f"the emulator on port {plain_port}",
            log,
            EmulatorError,
        )
        yield Emulator(f"http://127.0.0.1:{plain_port}", process.pid, log)
    finally:
        end(process, limit_s=_STOP_LIMIT_S)


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["install"]:
            print(f"kinesis-local is in {install()}")
            return 0
        if arguments == ["run"]:
            with running(DEFAULT_DIRECTORY.parent / "kinesis-local.log") as emulator:
                print(
                    f"Kinesis is at {emulator.endpoint_url}. The log of the emulator is "
                    f"{emulator.log}. Ctrl-C stops the emulator"
                )
                _wait_for_interrupt()
            return 0
    except EmulatorError as exc:
        print(exc, file=sys.stderr)
        return 1
    print(f"usage: {Path(__file__).name} install | run", file=sys.stderr)
    return 2


def _wait_for_interrupt() -> None:
    import signal  # noqa: PLC0415  # only the command line waits for signals

    signal.sigwait({signal.SIGINT, signal.SIGTERM})


def _path_of(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise EmulatorError(
            f"{program} is not on the PATH; install Node {_NODE_MAJOR}+ (Debian: apt-get install "
            "nodejs npm)"
        )
    return path


def _check_node() -> None:
    version = subprocess.run(
        [_path_of("node"), "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    major = version.lstrip("v").partition(".")[0]
    if not major.isdigit() or int(major) < _NODE_MAJOR:
        raise EmulatorError(
            f"node is {version}, but the Kinesis emulator needs Node {_NODE_MAJOR}+; install a "
            "newer Node"
        )


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free at the moment."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def wait_until_answering(
    answers: Callable[[], bool],
    process: subprocess.Popen[bytes],
    server: str,
    log: Path,
    error: type[Exception],
    *,
    limit_s: float = _START_LIMIT_S,
) -> None:
    """Block until a server that was just started answers.

    Raises `error` when its process ends, or when it does not answer in time.
    """
    deadline = time.monotonic() + limit_s
    while not answers():
        if process.poll() is not None:
            raise error(
                f"{server} ended with code {process.returncode} during its start; see {log}"
            )
        if time.monotonic() > deadline:
            raise error(f"{server} did not answer within {limit_s:.0f} s; see {log}")
        time.sleep(0.05)  # noqa: TID251  # a starting process gives no event to wait for


def _answers(port: int) -> bool:
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("GET", "/healthcheck")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False


def end(process: subprocess.Popen[bytes], *, limit_s: float) -> None:
    """Terminate the process, and kill it if it does not end within the limit."""
    process.terminate()
    try:
        process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=limit_s)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
