"""The services that a process keeps, and for how long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import ConfigError
from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices, open_store
from state.errors import InvalidStoreSettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import SourceSettings


def settings(
    application: str = "etl", zookeeper: str = "127.0.0.1:1/chroot", **options: str
) -> SourceSettings:
    return KinesisSource(
        stream="orders", application=application, zookeeper=zookeeper, region="eu-west-1", **options
    ).settings()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    ProcessServices.forget_all()


def test_a_process_has_one_set_of_services_for_the_same_settings() -> None:
    """Spark reuses a worker for many tasks. Each unpickles its own, equal settings."""
    assert ProcessServices.here(settings()) is ProcessServices.here(settings())
    assert ProcessServices.here(settings()) is not ProcessServices.here(settings("other"))


def test_forgotten_services_are_made_again() -> None:
    first = ProcessServices.here(settings())
    ProcessServices.forget_all()
    assert ProcessServices.here(settings()) is not first


def test_a_driver_has_services_of_its_own() -> None:
    """A query that stops closes its own, and tasks in the same process go on."""
    assert ProcessServices.connect(settings()) is not ProcessServices.here(settings())


ROOT = Path(__file__).resolve().parents[3]
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
    assert (
        subprocess.run(
            [sys.executable, "-c", FORKING], check=False, timeout=60, cwd=ROOT
        ).returncode
        == 0
    )


def test_a_shard_is_paced_over_all_tasks_of_the_process() -> None:
    services = ProcessServices.here(settings(reads_per_second="2"))
    assert services.pacer("a") is services.pacer("a")
    assert services.pacer("a") is not services.pacer("b")
    pacer = services.pacer("a")
    pacer.on_fetch(10.0)
    pacer.on_fetch(10.0)
    assert services.pacer("a").ready_at_s(10.0) == 11.0


def test_nothing_is_connected_before_it_is_used() -> None:
    """No server answers at that address."""
    services = ProcessServices.connect(settings())
    services.store.close()
    services.client.close()


def test_a_store_is_bound_to_the_application_the_stream_and_the_root() -> None:
    store = open_store(settings(zookeeper_root="elsewhere"))
    assert (
        store._paths.base == "/chroot/elsewhere/etl/orders"
    )  # no public name says where it writes


@pytest.mark.parametrize("application", ["a/b", "..", "a\x00b"])
def test_an_application_name_that_cannot_name_a_znode_is_refused(application: str) -> None:
    with pytest.raises((ConfigError, InvalidStoreSettingError), match="application"):
        open_store(settings(application))
