"""A local Kinesis until Ctrl-C: `make localstack`, or `python -m localstack.start [--pip] [--port
N]`.

With a Docker engine it is compose.yaml: LocalStack and a ZooKeeper ensemble. Without, it is
LocalStack's pip runtime, which is set up first; the ZooKeeper is then the embedded one
(`zookeeper="embedded:<directory>"`).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from localstack import emulator, runtime
from scripts import set_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

COMPOSE = ("docker", "compose", "--file", str(runtime.HERE / "compose.yaml"))
ENSEMBLE = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
_PORT = 4566  # LocalStack's default, which compose.yaml publishes too
_ANSWER_TIMEOUT_S = 20


def docker_answers(run: Callable[..., subprocess.CompletedProcess[bytes]] = subprocess.run) -> bool:
    """Whether there are a Docker engine, not only its client, and compose."""
    if shutil.which("docker") is None:
        return False
    try:
        answers = [
            run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_ANSWER_TIMEOUT_S,
            )
            for command in (
                ["docker", "info", "--format", "{{.ServerVersion}}"],
                ["docker", "compose", "version"],
            )
        ]
    except (OSError, subprocess.TimeoutExpired):
        return False
    return all(answer.returncode == 0 and answer.stdout.strip() for answer in answers)


@contextmanager
def in_docker() -> Iterator[list[str]]:
    """The services of compose.yaml, healthy. Yields lines for the user.

    At the end the containers are removed; the emulator's volume stays.
    """
    try:
        if subprocess.run([*COMPOSE, "up", "--detach", "--wait"], check=False).returncode:
            raise runtime.LocalStackError(
                "docker compose could not start the services; see its output above"
            )
        yield [
            f"Kinesis is at http://127.0.0.1:{_PORT}, ZooKeeper at {ENSEMBLE}",
            f"logs: {' '.join(COMPOSE)} logs",
        ]
    finally:
        subprocess.run([*COMPOSE, "down"], check=False)


@contextmanager
def without_docker(port: int) -> Iterator[list[str]]:
    """The pip runtime, which is set up first if necessary. Yields lines for the user."""
    if set_up.main(["--localstack"]):
        raise runtime.LocalStackError(
            "LocalStack's pip runtime could not be set up; see its output above"
        )
    with runtime.running(runtime.DEFAULT_DIRECTORY / "localstack.log", port=port) as service:
        yield [f"Kinesis is at {service.endpoint_url}", f"log: {service.log}"]


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM. Returns 1 after one sentence when nothing could be started."""
    parser = argparse.ArgumentParser(
        prog="localstack.start", description="Run a local Kinesis until Ctrl-C."
    )
    parser.add_argument(
        "--pip", action="store_true", help="use the pip runtime even if Docker is installed"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=_PORT,
        help="port of the pip runtime; 0 chooses a free port (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    stop = {signal.SIGINT, signal.SIGTERM}
    try:
        with (
            in_docker()
            if docker_answers() and not options.pip
            else without_docker(options.port) as lines
        ):
            signal.pthread_sigmask(signal.SIG_BLOCK, stop)
            print(*lines, "Ctrl-C stops it", sep="\n", flush=True)
            signal.sigwait(stop)
    except (runtime.LocalStackError, emulator.EmulatorError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
