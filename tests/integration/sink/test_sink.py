"""The sink in a real Spark, as a user's query sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from kinesis_spout.errors import KinesisError
from spark_job import register
from spark_job.registration import RegisteredSource
from tests.support.kinesis.services import SECRET_KEY, create_stream, records_on
from tests.support.spark.source import STREAM, StreamUnderTest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def on_stream(stream: StreamUnderTest, name: str = STREAM) -> dict[bytes, str]:
    """The partition key of every record, by its data."""
    return {one["Data"]: one["PartitionKey"] for one in records_on(stream.client, name)}


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "id", "to_json(struct(id)) AS data", "CAST(id AS STRING) AS partitionKey"
    )


@pytest.mark.spark
def test_a_frame_is_written_to_a_stream_in_aggregates_too_and_is_read_as_it_was(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    """Ten thousand rows, in few Kinesis records."""
    register(spark)
    rows(spark, 1500).write.format("kinesis").options(**stream.connection()).mode("append").save()
    assert on_stream(stream) == {b'{"id":%d}' % number: str(number) for number in range(1500)}
    create_stream(stream.client, "packed", shards=4)
    frame = spark.range(10_000).selectExpr(
        "concat('key ', id % 700) AS partitionKey", "repeat(cast(id AS STRING), id % 40) AS data"
    )
    to = stream.connection(streamName="packed")
    frame.write.format("kinesis").options(**to, aggregate="true").mode("append").save()
    assert len(on_stream(stream, "packed")) < 200
    pace = {"readsPerSecond": "1000", "readBytesPerSecond": "1GiB"}
    stream.clock.advance(60)
    found = spark.read.format("kinesis").options(**to, **pace).load()
    read = found.selectExpr("partitionKey", "CAST(data AS STRING)").collect()
    assert sorted(map(tuple, read)) == sorted(
        (f"key {number % 700}", str(number) * (number % 40)) for number in range(10_000)
    )


@pytest.mark.spark
def test_a_query_copies_a_stream_to_another(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """The frame has column `streamName`, which the option goes before."""
    stream.put(20)
    create_stream(stream.client, "copy")
    query = (
        stream.source()
        .read_stream(spark)
        .writeStream.format("kinesis")
        .options(**stream.connection(streamName="copy"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert len(on_stream(stream)) == 20
    assert on_stream(stream, "copy") == on_stream(stream)


@pytest.mark.spark
def test_a_write_that_cannot_work_is_sparks_error_with_our_sentence_and_puts_nothing(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    register(spark)
    for columns, message in (
        ("id AS data", "column data is of type bigint"),
        ("repeat('x', 1100000) AS data", "row 1 of a batch.*1048576 bytes"),
    ):
        writer = spark.range(1).selectExpr(columns).write.format("kinesis")
        with pytest.raises(Exception, match=message) as caught:
            writer.options(**stream.connection()).mode("append").save()
        assert not isinstance(caught.value, KinesisError)
        assert SECRET_KEY not in str(caught.value)
    assert on_stream(stream) == {}


@pytest.mark.parametrize(
    ("more", "overwrite", "message"),
    [
        ({"streamName": "absent"}, False, "check the stream's name"),
        ({"ordering": "all"}, False, "give none or key"),
        ({}, True, r"a stream cannot be overwritten; use mode\(\"append\"\)"),
    ],
)
def test_a_write_that_cannot_work_is_refused_before_a_task_begins(
    stream: StreamUnderTest, more: dict[str, str], *, overwrite: bool, message: str
) -> None:
    """In a batch and in a query."""
    source = RegisteredSource(stream.connection(**more))
    schema = StructType().add("data", "string")
    for writer in (source.writer, source.streamWriter):
        with pytest.raises(KinesisError, match=message):
            writer(schema, overwrite)
