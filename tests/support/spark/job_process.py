"""Runs, watches and kills a job as a real process, with all of its child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from kinesis_spout.processes import kill_family
from state import failpoint
from tests.support.spark.session import QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = Path(__file__).with_name("spark_job_under_test.py")
ROOT = JOB.parents[3]
LIMIT_S = 300.0
"""Nothing is measured by it: three JVMs take minutes to start on a machine that is busy."""


@dataclass
class JobProcess:
    """One run of the job under test. `log` holds the output of the job and of Spark. `program`: the
    file that it runs, with `job` as its argument.
    """

    job: dict[str, Any]
    directory: Path
    stop_at: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    program: str = str(JOB)
    runs: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.directory / f"job-{self.runs}.log"

    @property
    def marker(self) -> Path:
        return self.directory / f"stopped-at-{self.stop_at}-{self.runs}"

    def start(self) -> None:
        env = (
            os.environ
            | {
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                "JAVA_TOOL_OPTIONS": QUICK_JVM,
            }
            | self.env
        )
        env.pop(failpoint.VARIABLE, None)
        self.runs += 1
        if self.stop_at:
            env[failpoint.VARIABLE] = f"{self.stop_at}@{self.marker}"
        with self.log.open("wb") as log:
            command = [sys.executable, self.program, json.dumps(self.job)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def wait(self, timeout_s: float = LIMIT_S) -> int:
        """Wait for the end; returns the exit code. After the time limit the job is killed with all
        of its children.
        """
        assert self.process is not None
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the job did not end within {timeout_s} s; its log ends with:\n{self.tail()}"
            ) from None

    def start_until(self, step: str) -> None:
        """Start it, and wait until this failpoint has stopped a process of it."""
        self.stop_at = step
        self.start()
        self.wait_until(
            lambda: self.marker.exists() and bool(self.marker.read_text()), f"came to {step}"
        )

    def kill_at(self, step: str) -> None:
        """A run that is killed at this failpoint."""
        self.start_until(step)
        self.kill()

    def start_again(self) -> None:
        """With no failpoint armed."""
        self.stop_at = None
        self.start()

    def finish(self, timeout_s: float = LIMIT_S) -> None:
        """A run to its end, which is in order."""
        self.start_again()
        assert self.wait(timeout_s) == 0, self.tail()

    def wait_until(
        self, condition: Callable[[], bool], what: str, timeout_s: float = LIMIT_S
    ) -> None:
        """Wait until the condition holds. If the job ends before, or after the time limit, it is
        killed with all of its children.
        """
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the job never {what}; its log ends with:\n{self.tail()}")
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue

    def kill(self) -> None:
        """Send SIGKILL to the job and all processes below it (the JVM and its Python workers), by
        id.
        """
        assert self.process is not None
        kill_family(self.process)

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def rows_below(folder: Path, *columns: str) -> list[dict[str, Any]]:
    """These columns of all Parquet files that were committed in the folder."""
    return [
        row
        for file in sorted(folder.rglob("*.parquet"))
        if "_temporary" not in file.parts
        for row in pq.ParquetFile(file).read(list(columns)).to_pylist()
    ]
