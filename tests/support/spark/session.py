"""A local Spark session, one per test run: two threads, no UI, UTC, nothing written outside the
temporary folder.

It interprets expressions: generating and compiling code for a plan takes more than half of the time
of a test with a few rows. Commands, drills and demos have a Spark of their own, which generates
code as by default.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import pytest

from tests.support.spark.spark_classes import quick_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


QUICK_JVM = quick_jvm()
_CONF = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    f"spark.driver.extraJavaOptions={QUICK_JVM}",
)
COMMAND_OPTIONS = ("--master", "local[2]", *(word for conf in _CONF for word in ("--conf", conf)))
"""For commands of ours that start a Spark of their own."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Shared by all tests of a run. A test that changes a setting restores it."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # pyspark warns about the installed versions of pandas and Python
        from pyspark.sql import SparkSession  # noqa: PLC0415  # seconds of import, which tests without Spark must not pay

    home = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = (
        sys.executable
    )  # Spark's default is the python3 in PATH, which lacks our packages
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kinesis-spout tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", f"{QUICK_JVM} -Dderby.system.home={home}")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .config("spark.log.level", "ERROR")
        .config(
            "spark.sql.maxPlanStringLength", "20000"
        )  # the listeners keep plans, which are large in some tests
        .config("spark.sql.ui.retainedExecutions", "5")
        .config("spark.ui.retainedJobs", "20")
        .config("spark.ui.retainedStages", "20")
        .getOrCreate()
    )
    yield session
    session.stop()
