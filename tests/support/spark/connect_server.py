"""A Spark Connect server, as Spark ships it, shared by all tests that need one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.programs.processes import kill_family
from localstack import emulator
from tests.support.spark.job_process import ROOT
from tests.support.spark.session import QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTED = "Spark Connect server started"
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A server that listens at `url`; its warehouse is in `directory`."""

    url: str
    directory: Path
    environment: dict[str, str]

    def run(
        self, *command: str, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a client to its end, whose session is one of the server by default. It has the
        package and the server's Python. `variables`: of its environment.
        """
        remote = {"SPARK_REMOTE": self.url, "SPARK_CONNECT_MODE_ENABLED": "1"}
        return subprocess.run(
            [sys.executable, *command],
            cwd=cwd or self.directory,
            env=self.environment | remote | variables,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """On two threads, with its tables in a temporary directory. Fails without the packages that
    Connect needs.
    """
    if find_spec("grpc") is None:
        pytest.fail("Spark Connect needs grpcio; run make setup, or pip install 'pyspark[connect]'")
    spark_home = Path(str(find_spec("pyspark").origin)).parent  # type: ignore[union-attr]  # Spark is there
    directory = tmp_path_factory.mktemp("connect")
    (port,) = emulator.free_ports(1)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore",
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": QUICK_JVM,
    }
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.noDataProgressEventInterval": "500",  # ten seconds by default
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
    }
    command = [
        *(str(spark_home / "bin" / "spark-submit"), "--master", "local[2]"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
    log = directory / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=out, stderr=out)
    try:
        emulator.wait_until_answering(
            lambda: STARTED in log.read_text(errors="replace"),
            process,
            f"Spark Connect on port {port}",
            log,
            AssertionError,
        )
        yield ConnectServer(f"sc://127.0.0.1:{port}", directory, environment)
    finally:
        kill_family(process)
        process.wait(timeout=30)
