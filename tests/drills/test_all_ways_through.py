"""Records of the largest size, and records without partition keys, on executors in processes of
their own, through all that Spark does with them.

LocalStack 4.9.2 takes 1 MiB, since it does not know the call that raises a stream's limit. Its
emulator alone takes 10 MiB, at a second a MiB, and fails to hand out a record of 10 MiB. Neither
has streams with record distribution AUTO. So the emulator shows somewhat more than 1 MiB, and
FakeKinesis the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kinesis.large_records import LARGEST, MIB
from tests.support.kinesis.services import serve
from tests.support.spark.all_ways_checked import (
    auto_streams,
    check_large_records,
    check_records_without_keys,
    large_streams,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spark.spark_cluster import SparkCluster

pytestmark = pytest.mark.spark


def test_the_largest_records_come_through_one_by_one_and_whole(
    spark_cluster: SparkCluster, zookeeper_chroot: str, tmp_path: Path
) -> None:
    with serve() as fake, large_streams(fake.endpoint_url, zookeeper_chroot) as stream:
        check_large_records(spark_cluster.run, stream, LARGEST, tmp_path)


@pytest.mark.emulator
def test_records_above_a_mebibyte_come_through_on_the_emulator(
    spark_cluster: SparkCluster, emulator_endpoint: str, zookeeper_chroot: str, tmp_path: Path
) -> None:
    with large_streams(emulator_endpoint, zookeeper_chroot) as stream:
        check_large_records(spark_cluster.run, stream, MIB + MIB // 4, tmp_path)


def test_records_without_keys_come_through_and_block_nothing(
    spark_cluster: SparkCluster, zookeeper_chroot: str, tmp_path: Path
) -> None:
    with auto_streams(zookeeper_chroot) as (stream, model):
        check_records_without_keys(spark_cluster.run, stream, model, 3_000, tmp_path)
