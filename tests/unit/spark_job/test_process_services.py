"""The services that a process keeps, and for how long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import SourceSettings

ROOT = Path(__file__).resolve().parents[3]


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
    assert services.pacer("a") is not services.pacer("b")
    services.pacer("a").on_fetch(10.0)
    services.pacer("a").on_fetch(10.0)
    assert services.pacer("a").ready_at_s(10.0) == 11.0
