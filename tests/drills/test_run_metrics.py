"""`kinesis-spout run --metrics-port`: a query's metrics on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from tests.drills.test_run_command import COUNT, Orders, orders
from tests.support.shell.command_line import command_line, environment, run_cli
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
__all__ = ["orders"]  # a fixture
NOTE = "metrics for Prometheus at "


def test_port_0_says_where_the_metrics_are_and_serves_them(orders: Orders, tmp_path: Path) -> None:
    command = command_line("run", *orders.arguments, "--sink", "noop", "--metrics-port", "0")
    series = (
        f'kinesis_spout_stream_records_acked_total{{application="etl",stream="{orders.stream}"}} '
        f"{float(COUNT)}"
    )
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = (line for line in process.stderr if line.startswith(NOTE))
            url = next(said).removeprefix(NOTE).strip()
            wait_until(lambda: series in scraped(url), 120)
            process.send_signal(signal.SIGINT)
            process.stderr.read()
            assert process.wait(60) == 130
        finally:
            process.kill()


def scraped(url: str) -> str:
    with urlopen(url, timeout=10) as answer:  # noqa: S310  # our own server
        return str(answer.read().decode())


def test_a_port_in_use_is_one_sentence(orders: Orders, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run_cli(
            "run", *orders.arguments, "--sink", "noop", "--metrics-port", port, cwd=tmp_path
        )
    assert ended.returncode == 1
    error = next(line for line in ended.stderr.splitlines() if line.startswith("error: "))
    assert error.startswith(f"error: option --metrics-port: {port} cannot be bound at 127.0.0.1: ")
    assert "Traceback" not in ended.stderr
