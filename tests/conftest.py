"""Fixtures live in tests/support, one file per service."""

import pytest

pytest_plugins = (
    "tests.support.zookeeper",
    "tests.support.kinesis",
    "tests.support.localstack",
    "tests.support.stub_kinesis",
    "tests.support.spark",
    "tests.support.spark_cluster",
    "tests.support.source",
    "tests.support.simulated_job",
    "tests.support.wheel",
    "tests.support.tracked",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The drills come first, in whatever order else: begun last, a test of minutes would keep one core while the others idle."""
    items.sort(key=lambda item: "drills" not in item.path.parts)
