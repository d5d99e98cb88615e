"""Aggregates in a real Spark: rows of user records, over batches, a reshard and a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.aggregation.hash_range import HashRange
from kinesis_spout.aggregation.packing import Packer, UserRecord
from spark_job import register
from tests.support.spark.source import STREAM, StreamUnderTest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
COLUMNS = "messageId STRING, subSequenceNumber BIGINT, partitionKey STRING, data BINARY"


def put_packed(stream: StreamUnderTest, users: list[UserRecord], max_bytes: int = 4_000) -> None:
    """Put them as a producer does that knows the open shards."""
    shards = [
        (
            str(one["ShardId"]),
            HashRange(
                int(one["HashKeyRange"]["StartingHashKey"]),
                int(one["HashKeyRange"]["EndingHashKey"]),
            ),
        )
        for one in stream.open_shards()
    ]
    packer = Packer(shards, max_bytes=max_bytes)
    packed = [record for one in users for record in packer.add(one)] + packer.flush()
    for one in packed:
        explicit = (
            {} if one.explicit_hash_key is None else {"ExplicitHashKey": one.explicit_hash_key}
        )
        answer = stream.client.put_record(
            StreamName=STREAM, PartitionKey=one.partition_key, Data=one.data, **explicit
        )
        assert answer["ShardId"] == one.shard_id


def users(first: int, last: int) -> list[UserRecord]:
    return [
        UserRecord(f"key {number}", f"record {number}".encode()) for number in range(first, last)
    ]


def run(
    spark: SparkSession, stream: StreamUnderTest, checkpoint: Path, rows: list[Any], **more: Any
) -> None:
    """Run a query over what is there, and add its rows."""
    register(spark)
    source = stream.source(**more)

    def each(batch: DataFrame, _: int) -> None:
        rows.extend(batch.collect())

    query = (
        spark.readStream.format("kinesis")
        .options(**source.options())
        .schema(COLUMNS)
        .load()
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def test_every_user_record_is_delivered_once_over_a_reshard_and_a_restart(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    rows: list[Any] = []
    put_packed(stream, users(0, 1000))
    stream.put(5)
    stream.split()
    put_packed(stream, users(1000, 1500))
    run(spark, stream, tmp_path, rows, max_records_per_trigger=7)
    assert len(rows) == 1505
    put_packed(stream, users(1500, 2000))
    run(spark, stream, tmp_path, rows)
    expected = sorted((one.partition_key, one.data) for one in users(0, 2000) + users(0, 5))
    assert sorted((row.partitionKey, bytes(row.data)) for row in rows) == expected
    assert len({row.messageId for row in rows}) == len(rows)
    assert all((f".{row.subSequenceNumber}:" in row.messageId) for row in rows[:50] if row[1])


def test_what_the_sink_packs_is_read_as_it_was_written(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    """Ten thousand rows, in few Kinesis records."""
    register(spark)
    source = stream.source()
    options = {
        key: text
        for key, text in source.options().items()
        if key in ("streamName", "endpointUrl", "region", "awsAccessKeyId", "awsSecretAccessKey")
    }
    rows = spark.range(10_000).selectExpr(
        "concat('key ', id % 700) AS partitionKey", "repeat(cast(id AS STRING), id % 40) AS data"
    )
    rows.write.format("kinesis").options(**options, aggregate="true").mode("append").save()
    read = spark.read.format("kinesis").options(
        **options, readsPerSecond="1000", readBytesPerSecond="1GiB"
    )
    assert read.option("aggregatedRecords", "raw").load().count() < 200
    found = read.option("aggregatedRecords", "unpack").load()
    again = found.selectExpr("partitionKey", "CAST(data AS STRING) AS data")
    assert again.count() == 10_000
    assert again.exceptAll(rows).count() == 0
