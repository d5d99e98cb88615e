"""ZooKeeper's password on the way from the driver to the tasks."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from spark_job.data_source import KinesisDataSource
from spark_job.driver.offsets import start_offset
from spark_job.process_services import ProcessServices
from tests.support.state.secure_zookeeper import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.types import StructType

    from tests.support.spark.source import StreamUnderTest
    from tests.support.state.secure_zookeeper import SecureZookeeper


@pytest.fixture
def schema() -> StructType:
    from pyspark.sql.types import StructType  # noqa: PLC0415  # seconds of import

    return StructType().add("messageId", "string")


def test_a_task_has_the_password_though_its_machine_has_no_such_file(
    tls_zookeeper: SecureZookeeper,
    stream: StreamUnderTest,
    schema: StructType,
    tmp_path: Path,
) -> None:
    """The reader, planned on the driver, is pickled as Spark does it. Then the file is gone."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    stream.put(20)
    source = stream.source(
        zookeeper=f"{tls_zookeeper.tls}/task-{tmp_path.name}",
        zookeeper_tls=True,
        zookeeper_ca_file=tls_zookeeper.authority.file,
        zookeeper_auth="sasl",
        zookeeper_user=USER,
        zookeeper_password_file=str(file),
    )
    reader = KinesisDataSource(dict(source.options())).streamReader(schema)
    start = start_offset(is_of_one=True)
    try:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        planned = pickle.dumps((reader, list(reader.partitions(start, end))))
        file.unlink()
        sent, partitions = pickle.loads(planned)  # noqa: S301  # our own bytes
        rows = [
            row
            for partition in partitions
            for batch in sent.read(partition)
            for row in batch.to_pylist()
        ]
        assert {row["messageId"] for row in rows} == {f"{record}:1" for record in stream.ids()}
        assert PASSWORD not in repr(sent._query)
    finally:
        reader.stop()
        ProcessServices.forget_all()
