"""A Spark worker that reads imports what reading needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.architecture.source_tree import ROOT

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
