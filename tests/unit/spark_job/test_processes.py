"""What a process of Spark imports, and the services that it keeps."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
from tests.architecture.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import SourceSettings


def settings(application: str = "etl", **options: str) -> SourceSettings:
    return KinesisSource(
        stream="orders",
        application=application,
        zookeeper="127.0.0.1:1/chroot",
        region="eu-west-1",
        **options,
    ).settings()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    ProcessServices.forget_all()


def test_a_process_has_one_set_of_services_for_the_same_settings() -> None:
    """Spark reuses a worker for many tasks, and each unpickles its own, equal settings. A driver
    has its own: a query that stops closes them, and tasks in the same process go on. Nothing is
    connected before it is used: no server answers at that address.
    """
    first = ProcessServices.here(settings())
    assert ProcessServices.here(settings()) is first
    assert ProcessServices.here(settings("other")) is not first
    drivers = ProcessServices.connect(settings())
    assert drivers is not first
    drivers.store.close()
    drivers.client.close()
    ProcessServices.forget_all()
    assert ProcessServices.here(settings()) is not first


FORKING = """
import os
from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
settings = KinesisSource(
    stream="orders", application="etl", zookeeper="127.0.0.1:1", region="eu-west-1"
).settings()
here = ProcessServices.here(settings)
child = os.fork()
if child == 0:
    os._exit(0 if ProcessServices.here(settings) is not here else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_makes_its_own() -> None:
    """Two processes on one connection would mix up their answers. The process that forks has no
    threads.
    """
    command = [sys.executable, "-c", FORKING]
    assert subprocess.run(command, check=False, timeout=60, cwd=ROOT).returncode == 0


def test_a_shard_is_paced_over_all_tasks_of_the_process() -> None:
    services = ProcessServices.here(settings(reads_per_second="2"))
    assert services.pacers.of("a") is not services.pacers.of("b")
    services.pacers.of("a").begin(10.0)
    services.pacers.of("a").begin(10.0)
    assert services.pacers.of("a").ready_at_s(10.0) == 11.0


READING = """
import spark_job.data_source, spark_job.executor.task_reader, spark_job.process_services
"""
PLANNING = """
from pyspark.sql.types import StructType
from spark_job.registration import RegisteredSource
options = {"streamName": "flights", "applicationName": "a", "zookeeper": "zk:2181"}
RegisteredSource(options).streamReader(StructType().add("data", "binary"))
"""
USING = "from spark_job import KinesisSource, register"


def imported_by(script: str) -> list[str]:
    """The modules that a process has after it."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{script}\nprint(json.dumps([*sys.modules]))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names: list[str] = json.loads(done.stdout)
    return names


def test_what_reads_imports_neither_planning_nor_tracking() -> None:
    """The rest of the package took a worker a third more time, in each worker process."""
    imported = imported_by(READING)
    rooms = (
        *("driver", "tracking", "dead_letter", "acker", "batch_read", "sink"),
        *("kinesis_source", "registration", "preflight"),
    )
    assert [
        name
        for name in imported
        if name.startswith(tuple(f"spark_job.{room}" for room in rooms)) or name == "pandas"
    ] == []


@pytest.mark.parametrize("script", [PLANNING, USING])
def test_planning_a_query_imports_nothing_that_reads(script: str) -> None:
    """Spark keeps the processes that plan a query as long as it lives."""
    assert {"pyarrow", "numpy", "botocore", "kazoo"} & set(imported_by(script)) == set()


def test_the_driver_imports_nothing_that_makes_rows() -> None:
    """Each query starts one, and waits for its imports."""
    imported = imported_by("import spark_job.driver.query_driver")
    rooms = ("spark_job.rows", "spark_job.executor", "kinesis_spout.aggregation.unpacking")
    assert [name for name in imported if name.startswith((*rooms, "pandas"))] == []


ENDING = """
import os, signal, threading
from spark_job import data_source
data_source.END_S = 1
signal.signal(signal.SIGTERM, data_source._exit_in_order)
try:
    os.kill(os.getpid(), signal.SIGTERM)
finally:
    print("stop", flush=True)
    {stop}
"""


@pytest.mark.parametrize(
    ("stop", "code"),
    [("pass", 128 + signal.SIGTERM), ("threading.Event().wait()", -signal.SIGALRM)],
)
def test_a_process_that_is_told_to_end_stops_its_reader_and_ends_even_if_that_hangs(
    stop: str, code: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDING.format(stop=stop)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (code, "stop\n"), ended.stderr
