"""The source in a real Spark, as a user's query sees it."""

from __future__ import annotations

import gc
import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import TimestampType

from kinesis_spout.aggregation.packing import PackedRecord, Packer
from kinesis_spout.errors import ConfigError
from kinesis_spout.service.record_putter import OutgoingRecord
from kinesis_spout.service.shard_info import ShardInfo
from spark_job import register
from spark_job.process_services import open_store
from spark_job.query_failure import failure_sentence
from spark_job.registration import preflight
from state.position import TRIM_HORIZON
from state.store.identity import StartPin
from tests.support.kinesis.services import SECRET_KEY
from tests.support.spark import stopped_twice
from tests.support.spark.job_process import JobProcess
from tests.support.spark.source import STREAM, StreamUnderTest, ids_of, served_stream
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
PASSWORD = "hunter2"  # of nobody


def started(
    frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame, int], None], **trigger: Any
) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def run(
    frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Run a query over the records that are there, batch by batch; returns the ended query."""
    query = started(frame, checkpoint, each, availableNow=True)
    assert query.awaitTermination(120)
    return query


class Ran(NamedTuple):
    """A query that has read 60 records and those that came meanwhile. `actions`: the rows of two
    actions on each batch; between those on the first, records are put and a shard is split.
    `tasks`: of each batch. `most_frozen`: objects in a Python worker then.
    """

    stream: StreamUnderTest
    frame: DataFrame
    query: StreamingQuery
    checkpoint: Path
    actions: list[tuple[list[Row], list[Row]]]
    tasks: list[int]
    most_frozen: int


@pytest.fixture(scope="module")
def ran(
    spark: SparkSession, zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ran]:
    """By reader options, under a name of the user's."""
    register(spark, name="kinesis_spout")
    checkpoint = tmp_path_factory.mktemp("ran")
    actions: list[tuple[list[Row], list[Row]]] = []
    tasks: list[int] = []
    with served_stream(f"{zookeeper}/source") as stream:
        stream.put(60)
        options = stream.source(max_records_per_shard=10).options()
        frame = spark.readStream.format("kinesis_spout").options(**options).load()

        def twice(batch: DataFrame, batch_id: int) -> None:
            tasks.append(batch.rdd.getNumPartitions())
            first = batch.collect()
            if batch_id == 0:
                stream.put(40)
                stream.split()
                stream.put(20)
            actions.append((first, batch.collect()))

        query = run(frame, checkpoint, twice)

        def frozen(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})

        # Asked at once, because Spark ends a worker that has been idle for a minute.
        slots = spark.sparkContext.defaultParallelism
        asked = spark.range(slots, numPartitions=slots).mapInArrow(frozen, "frozen long").collect()
        most_frozen = max(row.frozen for row in asked)
        yield Ran(stream, frame, query, checkpoint, actions, tasks, most_frozen)


def test_rows_have_the_documented_columns(ran: Ran) -> None:
    rows = [row.asDict() for first, _ in ran.actions for row in first]
    row = next(row for row in rows if bytes(row["data"]) == b"record 0")
    arrived_s = row.pop("approximateArrivalTimestamp").timestamp()
    shard, number = row["shardId"], row["sequenceNumber"]
    assert row == {
        "streamName": STREAM,
        "shardId": shard,
        "sequenceNumber": number,
        "subSequenceNumber": 0,
        "partitionKey": "key 0",
        "data": b"record 0",
        "attempt": 1,
        "messageId": f"{shard}:{number}:1",
    }
    assert f"{shard}:{number}" in ran.stream.ids()
    assert abs(arrived_s - ran.stream.clock.now_ms() / 1000) < 3600


def test_two_actions_on_a_batch_see_the_same_rows(ran: Ran) -> None:
    assert all(first == second for first, second in ran.actions)
    assert len(ran.actions[0][0]) == 40
    rows = [row.asDict() for first, _ in ran.actions for row in first]
    assert len(set(ids_of(rows))) == len(rows) >= 60


def test_a_batch_has_as_many_tasks_as_the_session_runs_at_a_time(
    ran: Ran, spark: SparkSession
) -> None:
    """So that all shards are read at once."""
    assert len(ran.stream.open_shards()) > spark.sparkContext.defaultParallelism
    assert ran.tasks[0] == spark.sparkContext.defaultParallelism


def test_a_worker_that_has_read_before_has_its_modules_frozen(ran: Ran) -> None:
    """PySpark collects garbage after each task, and visits what is not frozen."""
    assert len(ran.actions) > 1
    assert ran.most_frozen > 50_000


def test_progress_tells_plan_lag_and_unresolved_records(ran: Ran) -> None:
    latest = json.loads(ran.query.recentProgress[0].json)["sources"][0]["latestOffset"]
    latest = json.loads(latest) if isinstance(latest, str) else latest
    assert latest["plan"].startswith("1-")
    assert latest["unresolved"] == 0
    assert latest["lagMs"] >= 0


def test_secrets_show_in_no_offset_and_no_progress(ran: Ran) -> None:
    shown = "".join(progress.json for progress in ran.query.recentProgress)
    files = (file for file in ran.checkpoint.rglob("*") if file.is_file())
    shown += "".join(file.read_text(errors="replace") for file in files)
    assert "plan" in shown
    assert SECRET_KEY not in shown


def test_stored_progress_that_wins_over_the_start_is_said(ran: Ran, spark: SparkSession) -> None:
    said = r"startingPosition LATEST has no effect.*kinesis-spout reset"
    with pytest.warns(UserWarning, match=said):
        ran.stream.source(starting_position="LATEST").read_stream(spark)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("2999-01-01", "'2999-01-01' is 2999-01-01.*in the future"),
        ({"default": "TRIM_HORIZON", "shardId-99": "LATEST"}, "names shard 'shardId-99'"),
        ("AT:7", "'AT:7' is not a position in shard shardId-000000000000"),
    ],
)
def test_a_start_that_the_stream_refuses_is_an_error_of_the_line_that_makes_the_frame(
    stream: StreamUnderTest, spark: SparkSession, start: str | dict[str, str], said: str
) -> None:
    """Nothing is stored, so another start is free."""
    with pytest.raises(ConfigError, match=f"option startingPosition:? {said}"):
        stream.source(starting_position=start).read_stream(spark)
    assert preflight(stream.settings(starting_position="-2h"), master=None) == []


def test_the_command_that_removes_progress_leads_to_that_of_this_application(
    stream: StreamUnderTest,
) -> None:
    """Under another root, another application may have the same name."""
    source = stream.source(zookeeper_root="team b", starting_position="LATEST")
    with closing(open_store(source.settings())) as store:
        store.identity.pin_start(
            StartPin(time_ms=1, requested="-1h", position=TRIM_HORIZON, shards=())
        )
    (warning,) = preflight(source.settings(), master=None)
    command = warning.partition("`")[2].rstrip("`")
    assert command == (
        "kinesis-spout reset --application orders-etl --stream orders "
        f"--zookeeper {stream.zookeeper} --zookeeper-root 'team b'"
    )


def test_a_frame_serves_another_query_whose_sink_takes_a_part_of_a_batch(
    ran: Ran, tmp_path: Path
) -> None:
    """`take` reads the first partition only: the records of the others come with a later batch, and
    none is lost.
    """
    run(ran.frame, tmp_path / "rest", lambda batch, _: batch.foreach(lambda _: None))
    before = ran.stream.ids()
    ran.stream.put(20)
    seen: list[str] = []

    def take_then_all(batch: DataFrame, batch_id: int) -> None:
        rows = batch.take(1) if batch_id == 0 else batch.collect()
        seen.extend(ids_of([row.asDict() for row in rows]))

    run(ran.frame, tmp_path / "part", take_then_all)
    later = {one.partition(":")[0] for one in seen[1:]}
    assert later
    assert seen[0].partition(":")[0] not in later
    new = ran.stream.ids() - before
    assert {one for one in new if one.partition(":")[0] in later} == set(seen[1:])
    assert ran.stream.checkpoints() == ran.stream.tips()


def test_a_stopped_query_and_a_stopped_session_release_the_ownership(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """At once: the ZooKeeper session, whose end would release it too, lasts longer than the test
    waits.
    """
    fields = stream.fields(zookeeper_session_timeout="40s", owner_wait="60s")
    job = {"source": fields, "directory": str(tmp_path)}
    JobProcess(job, tmp_path, program=stopped_twice.__file__).finish()
    assert json.loads((tmp_path / "answer.json").read_text()) == {
        "after query.stop()": [],
        "after spark.stop()": [],
        "third query": True,
    }


def test_a_misspelt_reader_option_is_refused_when_the_frame_is_made(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match=r"did you mean startingPosition\?"):
        spark.readStream.format("kinesis").option("startingPositon", "LATEST").load()


def test_arrival_times_have_a_zone_whatever_a_session_calls_a_timestamp(
    ran: Ran, spark: SparkSession
) -> None:
    before = str(spark.conf.get("spark.sql.timestampType"))
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = ran.stream.source().read_stream(spark)
    finally:
        spark.conf.set("spark.sql.timestampType", before)
    assert frame.schema["approximateArrivalTimestamp"].dataType == TimestampType()
    assert frame.schema == ran.frame.schema


def test_what_is_refused_when_the_query_starts_is_its_error(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """Spark asks for a schema of the user's, and whether there is an application, only then."""
    register(spark)
    options = stream.source().options()
    refused = {
        "the schema has a column id STRING": options,
        "option applicationName is missing": stream.connection(),
    }
    for number, (said, given) in enumerate(refused.items()):
        reader = spark.readStream.format("kinesis").options(**given)
        frame = (reader.schema("id STRING") if given is options else reader).load()
        query = started(frame, tmp_path / str(number), lambda *_: None)
        with pytest.raises(StreamingQueryException) as raised:
            query.awaitTermination(120)
        assert failure_sentence(str(raised.value)).startswith(said)


def test_the_error_of_a_plain_function_is_told_and_before_that_it_would_be(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """In the application's state, for `explain`: so a query that ends without a word was killed or
    stopped. Without what looks like a secret, and not the error of another query of the session.
    """
    is_over = threading.Event()

    def fails(batch: DataFrame, _: int) -> None:
        count = batch.count()
        if is_over.is_set():
            raise ValueError(f"no rates for {count} at jdbc://me:{PASSWORD}@db")
        is_over.set()

    def other_fails(_batch: DataFrame, _batch_id: int) -> None:
        raise KeyError("another query")

    stream.put(8)
    query = started(stream.source().read_stream(spark), tmp_path / "ours", fails)
    try:
        other = started(spark.readStream.format("rate").load(), tmp_path / "other", other_fails)
        wait_until(lambda: not other.isActive, 120)
        wait_until(stream.tells_errors, 120)
        assert is_over.wait(120)
        assert stream.last_end() is None
        stream.put(1)
        wait_until(lambda: not query.isActive, 120)
    finally:
        query.stop()
    wait_until(lambda: stream.last_end() is not None)
    assert stream.last_end() == "ValueError: no rates for 1 at jdbc://***@db"


# aggregates ---------------------------------------------------------------------------------------
def put_packed(stream: StreamUnderTest, users: list[OutgoingRecord]) -> None:
    """Put them as a producer does that knows the open shards."""
    packer = Packer(map(ShardInfo.of, stream.open_shards()), max_bytes=4_000)
    for packed in [record for user in users for record in packer.add(user)] + packer.flush():
        hash_key = packed.explicit_hash_key
        explicit = {} if hash_key is None else {"ExplicitHashKey": hash_key}
        answer = stream.client.put_record(
            StreamName=STREAM, PartitionKey=packed.partition_key, Data=packed.data, **explicit
        )
        assert not isinstance(packed, PackedRecord) or answer["ShardId"] == packed.shard_id


def users(first: int, last: int) -> list[OutgoingRecord]:
    return [
        OutgoingRecord(f"key {number}", f"record {number}".encode())
        for number in range(first, last)
    ]


def test_every_user_record_is_a_row_of_the_columns_that_a_schema_selects(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """Over several batches and a reshard."""
    register(spark)
    put_packed(stream, users(0, 1000))
    stream.put(5)
    stream.split()
    put_packed(stream, users(1000, 1500))
    columns = "messageId STRING, subSequenceNumber BIGINT, partitionKey STRING, data BINARY"
    options = stream.source(max_records_per_trigger=20).options()
    frame = spark.readStream.format("kinesis").options(**options).schema(columns).load()
    rows: list[Row] = []
    run(frame, tmp_path, lambda batch, _: rows.extend(batch.collect()))
    assert frame.columns == ["messageId", "subSequenceNumber", "partitionKey", "data"]
    expected = sorted((one.partition_key, one.data) for one in users(0, 1500) + users(0, 5))
    assert sorted((row.partitionKey, bytes(row.data)) for row in rows) == expected
    assert len({row.messageId for row in rows}) == len(rows)
    subs = [row for row in rows if row.subSequenceNumber]
    assert subs
    assert all(f".{row.subSequenceNumber}:" in row.messageId for row in subs)
