"""The source in a real Spark, as a user's query sees it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import ConfigError, StreamNotFoundError
from spark_job import register
from spark_job.preflight import is_one_machine, preflight
from tests.support.kinesis.services import SECRET_KEY
from tests.support.spark.source import APPLICATION, StreamUnderTest, ids_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_job import KinesisSource

pytestmark = pytest.mark.spark


def run(frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame, int], None]) -> Any:
    """Run a query over the records that are there, batch by batch; returns the ended query."""
    query = (
        frame.writeStream.foreachBatch(each)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query


def counted(batch: DataFrame, _: int) -> None:
    batch.count()


def collected(spark: SparkSession, source: KinesisSource, checkpoint: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    run(
        source.read_stream(spark),
        checkpoint,
        lambda batch, _: rows.extend(row.asDict() for row in batch.collect()),
    )
    return rows


def test_rows_have_the_documented_columns(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    stream.put(5)
    rows = collected(spark, stream.source(), tmp_path)
    assert set(ids_of(rows)) == stream.ids()
    row = min(rows, key=lambda one: bytes(one["data"]))
    assert bytes(row["data"]) == b"record 0"
    assert (row["streamName"], row["partitionKey"], row["subSequenceNumber"], row["attempt"]) == (
        "orders",
        "key 0",
        0,
        1,
    )
    assert row["messageId"] == f"{row['shardId']}:{row['sequenceNumber']}:1"
    assert abs(row["approximateArrivalTimestamp"].timestamp() - stream.clock.now_ms() / 1000) < 3600


def test_a_schema_selects_columns(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    register(spark)
    stream.put(30)
    reader = spark.readStream.format("kinesis").options(**stream.source().options())
    frame = reader.schema("messageId STRING, data BINARY").load()
    rows: list[Any] = []
    run(frame, tmp_path, lambda batch, _: rows.extend(batch.collect()))
    assert frame.columns == ["messageId", "data"]
    assert {row.messageId for row in rows} == {f"{record}:1" for record in stream.ids()}
    assert {bytes(row.data) for row in rows} == {f"record {n}".encode() for n in range(30)}


def test_a_schema_with_a_column_that_is_not_there_stops_the_query_with_those_that_are(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    register(spark)
    reader = spark.readStream.format("kinesis").options(**stream.source().options())
    with pytest.raises(Exception, match=r"(?s)a column key STRING.*select some of streamName"):
        run(reader.schema("key STRING").load(), tmp_path, counted)


def test_two_actions_on_a_batch_see_the_same_rows(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """Between the actions records are appended and a shard is split."""
    stream.put(60)
    pairs: list[tuple[list[Any], list[Any]]] = []

    def twice(batch: DataFrame, batch_id: int) -> None:
        first = batch.collect()
        if batch_id == 0:
            stream.put(40)
            stream.split()
            stream.put(20)
        pairs.append((first, batch.collect()))

    run(stream.source(max_records_per_shard=10).read_stream(spark), tmp_path, twice)
    assert all(first == second for first, second in pairs)
    assert len(pairs[0][0]) == 40


def test_a_batch_of_which_the_sink_took_a_part_settles_what_was_read(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """`take` reads the first partition only: the records of the others come with a later batch, and
    none is lost.
    """
    stream.put(80)
    seen: list[str] = []

    def take_then_all(batch: DataFrame, batch_id: int) -> None:
        rows = batch.take(1) if batch_id == 0 else batch.collect()
        seen.extend(ids_of([row.asDict() for row in rows]))

    run(stream.source(max_tasks=4).read_stream(spark), tmp_path, take_then_all)
    later = {one.partition(":")[0] for one in seen[1:]}
    assert len(later) == 3
    assert {one for one in stream.ids() if one.partition(":")[0] in later} <= set(seen)
    assert stream.checkpoints() == stream.tips()


def test_one_frame_serves_two_queries_one_after_the_other(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    frame = stream.source().read_stream(spark)
    rows: list[dict[str, Any]] = []
    for name in ("one", "two"):
        stream.put(20)
        run(
            frame,
            tmp_path / name,
            lambda batch, _: rows.extend(row.asDict() for row in batch.collect()),
        )
    assert sorted(ids_of(rows)) == sorted(stream.ids())


def test_a_second_query_of_the_same_application_fails_and_the_first_goes_on(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    stream.put(10)
    frame = stream.source(owner_wait="1s").read_stream(spark)
    first = (
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "one")).start()
    )
    try:
        first.processAllAvailable()
        second = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "two"))
            .start()
        )
        with pytest.raises(Exception, match=APPLICATION):
            second.awaitTermination(60)
        assert first.isActive
    finally:
        first.stop()


def test_progress_tells_plan_lag_and_unresolved_records(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    stream.put(20)
    query = run(stream.source().read_stream(spark), tmp_path, counted)
    latest = json.loads(query.recentProgress[0].json)["sources"][0]["latestOffset"]
    latest = json.loads(latest) if isinstance(latest, str) else latest
    assert latest["plan"].startswith("1-")
    assert latest["unresolved"] == 0
    assert latest["lagMs"] >= 0


def test_secrets_show_in_no_offset_and_no_progress(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    stream.put(5)
    query = run(stream.source().read_stream(spark), tmp_path, counted)
    shown = "".join(progress.json for progress in query.recentProgress)
    shown += "".join(
        file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file()
    )
    assert "plan" in shown
    assert SECRET_KEY not in shown


def test_reader_options_work_under_another_name(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    register(spark, name="kinesis_spout")
    stream.put(5)
    rows: list[Any] = []
    frame = spark.readStream.format("kinesis_spout").options(**stream.source().options()).load()
    run(frame, tmp_path, lambda batch, _: rows.extend(batch.collect()))
    assert len(rows) == 5


def test_a_batch_has_as_many_tasks_as_the_session_runs_at_a_time(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """So that all shards are read at once."""
    register(spark)
    stream.put(200)
    assert len(stream.open_shards()) > spark.sparkContext.defaultParallelism
    tasks: list[int] = []

    def count(batch: DataFrame, _: int) -> None:
        tasks.append(batch.rdd.getNumPartitions())
        batch.count()

    frame = spark.readStream.format("kinesis").options(**stream.source().options()).load()
    run(frame, tmp_path, count)
    assert tasks == [spark.sparkContext.defaultParallelism]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingPositon": "LATEST"}, "did you mean startingPosition?"),
        ({"maxRecordsPerShard": "0"}, "option maxRecordsPerShard is '0'"),
        ({"startingPosition": "EARLIEST"}, "is not a starting position"),
    ],
)
def test_a_bad_reader_option_is_refused_when_the_frame_is_made(
    options: dict[str, str], sentence: str, spark: SparkSession, stream: StreamUnderTest
) -> None:
    register(spark)
    with pytest.raises(Exception, match="(?s)" + sentence.replace("?", r"\?")):
        spark.readStream.format("kinesis").options(**(stream.source().options() | options)).load()


def test_options_of_a_query_are_refused_by_a_batch_read_with_what_to_use(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    register(spark)
    with pytest.raises(Exception, match=r"spark\.readStream"):
        spark.read.format("kinesis").options(**stream.source().options()).load().count()


def test_a_missing_stream_is_named_before_a_query_starts(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    with pytest.raises(StreamNotFoundError, match="nowhere"):
        stream.source(stream="nowhere").read_stream(spark)


def test_stored_progress_that_wins_over_the_start_is_said(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    stream.put(5)
    collected(spark, stream.source(), tmp_path)
    with pytest.warns(
        UserWarning, match=r"startingPosition LATEST has no effect.*kinesis-spout reset"
    ):
        stream.source(starting_position="LATEST").read_stream(spark)


def test_an_embedded_zookeeper_is_refused_on_a_cluster(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    settings = stream.settings(zookeeper=f"embedded:{tmp_path}")
    with pytest.raises(ConfigError, match=r"spark://host:7077.*ensemble"):
        preflight(settings, master="spark://host:7077")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("master", "one"),
    [
        ("local", True),
        ("local[4]", True),
        ("local-cluster[2,1,1024]", True),
        ("yarn", False),
        ("k8s://x", False),
    ],
)
def test_masters_of_one_machine_are_told_from_clusters(master: str, one: bool) -> None:  # noqa: FBT001  # a table's column
    assert is_one_machine(master) is one
