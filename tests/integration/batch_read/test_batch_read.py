"""The batch read in a real Spark, as a user's frame sees it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import KinesisError
from spark_job import register
from tests.support.aggregates import wire
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.spark.source import STREAM, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DAY_S = 86_400


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def load(
    spark: SparkSession, stream: StreamUnderTest, *, schema: str | None = None, **more: str
) -> DataFrame:
    register(spark)
    reader = spark.read if schema is None else spark.read.schema(schema)
    options = {
        "streamName": STREAM,
        "endpointUrl": stream.endpoint_url,
        "region": REGION,
        "awsAccessKeyId": ACCESS_KEY,
        "awsSecretAccessKey": SECRET_KEY,
        "readsPerSecond": "1000",
        "readBytesPerSecond": "1GiB",
    }
    return reader.format("kinesis").options(**(options | more)).load()


def ids(frame: DataFrame) -> list[str]:
    return sorted(
        f"{row.shardId}:{row.sequenceNumber}"
        for row in frame.select("shardId", "sequenceNumber").collect()
    )


def iso(stream: StreamUnderTest) -> str:
    """The service's time, to the millisecond."""
    return datetime.fromtimestamp(stream.clock.now_ms() / 1000, UTC).isoformat()


def test_all_rows_of_four_shards_are_read_without_an_application(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    stream.put(1200)
    frame = load(spark, stream)
    rows = frame.collect()
    assert sorted(f"{row.shardId}:{row.sequenceNumber}" for row in rows) == sorted(stream.ids())
    assert {bytes(row.data).decode() for row in rows} == {f"record {n}" for n in range(1200)}
    assert {row.streamName for row in rows} == {STREAM}
    assert all(row.messageId == f"{row.shardId}:{row.sequenceNumber}:1" for row in rows)


def test_a_schema_selects_columns(spark: SparkSession, stream: StreamUnderTest) -> None:
    stream.put(100)
    frame = load(spark, stream, schema="data BINARY, shardId STRING")
    assert frame.columns == ["data", "shardId"]
    assert {bytes(row.data).decode() for row in frame.collect()} == {
        f"record {n}" for n in range(100)
    }
    only = frame.where(frame.shardId == "shardId-000000000001").collect()
    assert len(only) == sum(one.startswith("shardId-000000000001:") for one in stream.ids())
    with pytest.raises(Exception, match="a column key STRING"):
        load(spark, stream, schema="key STRING").collect()


def test_rows_of_a_split_and_a_merge_are_read(spark: SparkSession, stream: StreamUnderTest) -> None:
    stream.put(200)
    stream.split()
    stream.put(200)
    stream.merge()
    stream.put(200)
    assert ids(load(spark, stream, maxTasks="2")) == sorted(stream.ids())


def test_two_actions_of_a_frame_give_the_same_rows_while_records_come(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    """A later `load()` has the new ones."""
    stream.put(100)
    expected = sorted(stream.ids())
    frame = load(spark, stream)
    stream.clock.advance(2)  # what comes now, comes surely after load()
    stream.put(100)
    stream.split()
    stream.put(100)
    assert ids(frame) == expected
    stream.put(100)
    assert ids(frame) == expected
    assert ids(load(spark, stream)) == sorted(stream.ids())


def test_a_range_of_times_has_the_records_that_arrived_in_it(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    parts: list[set[str]] = []
    times = []
    for _ in range(3):
        times.append(iso(stream))
        known = stream.ids()
        stream.put(100)
        parts.append(stream.ids() - known)
        stream.clock.advance(3600)
    between = load(spark, stream, startingPosition=times[1], endingPosition=times[2])
    assert ids(between) == sorted(parts[1])
    assert ids(load(spark, stream, startingPosition="-90m")) == sorted(parts[2])
    assert ids(load(spark, stream, endingPosition="-90m")) == sorted(parts[0] | parts[1])
    assert ids(load(spark, stream, startingPosition="LATEST")) == []


def test_sequence_numbers_begin_and_end_a_range_by_shard(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    """A position lies before its record (AT) or after it (AFTER)."""
    stream.put(200)
    (one, ones), (other, others) = list(stream.records.items())[:2]
    frame = load(
        spark,
        stream,
        shardIds=f"{one}, {other}",
        startingPosition=json.dumps({one: f"AT:{ones[3]}", other: f"AFTER:{others[3]}"}),
        endingPosition=json.dumps({one: f"AT:{ones[8]}", other: f"AFTER:{others[8]}"}),
    )
    expected = [f"{one}:{sequence}" for sequence in ones[3:8]]
    expected += [f"{other}:{sequence}" for sequence in others[4:9]]
    assert ids(frame) == sorted(expected)


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
@pytest.mark.parametrize("of", ["no stream", "another shard"])
def test_a_bound_that_the_shard_refuses_is_one_error_before_a_task_begins(
    spark: SparkSession, stream: StreamUnderTest, option: str, of: str
) -> None:
    """An end is only compared with: one of another shard would cut the range anywhere."""
    stream.put(50)
    (one, _), (_, others) = list(stream.records.items())[:2]
    refused = "AT:17" if of == "no stream" else f"AT:{others[3]}"
    with pytest.raises(Exception, match=f"{option}: '{refused}' is not a position in shard {one}"):
        load(spark, stream, shardIds=one, **{option: refused}).count()


def test_one_shard_is_read_from_a_record_on(spark: SparkSession, stream: StreamUnderTest) -> None:
    stream.put(100)
    shard, sequences = next(iter(stream.records.items()))
    frame = load(spark, stream, shardIds=shard, startingPosition=f"AFTER:{sequences[0]}")
    assert ids(frame) == sorted(f"{shard}:{sequence}" for sequence in sequences[1:])


def test_a_temporary_view_is_queried_in_sql(spark: SparkSession, stream: StreamUnderTest) -> None:
    stream.put(100)
    load(spark, stream).createOrReplaceTempView("batch_orders")
    rows = spark.sql(
        "SELECT shardId, count(*) AS records FROM batch_orders GROUP BY shardId"
    ).collect()
    assert {row.shardId: row.records for row in rows} == {
        shard: len(sequences) for shard, sequences in stream.records.items()
    }


@pytest.mark.usefixtures("pushdown")
def test_filters_are_pushed_down_on_request_and_shown_in_the_plan(
    spark: SparkSession, stream: StreamUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.put(100)
    stream.clock.advance(3600)
    since = stream.clock.now_ms()
    old = stream.ids()
    stream.put(100)
    shard = next(iter(stream.records))
    frame = load(spark, stream, pushDownFilters="true").filter(
        f"shardId = '{shard}' AND streamName = '{STREAM}' "
        f"AND approximateArrivalTimestamp >= timestamp_millis({since})"
    )
    frame.explain("formatted")
    plan = capsys.readouterr().out
    pushed = plan.partition("PushedFilters: [")[2].partition("]")[0]
    assert f"EqualTo(shardId,{shard})" in pushed
    assert f"EqualTo(streamName,{STREAM})" in pushed
    assert "GreaterThanOrEqual(approximateArrivalTimestamp" in pushed
    assert ids(frame) == sorted(one for one in stream.ids() - old if one.startswith(f"{shard}:"))
    assert frame.rdd.getNumPartitions() == 1
    other = load(spark, stream, pushDownFilters="true").filter("streamName = 'another'")
    assert ids(other) == []


def test_filters_without_pushdown_hold_for_each_frame_of_a_load(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    """With pushdown, Spark 4.3 reads the shard of the last filter for all of them."""
    stream.put(100)
    frame = load(spark, stream)
    first, second = list(stream.records)[:2]
    both = frame.filter(f"shardId = '{first}'").union(frame.filter(f"shardId = '{second}'"))
    assert len(ids(both)) == len(stream.records[first]) + len(stream.records[second])
    assert frame.count() == 100


def test_records_that_expired_between_two_actions_are_said(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    stream.clock.advance(2 * DAY_S)  # the stream is older than its retention
    stream.put(100)
    first = sorted(stream.ids())
    frame = load(spark, stream, startingPosition="-1h")
    lenient = load(spark, stream, startingPosition="-1h", failOnDataLoss="false")
    assert ids(frame) == first
    stream.clock.advance(DAY_S)
    with pytest.raises(Exception, match="have expired"):
        ids(frame)
    assert ids(lenient) == []


def test_a_start_at_a_record_that_has_expired_is_said(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    stream.put(100)
    shard, sequences = next(iter(stream.records.items()))
    stream.clock.advance(2 * DAY_S)
    known = stream.ids()
    stream.put(100)
    start = {"shardIds": shard, "startingPosition": f"AFTER:{sequences[0]}"}
    with pytest.raises(Exception, match=f"record {sequences[0]} is not there any more"):
        ids(load(spark, stream, **start))
    expected = sorted(one for one in stream.ids() - known if one.startswith(f"{shard}:"))
    assert ids(load(spark, stream, **start, failOnDataLoss="false")) == expected
    oldest = load(spark, stream, shardIds=shard)
    assert ids(oldest) == expected


def test_a_stream_that_was_created_again_is_not_read_as_the_one_that_was_loaded(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    frame = load(spark, stream)
    stream.client.delete_stream(StreamName=STREAM)
    stream.client.get_waiter("stream_not_exists").wait(StreamName=STREAM)
    stream.clock.advance(60)
    stream.client.create_stream(StreamName=STREAM, ShardCount=1)
    stream.client.get_waiter("stream_exists").wait(StreamName=STREAM)
    with pytest.raises(Exception, match=r"deleted and created again since load\(\)"):
        frame.count()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"streamName": "absent"}, "check the stream's name"),
        ({"shardId": "x"}, "option shardid is not known; did you mean shardIds"),
        ({"maxRecordsPerTrigger": "1"}, "is not one of a batch read"),
        ({"endingPosition": "TRIM_HORIZON"}, "nothing lies before TRIM_HORIZON"),
        ({"aggregatedRecords": "unpacked"}, "give one of unpack, fail, raw"),
    ],
)
def test_a_wrong_option_is_one_error_at_load(
    spark: SparkSession, stream: StreamUnderTest, more: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message) as caught:
        load(spark, stream, **more)
    assert not isinstance(caught.value, KinesisError)  # Spark wraps it
    assert SECRET_KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"shardIds": "shardId-00000000001"}, "did you mean shardId-"),
        ({"startingPosition": '{"shardId-7": "LATEST"}'}, "which the stream does not list"),
        ({"startingPosition": "AT:17"}, "a sequence number belongs to one"),
        ({"startingPosition": "-1h", "endingPosition": "-2h"}, "which is earlier"),
        ({"endingPosition": "2100-01-01"}, "which is in the future"),
    ],
)
def test_a_range_that_cannot_be_is_one_error_before_a_task_begins(
    spark: SparkSession, stream: StreamUnderTest, more: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        load(spark, stream, **more).count()


def test_a_kpl_aggregate_is_unpacked_or_stops_the_read_or_is_wanted_raw(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    aggregate = wire.aggregate([b"k"], [wire.user(0, b"a"), wire.user(0, b"b")])
    stream.put_record("k", aggregate)
    (raw,) = load(spark, stream, aggregatedRecords="raw").collect()
    assert bytes(raw.data) == aggregate
    rows = load(spark, stream).orderBy("subSequenceNumber").collect()
    number = f"{raw.shardId}:{raw.sequenceNumber}"
    assert [(bytes(row.data), row.partitionKey, row.messageId) for row in rows] == [
        (b"a", "k", f"{number}:1"),
        (b"b", "k", f"{number}.1:1"),
    ]
    with pytest.raises(Exception, match="is a KPL aggregate"):
        load(spark, stream, aggregatedRecords="fail").count()


def test_a_query_without_an_application_is_refused_when_it_starts(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    load(spark, stream)
    frame = (
        spark.readStream.format("kinesis")
        .option("streamName", STREAM)
        .option("endpointUrl", stream.endpoint_url)
        .option("region", REGION)
        .option("awsAccessKeyId", ACCESS_KEY)
        .option("awsSecretAccessKey", SECRET_KEY)
        .load()
    )
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="option applicationName is missing"):
        query.awaitTermination(60)


def test_a_time_before_the_retention_of_a_young_stream_is_no_loss(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    stream.put(10)
    long_ago = (datetime.now(UTC) - timedelta(days=30)).isoformat()
    assert load(spark, stream, startingPosition=long_ago).count() == 10
