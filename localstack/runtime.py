"""LocalStack without Docker: its pip runtime, with Kinesis only, in a virtual environment of its
own.

    make localstack     # sets it up, starts it (or the container, with Docker), prints its address

`scripts/set_up.py --localstack` makes the environment in .tools/localstack from
requirements/localstack.txt. LocalStack runs the emulator that emulator.py installs, as
package-lock.json pins it. After the first start nothing needs a network, and nothing may use one
(loopback_runtime.py). It accepts any credentials and forgets everything when it ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from localstack import emulator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HERE = Path(__file__).resolve().parent
DEFAULT_DIRECTORY = HERE.parent / ".tools" / "localstack"
_START_LIMIT_S = 90.0
_STOP_LIMIT_S = 20.0
# The gateway takes the service's name from it, and checks nothing.
_CREDENTIAL = "any/20260101/us-east-1/kinesis/aws4_request"
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ")


class LocalStackError(Exception):
    """LocalStack cannot be started. The message says what to do."""


@dataclass(frozen=True, slots=True)
class LocalStack:
    """A running LocalStack: its address, its process id, and the log file of it and its
    emulator.
    """

    endpoint_url: str
    pid: int
    log: Path


@contextmanager
def running(
    log: Path, *, directory: Path = DEFAULT_DIRECTORY, port: int = 0, change_ms: int = 10
) -> Iterator[LocalStack]:
    """Serve Kinesis on a loopback port (0: a free one), and end the processes at the end.

    They end too when this process is killed. `change_ms`: how long a stream stays CREATING,
    UPDATING or DELETING. Blocks until Kinesis answers, at most 90 s. Raises `LocalStackError` and
    `EmulatorError`.
    """
    python = _environment_python(directory)
    package = emulator.install()
    port = port or emulator.free_ports(1)[0]
    _check_free(port)
    with (
        tempfile.TemporaryDirectory(prefix="localstack-", dir=log.parent) as root,
        log.open("wb") as out,
    ):
        place_emulator(Path(root), package)
        process = subprocess.Popen(
            # -I, because this folder has the name of LocalStack's package and would hide it
            [python, "-I", "-u", str(HERE / "loopback_runtime.py")],
            cwd=root,
            env=environment(os.environ, root=Path(root), port=port, change_ms=change_ms),
            stdin=subprocess.PIPE,  # its end shows LocalStack that this process is gone
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            emulator.wait_until_answering(
                lambda: _lists_streams(port),
                process,
                f"LocalStack on port {port}",
                log,
                LocalStackError,
                limit_s=_START_LIMIT_S,
            )
            yield LocalStack(f"http://127.0.0.1:{port}", process.pid, log)
        finally:
            _end(process)


def environment(
    inherited: Mapping[str, str], *, root: Path, port: int, change_ms: int
) -> dict[str, str]:
    """LocalStack's environment variables.

    The user's own are not passed on: LocalStack's variables in a shell would change what tests see.
    """
    preloads = " ".join(
        f'--require "{HERE / name}"' for name in ("loopback_only.cjs", "ends_with_parent.cjs")
    )
    return {name: inherited[name] for name in _INHERITED if name in inherited} | {
        "SERVICES": "kinesis",
        "EAGER_SERVICE_LOADING": "1",
        "STRICT_SERVICE_LOADING": "1",
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "LOCALSTACK_HOST": f"127.0.0.1:{port}",
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DNS_ADDRESS": "0",  # no name server
        # In a container it would mistake itself for its own image and write to /var/lib.
        "OVERRIDE_IN_DOCKER": "0",
        "FILESYSTEM_ROOT": str(root),
        "CONFIG_DIR": str(root / "config"),
        "HOME": str(root),
        "KINESIS_MOCK_VERSION": emulator_version(),
        "KINESIS_MOCK_LOG_LEVEL": "WARN",
        "KINESIS_PERSISTENCE": "0",
        "KINESIS_LATENCY": str(change_ms),
        "KINESIS_SHARD_LIMIT": "5000",
        "NODE_OPTIONS": preloads,
    }


def emulator_version() -> str:
    """The pinned version of the emulator.

    LocalStack 4.9.2 would use 0.4.13, which reads a shard's first record again and again.
    """
    version: str = json.loads((HERE / "package.json").read_text())["dependencies"]["kinesis-local"]
    return version


def place_emulator(root: Path, package: Path) -> None:
    """Link the installed emulator to where LocalStack looks for it before it downloads one."""
    versions = root / "var" / "lib" / "localstack" / "lib" / "kinesis-local"
    versions.mkdir(parents=True)
    (versions / emulator_version()).symlink_to(package.parent.parent, target_is_directory=True)


def _environment_python(directory: Path) -> str:
    python = directory / "venv" / "bin" / "python"
    if not python.exists():
        raise LocalStackError(f"LocalStack is not set up in {directory}: run make setup-test")
    return str(python)


def _check_free(port: int) -> None:
    """Refuse a port in use: another LocalStack there would answer instead of the new one."""
    with socket.socket() as probe:
        # Connections in TIME_WAIT of an earlier server do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as exc:
            raise LocalStackError(
                f"port {port} on 127.0.0.1 cannot be bound ({exc.strerror}); end the process that "
                "uses it, or choose another port"
            ) from exc


def _lists_streams(port: int) -> bool:
    """Whether Kinesis itself answers.

    The gateway's health page reports it as running before its emulator was started.
    """
    headers = {
        "Content-Type": "application/x-amz-json-1.1",
        "X-Amz-Target": "Kinesis_20131202.ListStreams",
        "Authorization": (
            f"AWS4-HMAC-SHA256 Credential={_CREDENTIAL}, SignedHeaders=host, Signature=0"
        ),
    }
    with closing(HTTPConnection("127.0.0.1", port, timeout=_START_LIMIT_S)) as connection:
        try:
            connection.request("POST", "/", body="{}", headers=headers)
            answer = connection.getresponse()
            return answer.status == 200 and "StreamNames" in json.loads(answer.read())
        except (OSError, HTTPException, ValueError):
            return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End LocalStack. If it has to be killed, its emulator ends by ends_with_parent.cjs."""
    try:
        emulator.end(process, limit_s=_STOP_LIMIT_S)
    finally:
        if process.stdin is not None:
            process.stdin.close()
