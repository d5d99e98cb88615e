"""The sink in a real Spark, as a user's query sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import KinesisError
from spark_job import register
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.spark.source import STREAM, StreamUnderTest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def options(stream: StreamUnderTest, **more: str) -> dict[str, str]:
    return {
        "streamName": STREAM,
        "endpointUrl": stream.endpoint_url,
        "region": REGION,
        "awsAccessKeyId": ACCESS_KEY,
        "awsSecretAccessKey": SECRET_KEY,
    } | more


def on_stream(stream: StreamUnderTest) -> dict[bytes, str]:
    """The partition key of every record, by its data."""
    found: dict[bytes, str] = {}
    for shard in stream.client.list_shards(StreamName=STREAM)["Shards"]:
        iterator = stream.client.get_shard_iterator(
            StreamName=STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        page: Any = {"MillisBehindLatest": 1}
        while page["MillisBehindLatest"]:
            page = stream.client.get_records(ShardIterator=iterator)
            iterator = page["NextShardIterator"]
            found |= {one["Data"]: one["PartitionKey"] for one in page["Records"]}
    return found


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "id", "to_json(struct(id)) AS data", "CAST(id AS STRING) AS partitionKey"
    )


def test_a_frame_is_written_to_a_stream(spark: SparkSession, stream: StreamUnderTest) -> None:
    register(spark)
    rows(spark, 1500).write.format("kinesis").options(**options(stream)).mode("append").save()
    assert on_stream(stream) == {b'{"id":%d}' % number: str(number) for number in range(1500)}


def test_a_query_writes_to_a_stream_and_goes_on_after_a_restart(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    register(spark)
    for part in (range(3), range(3, 5)):
        spark.createDataFrame([(str(number),) for number in part], "data string").write.mode(
            "append"
        ).parquet(str(tmp_path / "in"))
        query = (
            spark.readStream.schema("data string")
            .parquet(str(tmp_path / "in"))
            .writeStream.format("kinesis")
            .options(**options(stream))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName("to orders")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert set(on_stream(stream)) == {b"%d" % number for number in range(part.stop)}


def test_a_stream_is_copied_to_another(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """The frame has column `streamName`, which the option goes before."""
    stream.put(20)
    stream.client.create_stream(StreamName="copy", ShardCount=1)
    query = (
        stream.source()
        .read_stream(spark)
        .writeStream.format("kinesis")
        .options(**options(stream, streamName="copy"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert len(on_stream(stream)) == 20
    iterator = stream.client.get_shard_iterator(
        StreamName="copy", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    copied = stream.client.get_records(ShardIterator=iterator)["Records"]
    assert {one["Data"]: one["PartitionKey"] for one in copied} == on_stream(stream)


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ("id AS data", {}, "column data is of type bigint"),
        ("'x' AS body", {}, "column data is missing"),
        ("'x' AS data", {"streamName": "absent"}, "check the stream's name"),
        ("'x' AS data", {"ordering": "all"}, "give one of none, key"),
        ("repeat('x', 1100000) AS data", {}, "row 1 of a batch.*1048576 bytes"),
    ],
)
def test_a_write_that_cannot_work_is_one_error_and_puts_nothing(
    spark: SparkSession,
    stream: StreamUnderTest,
    columns: str,
    more: dict[str, str],
    message: str,
) -> None:
    register(spark)
    with pytest.raises(Exception, match=message) as caught:
        spark.range(1).selectExpr(columns).write.format("kinesis").options(
            **options(stream, **more)
        ).mode("append").save()
    assert not isinstance(caught.value, KinesisError)  # Spark wraps it
    assert SECRET_KEY not in str(caught.value)
    assert on_stream(stream) == {}


def test_a_stream_cannot_be_overwritten(spark: SparkSession, stream: StreamUnderTest) -> None:
    register(spark)
    with pytest.raises(Exception, match=r"a stream cannot be overwritten; use mode\(\"append\"\)"):
        rows(spark, 1).write.format("kinesis").options(**options(stream)).mode("overwrite").save()
    assert on_stream(stream) == {}
