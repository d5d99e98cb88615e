"""Fixtures live in tests/support, one file per service."""

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
