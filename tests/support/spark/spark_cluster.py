"""A Spark on separate executors, shared by all tests that need one: its start takes longer than
most of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kinesis_spout.processes import kill_family
from tests.support.spark.job_process import ROOT
from tests.support.spark.session import QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = Path(__file__).with_name("spark_cluster_server.py")
LIMIT_S = 300.0


class QueryFailedError(Exception):
    """A query ended with an error; the message is the driver's."""


@dataclass
class SparkCluster:
    """The driver's process. It runs one query at a time."""

    process: subprocess.Popen[str]
    answers: SimpleQueue[str]
    log: Path

    def run(self, job: dict[str, Any], *, limit_s: float = LIMIT_S) -> None:
        """Run a query to its end. Raises `QueryFailedError`."""
        self.begin(job)
        self.end(limit_s=limit_s)

    def begin(self, job: dict[str, Any]) -> None:
        """Start a query; `end` waits for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def end(self, *, limit_s: float = LIMIT_S) -> None:
        try:
            answer = json.loads(self.answers.get(timeout=limit_s))
        except Empty:
            raise AssertionError(
                f"no answer within {limit_s} s; the log ends with:\n{self.tail()}"
            ) from None
        if "error" in answer:
            raise QueryFailedError(answer["error"])

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@pytest.fixture(scope="session")
def spark_cluster(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two executors in processes of their own, with the package from the wheel, as
    users ship it.
    """
    log = tmp_path_factory.mktemp("cluster") / "driver.log"
    env = os.environ | {
        "PYTHONPATH": f"{wheel}:{ROOT}",  # the package from the wheel, programs from the tests
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_TOOL_OPTIONS": QUICK_JVM,
    }
    with (
        log.open("wb") as errors,
        _ended_with_family(
            subprocess.Popen(
                [sys.executable, str(SERVER), str(wheel)],
                cwd=log.parent,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        ) as process,
    ):
        cluster = SparkCluster(process, _lines_of(process.stdout), log)
        cluster.end()
        yield cluster


@contextmanager
def _ended_with_family(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A context. At its end, the process and all of its children have ended."""
    try:
        yield process
    finally:
        kill_family(process)
        process.communicate(timeout=30)


def _lines_of(stream: IO[str] | None) -> SimpleQueue[str]:
    """The lines of JSON as they arrive; the end of the stream becomes an error line."""
    assert stream is not None
    lines: SimpleQueue[str] = SimpleQueue()

    def read(stream: IO[str]) -> None:
        for line in stream:
            if line.startswith("{"):
                lines.put(line)
        lines.put(json.dumps({"error": "the driver has ended"}))

    threading.Thread(target=read, args=(stream,), daemon=True).start()
    return lines


def rows_in(out: Path) -> list[dict[str, Any]]:
    """All rows of the batches that a query has finished writing, in order. `batch` is a row's batch
    number.
    """
    files = [
        (int(done.parent.name.partition("=")[2]), file)
        for done in sorted(out.glob("batch=*/_SUCCESS"))
        for file in sorted(done.parent.glob("*.parquet"))
    ]
    return [
        row | {"batch": batch}
        for batch, file in files
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
