"""What readers talk to: the replay server, and moto's DynamoDB for the KCL's leases."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from benchmarks.peers.measure import cpu_s_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

READY_S = 60.0


class ReplayServer:
    """The server's address, and what it has done so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise SystemExit("the replay server did not start; its error is above")
        self.endpoint_url = f"http://127.0.0.1:{port}"
        self._pid = process.pid

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.endpoint_url) as answer:  # noqa: S310  # our own
            found: dict[str, Any] = json.load(answer)
        return found | {"cpu_s": sum(cpu_s_of([self._pid]).values())}


@contextlib.contextmanager
def replay_server(java: Path, classpath: str, arguments: Sequence[str]) -> Iterator[ReplayServer]:
    """A replay server that ends with the block."""
    command = [str(java), "-Xmx4g", "-cp", classpath, "ReplayServer", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield ReplayServer(process)
        finally:
            process.terminate()


@contextlib.contextmanager
def dynamodb(log: Path) -> Iterator[str]:
    """The address of an empty DynamoDB that ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            endpoint_url = f"http://127.0.0.1:{port}"
            _wait_for(f"{endpoint_url}/moto-api/")
            yield endpoint_url
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    deadline_s = time.monotonic() + READY_S
    while True:
        try:
            urllib.request.urlopen(url).close()  # noqa: S310  # our own
        except urllib.error.URLError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)  # noqa: TID251  # a server that is starting has nothing to wait on
        else:
            return
