"""A tracked query of several streams: each record's outcome counts for the stream it is from."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.testing.settings import FakeKinesisSettings
from spark_job import DeadLetter, KinesisSource, Reject, Retry
from spark_job.driver.coordinator import Coordinator
from spark_job.process_services import ProcessServices
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import create_stream, kinesis_client, serve
from tests.support.spark.source import APPLICATION, STREAM, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from scheme.record import Record
    from spark_job import TrackedBatch
    from spark_job.dead_letter.letter import Letter
    from tests.support.outcomes.tracked import TrackedQuery

pytestmark = pytest.mark.spark
CLICKS = "clicks"
ARN_HERE = f"arn:aws:kinesis:us-east-1:000000000000:stream/{STREAM}"
ARN_THERE = f"arn:aws:kinesis:eu-west-1:444455556666:stream/{STREAM}"
BOTH: dict[str, Any] = {"stream": f"{STREAM},{CLICKS}"}


@pytest.fixture(autouse=True)
def _clicks(stream: StreamUnderTest) -> None:
    """A second stream whose shards have the ids of the first."""
    create_stream(stream.client, CLICKS, shards=4)


def put(
    stream: StreamUnderTest, name: str, texts: Sequence[str], *, key: str | None = None
) -> None:
    entries = [{"Data": text.encode(), "PartitionKey": key or text} for text in texts]
    stream.client.put_records(StreamName=name, Records=entries)


def unresolved(stream: StreamUnderTest, name: str) -> int:
    store = ZookeeperStateStore(
        stream.zookeeper, root="kinesis-spout", application=APPLICATION, stream=name
    )
    try:
        states = [stored.state for stored in store.load_states().values()]
        return sum(one.count for state in states for one in state.unresolved)
    finally:
        store.close()


def texts_of(batch: TrackedBatch) -> list[tuple[str, str]]:
    rows = batch.df.select("streamName", F.col("data").cast("string").alias("text")).collect()
    return [(row.streamName, row.text) for row in rows]


def test_outcomes_and_letters_are_those_of_the_records_own_stream(
    tracked_query: TrackedQuery, stream: StreamUnderTest
) -> None:
    """The same payloads, keys and shard ids on both; only those of one stream fail."""
    same = [f"r{n}" for n in range(40)]
    put(stream, STREAM, same)
    put(stream, CLICKS, same)
    seen: list[tuple[str, str]] = []

    def process(batch: TrackedBatch) -> None:
        rows = texts_of(batch)
        seen.extend(rows)
        bad = batch.df.where("streamName = 'clicks' AND CAST(data AS STRING) IN ('r1', 'r2')")
        batch.fail(bad, "bad click", retry=False)

    tracked_query.run(process, source=BOTH)
    assert Counter(seen) == Counter((name, one) for name in (STREAM, CLICKS) for one in same)
    letters = tracked_query.letters
    assert {(one.stream_name, one.data) for one in letters} == {(CLICKS, b"r1"), (CLICKS, b"r2")}
    assert all(one.shard_id.startswith("shardId-") for one in letters)
    assert all(one.message_id.startswith(f"{CLICKS}/{one.shard_id}:") for one in letters)
    assert (unresolved(stream, STREAM), unresolved(stream, CLICKS)) == (0, 0)


def test_a_failed_record_is_retried_on_its_own_stream(
    tracked_query: TrackedQuery, stream: StreamUnderTest
) -> None:
    """Through `map_records`, whose records name their stream too."""
    same = [f"r{n}" for n in range(30)]
    put(stream, STREAM, same)
    put(stream, CLICKS, same)
    written: list[tuple[str, str, int]] = []

    def one(record: Record) -> dict[str, Any]:
        assert record.message_id.startswith(f"{record.stream_name}/")
        text = record.data.decode()
        if record.stream_name == "orders" and text == "r3" and record.attempt < 3:
            raise Retry("later")
        if record.stream_name == "orders" and text == "r4":
            raise Reject("never")
        return {"stream": record.stream_name, "text": text, "attempt": record.attempt}

    def process(batch: TrackedBatch) -> None:
        rows = batch.map_records(one, "stream string, text string, attempt int").collect()
        written.extend((row.stream, row.text, row.attempt) for row in rows)

    tracked_query.run(process, source=BOTH)
    wanted = {(name, text, 1) for name in (STREAM, CLICKS) for text in same}
    wanted = wanted - {(STREAM, "r3", 1), (STREAM, "r4", 1)} | {(STREAM, "r3", 3)}
    assert sorted(written) == sorted(wanted)
    assert [(one.stream_name, one.data) for one in tracked_query.letters] == [(STREAM, b"r4")]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_key_is_blocked_on_its_own_stream_only(
    tracked_query: TrackedQuery, stream: StreamUnderTest, *, mapped: bool
) -> None:
    """The same key on both streams, and in the same shard."""
    for name in (STREAM, CLICKS):
        put(stream, name, ["a", "b", "c"], key="k")
    batches: list[list[tuple[str, str]]] = []

    def one(record: Record) -> dict[str, Any]:
        if (record.stream_name, record.data, record.attempt) == ("orders", b"a", 1):
            raise Retry("later")
        return {"stream": record.stream_name, "text": record.data.decode()}

    def process(batch: TrackedBatch) -> None:
        if mapped:
            rows = batch.map_records(one, "stream string, text string").collect()
            batches.append([(row.stream, row.text) for row in rows])
            return
        bad = batch.df.where("streamName = 'orders' AND attempt = 1 AND CAST(data AS STRING) = 'a'")
        batch.fail(bad, "later")
        batches.append([one for one in texts_of(batch) if one[0] == CLICKS])

    tracked_query.run(process, source=BOTH, on_failure="block_key")
    assert [one for one in batches[0] if one[0] == CLICKS] == [(CLICKS, t) for t in "abc"]
    clicks = [one for batch in batches for one in batch if one[0] == CLICKS]
    assert len(clicks) == 3
    assert (unresolved(stream, STREAM), unresolved(stream, CLICKS)) == (0, 0)


def test_a_batch_that_fails_is_delivered_again_whole(
    tracked_query: TrackedQuery, stream: StreamUnderTest
) -> None:
    put(stream, STREAM, ["a"])
    put(stream, CLICKS, ["a"])
    seen: list[list[tuple[str, str]]] = []

    def process(batch: TrackedBatch) -> None:
        seen.append(sorted(texts_of(batch)))
        if len(seen) == 1:
            raise RuntimeError("once")

    with pytest.raises(Exception, match="once"):
        tracked_query.run(process, source=BOTH)
    tracked_query.run(process, source=BOTH)
    assert seen == [[(CLICKS, "a"), (STREAM, "a")]] * 2


def close_plan(stream: StreamUnderTest, name: str) -> None:
    """Another process takes the stream over, and closes the plan that was left open."""
    settings = stream.settings(stream=name)
    services = ProcessServices.connect(settings)
    with closing(Coordinator(settings, services)) as coordinator:
        pointer = services.store.read_pointer()
        assert pointer is not None
        coordinator.close_open_plan(pointer.id)


def test_of_a_repeated_batch_only_the_streams_count_whose_plan_is_open(
    tracked_query: TrackedQuery, stream: StreamUnderTest
) -> None:
    """The records of the other one come with a later plan: none is lost, none counts twice."""
    put(stream, STREAM, ["a", "b"])
    put(stream, CLICKS, ["a", "b"])
    seen: list[list[tuple[str, str]]] = []

    def process(batch: TrackedBatch) -> None:
        seen.append(sorted(texts_of(batch)))
        if len(seen) == 1:
            raise RuntimeError("once")

    with pytest.raises(Exception, match="once"):
        tracked_query.run(process, source=BOTH)
    close_plan(stream, CLICKS)
    tracked_query.run(process, source=BOTH)
    both = [(CLICKS, "a"), (CLICKS, "b"), (STREAM, "a"), (STREAM, "b")]
    assert seen == [both, both[2:], both[:2]]


def test_a_repeated_batch_is_not_processed_without_the_rows_that_a_report_holds(
    tracked_query: TrackedQuery, stream: StreamUnderTest
) -> None:
    """A sink that overwrites by batch would lose them: their stream has acked them."""
    put(stream, STREAM, ["a", "b"])
    put(stream, CLICKS, ["a", "b"])
    sink: dict[int, list[tuple[str, str]]] = {}

    def process(batch: TrackedBatch) -> None:
        sink[batch.id] = sorted(texts_of(batch))

    tracked = stream.source(**BOTH).tracked(process, dead_letter=None, on_exhausted="drop")

    def killed_before_the_commit(frame: DataFrame, batch_id: int) -> None:
        tracked(frame, batch_id)
        raise RuntimeError("killed")

    query = stream.source(**BOTH).read_stream(tracked_query.spark).writeStream
    running = query.foreachBatch(killed_before_the_commit).trigger(availableNow=True)
    with pytest.raises(Exception, match="killed"):
        running.option(
            "checkpointLocation", str(tracked_query.checkpoint)
        ).start().awaitTermination()
    close_plan(stream, CLICKS)
    tracked_query.run(process, source=BOTH)
    both = [(CLICKS, "a"), (CLICKS, "b"), (STREAM, "a"), (STREAM, "b")]
    assert sorted({one for rows in sink.values() for one in rows}) == both


def test_a_part_of_a_batch_is_given_after_deliveries_without_an_answer(
    tracked_query: TrackedQuery, stream: StreamUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of one stream that ends the process; the others, of both, are processed."""
    same = [f"r{n}" for n in range(12)]
    put(stream, STREAM, same)
    put(stream, CLICKS, same)
    seen: list[tuple[str, str]] = []

    def process(batch: TrackedBatch) -> None:
        rows = texts_of(batch)
        if (CLICKS, "r5") in rows:
            raise RuntimeError("Python worker exited unexpectedly")
        seen.extend(rows)

    for _ in range(40):
        try:
            tracked_query.run(process, source=BOTH, retry_limit=1)
        except Exception as exc:  # noqa: BLE001  # a query fails with Spark's own class
            assert "exited unexpectedly" in str(exc)  # noqa: PT017  # only this one is expected
            continue
        break
    wanted = {(name, text) for name in (STREAM, CLICKS) for text in same} - {(CLICKS, "r5")}
    assert set(seen) == wanted
    assert [(one.stream_name, one.data) for one in tracked_query.letters] == [(CLICKS, b"r5")]


def test_bisect_finds_the_bad_record_of_one_stream(
    tracked_query: TrackedQuery, stream: StreamUnderTest
) -> None:
    same = [f"r{n}" for n in range(20)]
    put(stream, STREAM, same)
    put(stream, CLICKS, same)

    def process(batch: TrackedBatch) -> None:
        if (CLICKS, "r7") in texts_of(batch):
            raise RuntimeError("bad")

    tracked_query.run(process, source=BOTH, bisect=True, retry_limit=0)
    assert [(one.stream_name, one.data) for one in tracked_query.letters] == [(CLICKS, b"r7")]


def test_a_stream_is_added_to_a_tracked_query_and_left(
    tracked_query: TrackedQuery, stream: StreamUnderTest
) -> None:
    """Also with a record that waits for its retry while its stream is left: its state keeps it."""
    seen: list[tuple[str, str]] = []
    put(stream, STREAM, ["a"])
    tracked_query.run(lambda batch: seen.extend(texts_of(batch)))
    put(stream, CLICKS, ["a", "b"])

    def fails_a_click(batch: TrackedBatch) -> None:
        bad = batch.df.where("streamName = 'clicks' AND CAST(data AS STRING) = 'b'")
        batch.fail(bad, "later", after_s=1)
        seen.extend(one for one in texts_of(batch) if one != (CLICKS, "b"))

    tracked_query.run(fails_a_click, source=BOTH | {"available_now_retry_wait": "0s"})
    put(stream, STREAM, ["c"])
    tracked_query.run(lambda batch: seen.extend(texts_of(batch)))
    assert unresolved(stream, CLICKS) == 1
    tracked_query.run(lambda batch: seen.extend(texts_of(batch)), source=BOTH)
    assert sorted(seen) == [(CLICKS, "a"), (CLICKS, "b"), (STREAM, "a"), (STREAM, "c")]
    assert unresolved(stream, CLICKS) == 0


def test_streams_of_one_name_have_outcomes_of_their_own(
    tracked_query: TrackedQuery, stream: StreamUnderTest, spark: SparkSession
) -> None:
    """In another region and account, by their ARNs, each under an application of its own."""
    elsewhere = FakeKinesisSettings(region="eu-west-1", account_id="444455556666")
    with (
        serve(clock=stream.clock, settings=elsewhere) as fake,
        kinesis_client(fake.endpoint_url) as client,
    ):
        create_stream(client, STREAM, shards=4)
        there = StreamUnderTest(client, fake.endpoint_url, stream.zookeeper, stream.clock)
        source = KinesisSource.several(
            [
                stream.source(stream=None, stream_arn=ARN_HERE),
                there.source(
                    stream=None, stream_arn=ARN_THERE, region=None, application="elsewhere"
                ),
            ]
        )
        for one in (stream, there):
            put(one, STREAM, ["a", "b", "c"])
        letters: list[Letter] = []
        seen: list[tuple[str, str]] = []

        def process(batch: TrackedBatch) -> None:
            bad = batch.df.where(f"streamName = '{ARN_THERE}' AND CAST(data AS STRING) = 'b'")
            batch.fail(bad, "no", retry=False)
            seen.extend(texts_of(batch))

        tracked = source.tracked(process, dead_letter=DeadLetter.to(letters.extend))
        query = source.read_stream(spark).writeStream.foreachBatch(tracked)
        running = query.option("checkpointLocation", str(tracked_query.checkpoint))
        assert running.trigger(availableNow=True).start().awaitTermination(120)
        ProcessServices.forget_all()
    assert sorted(seen) == sorted((arn, one) for arn in (ARN_HERE, ARN_THERE) for one in "abc")
    assert [(one.stream_name, one.application, one.data) for one in letters] == [
        (ARN_THERE, "elsewhere", b"b")
    ]


def test_letters_in_files_have_a_folder_for_each_streams_plan(
    tracked_query: TrackedQuery, stream: StreamUnderTest, tmp_path: Path, spark: SparkSession
) -> None:
    put(stream, STREAM, ["a"])
    put(stream, CLICKS, ["a"])

    def process(batch: TrackedBatch) -> None:
        batch.fail(batch.df, "no", retry=False)

    path = str(tmp_path / "dead")
    tracked_query.run(process, source=BOTH, dead_letter=DeadLetter("parquet", path=path))
    rows = spark.read.parquet(path).select("streamName", "shardId", "plan").collect()
    assert sorted(row.streamName for row in rows) == [CLICKS, STREAM]
    assert len({row.plan for row in rows}) == 2
