"""The batch read: three frames in a real Spark, and the rest by the calls that Spark makes for
each.
"""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from kinesis_spout.errors import ConfigError, DataLossError, KinesisError
from spark_job import register
from spark_job.registration import RegisteredSource
from tests.support.aggregates import wire
from tests.support.kinesis.services import SECRET_KEY, create_stream
from tests.support.spark.source import STREAM, StreamUnderTest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DAY_S = 86_400
TIPS_SHOW_S = 4
COLUMNS = StructType()
for _name in ("shardId", "sequenceNumber", "partitionKey", "messageId"):
    COLUMNS.add(_name, "string")
COLUMNS.add("data", "binary")


def options(stream: StreamUnderTest, **more: str) -> dict[str, str]:
    return stream.connection(readsPerSecond="1000", readBytesPerSecond="1GiB") | more


def iso(stream: StreamUnderTest) -> str:
    """The service's time, to the millisecond."""
    return datetime.fromtimestamp(stream.clock.now_ms() / 1000, UTC).isoformat()


# in Spark -----------------------------------------------------------------------------------------
def frame_of(
    spark: SparkSession, stream: StreamUnderTest, schema: str | None = None, **more: str
) -> DataFrame:
    register(spark)
    reader = spark.read if schema is None else spark.read.schema(schema)
    return reader.format("kinesis").options(**options(stream, **more)).load()


def ids(frame: DataFrame) -> list[str]:
    found = frame.select("shardId", "sequenceNumber").collect()
    return sorted(f"{row.shardId}:{row.sequenceNumber}" for row in found)


@pytest.mark.spark
def test_a_frame_has_the_rows_up_to_its_load_in_each_action_while_records_come(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    """Without an application, over a split and a merge. A later `load()` has the new ones, in the
    columns that its schema selects. Filters that are not pushed down hold for each frame of a load
    (with pushdown, Spark 4.3 reads the shard of the last one for all of them).
    """
    stream.put(200)
    stream.split()
    stream.put(200)
    stream.merge()
    stream.put(200)
    expected = sorted(stream.ids())
    frame = frame_of(spark, stream)
    stream.clock.advance(TIPS_SHOW_S)  # what comes now, comes surely after load()
    stream.put(100)
    stream.split()
    stream.put(100)
    rows = frame.collect()
    assert sorted(f"{row.shardId}:{row.sequenceNumber}" for row in rows) == expected
    assert {bytes(row.data).decode() for row in rows} == {f"record {n}" for n in range(600)}
    assert {row.streamName for row in rows} == {STREAM}
    assert all(row.messageId == f"{row.shardId}:{row.sequenceNumber}:1" for row in rows)
    stream.put(100)
    assert ids(frame) == expected
    shards = tuple(list(stream.records)[:2])
    one, other = (frame.filter(f"shardId = '{shard}'") for shard in shards)
    assert ids(one.union(other)) == [each for each in expected if each.startswith(shards)]
    later = frame_of(spark, stream, schema="data BINARY, shardId STRING")
    assert later.columns == ["data", "shardId"]
    later.createOrReplaceTempView("batch_orders")
    counts = spark.sql("SELECT shardId, count(data) AS n FROM batch_orders GROUP BY shardId")
    assert {row.shardId: row.n for row in counts.collect()} == {
        shard: len(sequences) for shard, sequences in stream.records.items()
    }


@pytest.mark.spark
def test_filters_are_pushed_down_on_request_and_shown_in_the_plan(
    spark: SparkSession, stream: StreamUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.put(100)
    stream.clock.advance(3600)
    since = stream.clock.now_ms()
    old = stream.ids()
    stream.put(100)
    shard = next(iter(stream.records))
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = frame_of(spark, stream, pushDownFilters="true").filter(
            f"shardId = '{shard}' AND streamName = '{STREAM}' "
            f"AND approximateArrivalTimestamp >= timestamp_millis({since})"
        )
        frame.explain("formatted")
        found, partitions = ids(frame), frame.rdd.getNumPartitions()
    finally:
        spark.conf.unset(PUSHDOWN)
    plan = capsys.readouterr().out
    pushed = plan.partition("PushedFilters: [")[2].partition("]")[0]
    assert f"EqualTo(shardId,{shard})" in pushed
    assert f"EqualTo(streamName,{STREAM})" in pushed
    assert "GreaterThanOrEqual(approximateArrivalTimestamp" in pushed
    assert found == sorted(one for one in stream.ids() - old if one.startswith(f"{shard}:"))
    assert partitions == 1


@pytest.mark.spark
def test_an_error_of_a_load_and_one_of_a_task_are_sparks_with_our_sentence(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    """And without a secret. The records expire between the load and the action."""
    with pytest.raises(Exception, match="did you mean shardIds") as caught:
        frame_of(spark, stream, shardId="x")
    stream.clock.advance(2 * DAY_S)  # the stream is older than its retention
    stream.put(10)
    frame = frame_of(spark, stream, startingPosition="-1h")
    stream.clock.advance(DAY_S)
    with pytest.raises(Exception, match="have expired") as expired:
        frame.count()
    for error in (caught.value, expired.value):
        assert not isinstance(error, KinesisError)
        assert SECRET_KEY not in str(error)


# by Spark's calls ---------------------------------------------------------------------------------
class Load:
    """A `load()`: `rows` and `ids` are actions. They come some seconds later by the service's time,
    so they need not wait for its tips. What Spark sends to executors is pickled.
    """

    def __init__(self, stream: StreamUnderTest, **more: str) -> None:
        self._source = RegisteredSource(options(stream, **more))
        self._source.schema()
        stream.clock.advance(TIPS_SHOW_S)

    def rows(self) -> list[dict[str, Any]]:
        reader = self._source.reader(COLUMNS)
        sent = [pickle.loads(pickle.dumps((reader, one))) for one in reader.partitions()]  # noqa: S301  # our own bytes
        return [row for here, one in sent for batch in here.read(one) for row in batch.to_pylist()]

    def ids(self) -> list[str]:
        return sorted(f"{row['shardId']}:{row['sequenceNumber']}" for row in self.rows())


def test_a_range_of_times_has_the_records_that_arrived_in_it(stream: StreamUnderTest) -> None:
    parts: list[set[str]] = []
    times = []
    for _ in range(3):
        times.append(iso(stream))
        known = stream.ids()
        stream.put(100)
        parts.append(stream.ids() - known)
        stream.clock.advance(3600)
    between = Load(stream, startingPosition=times[1], endingPosition=times[2])
    assert between.ids() == sorted(parts[1])
    assert Load(stream, startingPosition="-90m").ids() == sorted(parts[2])
    assert Load(stream, endingPosition="-90m").ids() == sorted(parts[0] | parts[1])
    assert Load(stream, startingPosition="LATEST").ids() == []


def test_sequence_numbers_begin_and_end_a_range_by_shard(stream: StreamUnderTest) -> None:
    """A position lies before its record (AT) or after it (AFTER). Of one shard it needs no name."""
    stream.put(200)
    (one, ones), (other, others) = list(stream.records.items())[:2]
    load = Load(
        stream,
        shardIds=f"{one}, {other}",
        startingPosition=json.dumps({one: f"AT:{ones[3]}", other: f"AFTER:{others[3]}"}),
        endingPosition=json.dumps({one: f"AT:{ones[8]}", other: f"AFTER:{others[8]}"}),
    )
    expected = [f"{one}:{sequence}" for sequence in ones[3:8]]
    expected += [f"{other}:{sequence}" for sequence in others[4:9]]
    assert load.ids() == sorted(expected)
    load = Load(stream, shardIds=one, startingPosition=f"AFTER:{ones[0]}")
    assert load.ids() == sorted(f"{one}:{sequence}" for sequence in ones[1:])


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
@pytest.mark.parametrize("of", ["no stream", "another shard"])
def test_a_bound_that_the_shard_refuses_is_one_error_before_a_task_begins(
    stream: StreamUnderTest, option: str, of: str
) -> None:
    """An end is only compared with: one of another shard would cut the range anywhere."""
    stream.put(50)
    (one, _), (_, others) = list(stream.records.items())[:2]
    refused = "AT:17" if of == "no stream" else f"AT:{others[3]}"
    with pytest.raises(
        ConfigError, match=f"{option}: '{refused}' is not a position in shard {one}"
    ):
        Load(stream, shardIds=one, **{option: refused}).rows()


def test_a_start_at_a_record_that_has_expired_is_said(stream: StreamUnderTest) -> None:
    stream.put(100)
    shard, sequences = next(iter(stream.records.items()))
    stream.clock.advance(2 * DAY_S)
    known = stream.ids()
    stream.put(100)
    start = {"shardIds": shard, "startingPosition": f"AFTER:{sequences[0]}"}
    with pytest.raises(DataLossError, match=f"record {sequences[0]} has expired"):
        Load(stream, **start).rows()
    expected = sorted(one for one in stream.ids() - known if one.startswith(f"{shard}:"))
    assert Load(stream, **start, failOnDataLoss="false").ids() == expected
    assert Load(stream, shardIds=shard).ids() == expected


def test_a_stream_that_was_created_again_is_not_read_as_the_one_that_was_loaded(
    stream: StreamUnderTest,
) -> None:
    load = Load(stream)
    stream.client.delete_stream(StreamName=STREAM)
    stream.clock.advance(60)
    create_stream(stream.client, STREAM)
    with pytest.raises(KinesisError, match=r"deleted and created again after load\(\)"):
        load.rows()


def test_a_kpl_aggregate_is_unpacked_or_stops_the_read_or_is_wanted_raw(
    stream: StreamUnderTest,
) -> None:
    aggregate = wire.aggregate([b"k"], [wire.user(0, b"a"), wire.user(0, b"b")])
    number = stream.put_record("k", aggregate)
    (raw,) = Load(stream, aggregatedRecords="raw").rows()
    assert raw["data"] == aggregate
    rows = Load(stream).rows()
    assert [(row["data"], row["partitionKey"], row["messageId"]) for row in rows] == [
        (b"a", "k", f"{number}:1"),
        (b"b", "k", f"{number}.1:1"),
    ]
    with pytest.raises(KinesisError, match="is an aggregate of the Kinesis Producer Library"):
        Load(stream, aggregatedRecords="fail").rows()
    later = stream.put_record("k", b"c")
    shard_id, sequence = number.split(":")
    start = {"shardIds": shard_id, "startingPosition": f"AT:{sequence}.1"}
    for mode in ("unpack", "raw"):  # as a spout continues with the rest of an aggregate
        rest = Load(stream, **start, aggregatedRecords=mode).rows()
        assert [row["messageId"] for row in rest] == [f"{number}.1:1", f"{later}:1"]
