"""The source, the batch read and the sink in Spark Connect and in a declarative pipeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from kinesis_spout.processes import kill_family
from localstack import emulator
from tests.support.kinesis.services import create_stream, fields_of, kinesis_client, options_of
from tests.support.spark import connect_client
from tests.support.spark.job_process import ROOT
from tests.support.spark.session import QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kinesis.services import ServedFake

pytestmark = pytest.mark.spark
CLIENT = connect_client.__file__
_PIPELINE = """
import json, os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from spark_job import register

spark = SparkSession.active()
register(spark)
options = json.loads(os.environ["ORDERS"])


@dp.table
def orders():
    return spark.readStream.format("kinesis").options(**options).load()


@dp.materialized_view
def shards():
    return spark.read.table("orders").groupBy("shardId").count()
"""


class Orders(NamedTuple):
    """Streams `orders`, with 50 records in 2 shards, and `copy`, which is empty."""

    client: Any
    endpoint_url: str

    def put(self, numbers: range) -> None:
        entries = [
            {"Data": b"record %d" % number, "PartitionKey": f"key {number}"} for number in numbers
        ]
        assert not self.client.put_records(StreamName="orders", Records=entries)[
            "FailedRecordCount"
        ]

    @property
    def connection(self) -> dict[str, str]:
        return options_of(self.endpoint_url)


@pytest.fixture
def orders(fake_kinesis: ServedFake) -> Iterator[Orders]:
    with kinesis_client(fake_kinesis.endpoint_url) as client:
        create_stream(client, "orders", shards=2)
        create_stream(client, "copy")
        made = Orders(client, fake_kinesis.endpoint_url)
        made.put(range(50))
        yield made


def test_a_connect_session_reads_and_writes_and_refuses_outcomes(
    connect_server: ConnectServer, orders: Orders, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """Plain source, batch read, both sinks, schemes and the metrics work. What does not is one
    sentence. A batch and a query write everything to `copy`.
    """
    source = {
        "stream": "orders",
        "application": "connect",
        "zookeeper": zookeeper_chroot,
        "starting_position": "TRIM_HORIZON",
        **fields_of(orders.endpoint_url),
    }
    job = {"source": source, "connection": orders.connection, "directory": str(tmp_path)}
    ended = connect_server.run(CLIENT, json.dumps(job))
    assert ended.returncode == 0, ended.stderr
    seen: dict[str, Any] = json.loads(ended.stdout)
    everything = sorted(f"record {number}" for number in range(50))
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["batch"] == everything
    assert seen["copy"] == sorted(everything * 2)
    assert seen["parsed"] == seen["by option"] == seen["by the source"] == list(range(50))
    assert seen["tracked"].startswith(
        "SparkConnectError: source.tracked(...) does not run on Spark Connect, because"
    )
    assert "check the stream's name" in seen["absent"]
    assert f"{connect_client.EMITTED} 50.0" in seen["metrics"]


def test_a_declarative_pipeline_reads_the_plain_source_and_goes_on_at_its_next_update(
    connect_server: ConnectServer, orders: Orders, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """Each record is in the table once. PySpark 4.3.0's client does not know an answer that every
    Python worker brings about, and may end with an error after the update is complete.
    """
    options = orders.connection | {
        "streamName": "orders",
        "applicationName": "pipeline",
        "zookeeper": zookeeper_chroot,
        "startingPosition": "TRIM_HORIZON",
    }
    (tmp_path / "orders.py").write_text(_PIPELINE)
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: file://{tmp_path}/storage\nlibraries:\n"
        "  - glob:\n      include: orders.py\n"
    )
    warehouse = connect_server.directory / "warehouse"
    for last in (50, 80):
        if last > 50:
            orders.put(range(50, last))
        ended = connect_server.run(
            *("-m", "pyspark.pipelines.cli", "run"),
            *("--spec", str(tmp_path / "spark-pipeline.yml")),
            cwd=tmp_path,
            ORDERS=json.dumps(options),
        )
        assert ended.returncode == 0 or "UNKNOWN_RESPONSE" in ended.stderr, ended.stderr
        rows = rows_of(warehouse / "orders")
        assert sorted(row["data"] for row in rows) == sorted(
            b"record %d" % number for number in range(last)
        )
        assert sum(row["count"] for row in rows_of(warehouse / "shards")) == last


def rows_of(table: Path) -> list[dict[str, Any]]:
    return [row for file in table.glob("*.parquet") for row in pq.read_table(file).to_pylist()]


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
