"""Errors and warnings before a query starts; among them that Spark starts another Python for its
workers than the program's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import ReadRate
from kinesis_spout.errors import AccessDeniedError, ConfigError
from kinesis_spout.testing import error
from spark_job.kinesis_source import KinesisSource
from spark_job.registration import _too_fast as too_fast
from spark_job.registration import (
    preflight,
    refuse_embedded_on_cluster,
    refuse_other_python,
    register,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.simulated.simulated_job import SimulatedJob

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://host", "localhost"])
def test_an_embedded_zookeeper_is_refused_on_a_cluster(master: str) -> None:
    """An ensemble serves every one, and one machine is served by both. It is refused before a
    connection.
    """
    for local in ("local", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"):
        refuse_embedded_on_cluster("embedded:/var/zk", local)
    refuse_embedded_on_cluster("zk1:2181", master)
    source = KinesisSource(stream="orders", application="etl", zookeeper="embedded:/no/such")
    with pytest.raises(ConfigError, match=r"embedded:/no/such.*only this machine.*connect string"):
        preflight(source.settings(), master=master)


def test_a_stream_that_cannot_be_described_is_an_error_before_zookeeper_is_called(
    job: SimulatedJob,
) -> None:
    """No ZooKeeper answers at that address, so a call would fail with another error."""
    job.fake.faults.add(error("AccessDeniedException"), operation="DescribeStreamSummary")
    with pytest.raises(AccessDeniedError):
        preflight(replace(job.settings(), zookeeper="127.0.0.1:1"), master="local")


def test_more_reads_than_the_service_allows_give_a_warning(job: SimulatedJob) -> None:
    """Only for the service itself: emulators have limits of their own."""
    fast = KinesisSource(
        stream="orders", application="etl", zookeeper="127.0.0.1:1", reads_per_second=10
    ).settings()
    (warning,) = too_fast(fast)
    assert "readsPerSecond is 10" in warning
    assert list(too_fast(replace(fast, rate=ReadRate()))) == []
    assert list(too_fast(job.settings(reads_per_second=10))) == []


# another Python ---------------------------------------------------------------------------------
def session_with(python: str, added_files: Sequence[str] = ()) -> Any:
    """As much of a session as is looked at."""
    context = SimpleNamespace(pythonExec=python, _python_includes=list(added_files))
    return SimpleNamespace(sparkContext=context)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first `python3` of PATH, which lacks our packages: that of the system."""
    python = tmp_path / "python3"
    python.symlink_to(sys._base_executable)  # type: ignore[attr-defined]  # the Python that made the environment
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return python


def test_a_python_without_our_packages_is_refused_before_a_query(bare: Path) -> None:
    """Reading, writing and streaming all register the source first. The sentence has both
    interpreters, and what to set.
    """
    with pytest.raises(ConfigError) as caught:
        register(session_with("python3"))
    assert str(bare) in str(caught.value)
    assert "lacks the package msgspec" in str(caught.value)
    assert f"this program runs with {sys.executable} " in str(caught.value)
    assert f"set PYSPARK_PYTHON={sys.executable} before" in str(caught.value)


def python_that(folder: Path, does: str) -> Path:
    """A program by the name of one."""
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    return python


def test_a_python_of_another_version_is_refused(tmp_path: Path) -> None:
    """Spark would not run its tasks."""
    python = python_that(tmp_path, "echo '[\"/opt/python9\", [3, 9], []]'")
    with pytest.raises(ConfigError, match=r"with /opt/python9 .* which is version 3\.9, but"):
        refuse_other_python(session_with(str(python)))


def test_what_cannot_be_detected_is_left_to_spark(tmp_path: Path) -> None:
    """A Python that is on the executors only, one that does not answer, and Spark Connect. The
    program's own is not started.
    """
    refuse_other_python(session_with(sys.executable))
    refuse_other_python(session_with(str(python_that(tmp_path, "exit 1"))))
    refuse_other_python(session_with("./environment/bin/python"))
    refuse_other_python(SimpleNamespace())  # type: ignore[arg-type]  # Connect has no context


def test_pure_packages_may_come_with_the_jobs_files(tmp_path: Path) -> None:
    """`--py-files`, which only workers unpack."""
    python = python_that(
        tmp_path,
        'missing=; for one in "$@"; do [ "$one" = kazoo ] && missing=\'"kazoo"\'; done\n'
        f"echo '[\"$0\", {list(sys.version_info[:2])}, ['$missing']]'",
    )
    with pytest.raises(ConfigError, match="lacks the package kazoo"):
        refuse_other_python(session_with(str(python)))
    refuse_other_python(session_with(str(python), ["ours.zip"]))


def test_a_program_that_another_python_runs_is_told_so() -> None:
    """As of spark-submit, whose first `python3` finds our files by PYTHONPATH."""
    ended = subprocess.run(
        [sys.executable, "-S", "-c", "import kinesis_spout"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert f"{sys.executable} imports kinesis-spout, but has no package msgspec" in ended.stderr
    assert "PYSPARK_PYTHON" in ended.stderr
