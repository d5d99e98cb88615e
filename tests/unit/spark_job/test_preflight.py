"""Errors and warnings before a query starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.config import ReadRate
from kinesis_spout.errors import AccessDeniedError, ConfigError
from kinesis_spout.testing import error
from spark_job.kinesis_source import KinesisSource
from spark_job.preflight import _too_fast as too_fast
from spark_job.preflight import preflight, refuse_embedded_on_cluster

if TYPE_CHECKING:
    from tests.support.simulated.simulated_job import SimulatedJob


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://host", "localhost"])
def test_an_embedded_zookeeper_is_refused_on_a_cluster(master: str) -> None:
    """An ensemble serves every one, and one machine is served by both. It is refused before a
    connection.
    """
    for local in ("local", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"):
        refuse_embedded_on_cluster("embedded:/var/zk", local)
    refuse_embedded_on_cluster("zk1:2181", master)
    source = KinesisSource(stream="orders", application="etl", zookeeper="embedded:/no/such")
    with pytest.raises(ConfigError, match=r"embedded:/no/such.*one machine.*connect string"):
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
