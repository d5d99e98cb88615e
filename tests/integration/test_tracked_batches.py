"""Tracked batches in a real Spark: failing by frames and ids, dead letters, reports that count, and batches that are refused."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from scheme import JsonScheme
from spark_job import DeadLetter, Reject
from spark_job.tracked_batch import current_batch
from state.ownership import this_process
from state.report import PlanReport
from state.zookeeper_store import ZookeeperStateStore
from tests.support.source import APPLICATION, STREAM
from tests.support.tracked import FAST, TrackedQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from scheme.record import Record
    from spark_job import TrackedBatch
    from tests.support.source import StreamUnderTest

pytestmark = pytest.mark.spark


@pytest.fixture
def query(spark: SparkSession, stream: StreamUnderTest, tmp_path: Path) -> TrackedQuery:
    return TrackedQuery(spark, stream, tmp_path / "checkpoint")


@pytest.fixture
def store(stream: StreamUnderTest) -> Iterator[ZookeeperStateStore]:
    """Another process's view of the application's state."""
    store = ZookeeperStateStore(stream.zookeeper, root="kinesis-spout", application=APPLICATION, stream=STREAM)
    yield store
    store.close()


def number(column: str = "data") -> F.Column:
    return F.substring_index(F.col(column).cast("string"), " ", -1).cast("int")


def numbers(frame: DataFrame) -> list[int]:
    return [row.n for row in frame.select(number().alias("n")).collect()]


def run_quietly(query: TrackedQuery, rows: list[int], **tracking: Any) -> None:
    query.run(lambda batch: rows.extend(numbers(batch.df)), **tracking)


# failing with frames and ids --------------------------------------------------------------------------------------
def test_the_issues_second_sample_runs_as_written(query: TrackedQuery, tmp_path: Path) -> None:
    """Negative totals are rejected, and so are those of which nobody can say: nulls do not slip through."""
    out = tmp_path / "out"
    query.put_texts(['{"id": "a", "total": 1}', '{"id": "b", "total": -1}', '{"id": "c"}', "no json", '{"id": "d", "total": 4}'])

    def parsed(df: DataFrame) -> DataFrame:
        return df.withColumn("o", F.from_json(F.col("data").cast("string"), "id string, total double"))

    def process(batch: TrackedBatch) -> None:
        rows = batch.fail_where(parsed(batch.df), "o.total < 0", reason="negative total", retry=False)
        rows.select("o.*").write.mode("append").parquet(str(out))

    query.run(process)
    assert {row.id: row.total for row in query.spark.read.parquet(str(out)).collect()} == {"a": 1.0, "d": 4.0}
    null = "negative total (the condition is NULL)"
    told = {letter.data: letter.reason for letter in query.letters}
    assert told == {b'{"id": "b", "total": -1}': "negative total", b'{"id": "c"}': null, b"no json": null}
    assert query.unresolved() == {}


def test_a_record_of_several_rows_fails_as_a_whole(query: TrackedQuery) -> None:
    query.stream.put(10)
    seen: list[tuple[int, int]] = []

    def process(batch: TrackedBatch) -> None:
        rows = batch.df.withColumn("n", number()).withColumn("part", F.explode(F.array(*map(F.lit, range(3)))))
        rest = batch.fail_where(rows, (F.col("n") == 4) & (F.col("part") == 1), "half bad", retry=False)
        seen.extend((row.n, row.part) for row in rest.collect())

    query.run(process)
    assert sorted(seen) == [(n, part) for n in range(10) if n != 4 for part in range(3)]
    assert [(letter.data, letter.reason) for letter in query.letters] == [(b"record 4", "half bad")]


def test_malformed_records_of_a_scheme_are_rejected(query: TrackedQuery) -> None:
    """By `batch.parsed`, and by `fail_where` over a frame with a scheme's column."""
    query.put_texts(['{"id": "a"}', "no json", '{"id": 5}'])
    ids: list[list[str]] = []
    scheme = JsonScheme("id string")

    def process(batch: TrackedBatch) -> None:
        ids.append([row.id for row in batch.parsed(scheme).select("parsed.id").collect()])
        column = batch.df.withColumn("o", scheme.column(batch.df["data"]))
        ids.append([row.id for row in batch.fail_where(column, "o.value.id = 'z'", "z").select("o.value.id").collect()])

    query.run(process)
    assert ids[:2] == [["a"], ["a"]]
    assert {letter.data: letter.attempts for letter in query.letters} == {b"no json": 1, b'{"id": 5}': 1}
    assert all("record" not in letter.reason or letter.reason for letter in query.letters)


def test_records_fail_by_id_by_row_and_by_frame_and_come_again(query: TrackedQuery) -> None:
    query.stream.put(20)
    done: list[int] = []

    def process(batch: TrackedBatch) -> None:
        frame = batch.df.withColumn("n", number())
        first = frame.where("attempt = 1 and n < 6")
        rows = {row.n: row for row in first.collect()}
        if rows:
            batch.fail(rows[0].messageId, "an id")
            batch.fail([rows[1], rows[2].messageId], "a row and an id", after_s=0.1)
            batch.fail(first.where("n in (3, 4)"), "a frame")
            batch.fail(rows[5], "rejected", retry=False)
            batch.fail(rows[5], "and to be retried")
        done.extend(row.n for row in frame.collect() if row.messageId not in batch.failures)

    query.run(process)
    assert sorted(done) == [0, 1, 2, 3, 4, *range(6, 20)]
    assert [(letter.data, letter.reason) for letter in query.letters] == [(b"record 5", "rejected")]
    assert query.unresolved() == {}


def test_a_record_of_another_batch_cannot_be_failed(query: TrackedQuery) -> None:
    """Nothing of that call is recorded then."""
    query.stream.put(5)
    errors: list[str] = []

    def process(batch: TrackedBatch) -> None:
        row = batch.df.first()
        assert row is not None
        with pytest.raises(ValueError, match="is not of this batch") as caught:
            batch.fail([row, "shardId-000000000009:5:1"], "mixed")
        errors.append(str(caught.value))
        assert not batch.failures

    query.run(process)
    assert "shardId-000000000009:5:1" in errors[0]


def test_the_batch_is_read_once_however_many_actions_follow(query: TrackedQuery) -> None:
    """Reading it a second time would need the stream, which is gone by then."""
    query.stream.put(20)
    counts: list[int] = []

    def process(batch: TrackedBatch) -> None:
        counts.append(batch.df.count())
        query.stream.client.delete_stream(StreamName=STREAM)
        counts.extend(batch.df.where("length(data) > 0").count() for _ in range(2))
        query.stream.client.create_stream(StreamName=STREAM, ShardCount=4)
        raise KeyError("enough seen")

    with pytest.raises(Exception, match="enough seen"):
        query.run(process)
    assert counts == [20, 20, 20]


def test_a_token_names_records_whatever_their_delivery(query: TrackedQuery) -> None:
    query.stream.put(12)
    tokens: list[str] = []

    def process(batch: TrackedBatch) -> None:
        assert current_batch() is batch
        tokens.append(batch.token)
        if len(tokens) == 1:
            raise KeyError("once more")
        if len(tokens) == 2:
            batch.fail(batch.df, "all of them")

    with pytest.raises(Exception, match="once more"):
        query.run(process)
    query.run(process)
    query.stream.put(1)
    query.run(process)
    assert len(set(tokens[:3])) == 1
    assert len(set(tokens)) == 2
    assert len(tokens[0]) == 32
    with pytest.raises(RuntimeError, match="no tracked batch runs"):
        current_batch()


# order before going on --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("on_failure", ["block_key", "block_shard"])
def test_what_must_wait_for_a_failed_record_keeps_its_order(query: TrackedQuery, on_failure: str, tmp_path: Path) -> None:
    """Each key's (or shard's) records are processed in the order in which they were put, through failures and retries."""
    query.put_texts([f"record {n}" for n in range(40)], keys=lambda n: f"key {n % 7}")
    failing = {4, 9, 21}
    done: list[tuple[str, str, int]] = []

    def change(record: Record) -> dict[str, Any]:
        n = int(record.data.split()[1])
        marker = tmp_path / f"failed {n}"
        if n in failing and not marker.exists():
            marker.touch()
            raise ConnectionError("not now")
        return {"key": record.partition_key, "shard": record.shard_id, "n": n}

    def process(batch: TrackedBatch) -> None:
        done.extend((row.key, row.shard, row.n) for row in batch.map_records(change, "key string, shard string, n int").collect())

    query.run(process, on_failure=on_failure)
    assert sorted(n for _, _, n in done) == list(range(40))
    column = 0 if on_failure == "block_key" else 1
    for name in {row[column] for row in done}:
        order = [n for *_, n in (row for row in done if row[column] == name)]
        assert order == sorted(order)
    assert query.unresolved() == {}


def test_frames_keep_the_order_of_a_failed_key_too(query: TrackedQuery) -> None:
    query.put_texts([f"record {n}" for n in range(21)], keys=lambda n: f"key {n % 3}")
    batches: list[list[int]] = []

    def process(batch: TrackedBatch) -> None:
        rest = batch.fail_where(batch.df.withColumn("n", number()), "n = 4 and attempt = 1", "not now")
        batches.append(sorted(row.n for row in rest.collect()))

    query.run(process, on_failure="block_key", source={"idle_wait": "100ms"})
    waited = [4, 7, 10, 13, 16, 19]
    assert batches[0] == [n for n in range(21) if n not in waited]
    assert sorted(n for later in batches[1:] for n in later) == waited


# what becomes of records that may not be tried again --------------------------------------------------------------
def test_a_dead_letter_sink_that_is_down_fails_the_batch_and_nothing_is_acked(query: TrackedQuery) -> None:
    query.stream.put(10)
    rows: list[int] = []
    letters: list[str] = []
    down = threading.Event()
    down.set()

    def sink(found: list[Any]) -> None:
        if down.is_set():
            raise ConnectionError("the sink is down")
        letters.extend(letter.message_id for letter in found)

    def process(batch: TrackedBatch) -> None:
        rows.extend(numbers(batch.fail_where(batch.df, number() == 3, "three", retry=False)))

    with pytest.raises(Exception, match=r"dead letters of plan .* cannot be written .*the sink is down"):
        query.run(process, dead_letter=DeadLetter.to(sink))
    assert query.stream.checkpoints() == {}
    down.clear()
    query.run(process, dead_letter=DeadLetter.to(sink))
    assert sorted(rows) == sorted(2 * [n for n in range(10) if n != 3])
    assert len(letters) == 1
    assert query.stream.checkpoints() == query.stream.tips()


def test_dropped_records_are_counted_and_logged_without_their_payload(
    query: TrackedQuery, caplog: pytest.LogCaptureFixture
) -> None:
    query.stream.put(10)
    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        query.run(lambda batch: batch.fail(batch.df.where(number() < 2), "bad", retry=False), on_exhausted="drop")
    (line,) = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert "2 records may not be tried again and are dropped" in line
    assert "record 0" not in line
    assert query.unresolved() == {}


def test_a_query_that_is_to_stop_names_the_record_and_acks_nothing(query: TrackedQuery) -> None:
    query.stream.put(10)
    with pytest.raises(Exception, match=r"record shardId-\d+:\d+:1 failed 1 times .*on_exhausted is stop"):
        query.run(lambda batch: batch.fail(batch.df.where(number() == 5), "bad"), on_exhausted="stop", retry_limit=0)
    assert query.stream.checkpoints() == {}


def test_letters_of_a_repeated_plan_replace_those_written_before(query: TrackedQuery, tmp_path: Path) -> None:
    """The batch failed after it had written one; the second time nothing fails, and the partition is empty."""
    query.stream.put(10)
    dead = tmp_path / "dead"
    sink = DeadLetter("parquet", path=str(dead))
    runs: list[int] = []

    class DownAfterwards:
        def write(self, letters: DataFrame, *, plan_id: str) -> None:
            sink.write(letters, plan_id=plan_id)
            raise ConnectionError("down")

    def process(batch: TrackedBatch) -> None:
        runs.append(batch.df.count())
        if len(runs) == 1:
            batch.fail(batch.df.where(number() == 5), "bad", retry=False)

    with pytest.raises(Exception, match="down"):
        query.run(process, dead_letter=DownAfterwards())
    assert query.spark.read.parquet(str(dead)).count() == 1
    query.run(process, dead_letter=sink)
    assert query.spark.read.schema("messageId string").parquet(str(dead)).count() == 0
    assert query.stream.checkpoints() == query.stream.tips()


def test_a_lowered_limit_sends_what_waits_to_the_dead_letter_without_a_call(query: TrackedQuery) -> None:
    query.stream.put(10)
    seen: list[int] = []
    never = {"retry_first_delay": "1h", "retry_max_delay": "1h", "source": {"available_now_retry_wait": "0s"}}
    query.run(lambda batch: batch.fail(batch.df.where(number() == 5), "first try"), retry_limit=3, **never)
    assert sum(query.unresolved().values()) == 1
    query.stream.put(1)
    run_quietly(query, seen, retry_limit=0)  # the planner learns the policy with its first batch
    assert 5 not in seen
    assert [(letter.data, letter.attempts, letter.reason) for letter in query.letters] == [(b"record 5", 1, "first try")]
    assert query.unresolved() == {}


# what counts, and what does not -----------------------------------------------------------------------------------
def test_a_report_lost_by_hand_means_redelivery(query: TrackedQuery, store: ZookeeperStateStore) -> None:
    """Somebody opens the report again behind the batch's back, after it was done: as if it had never been."""
    query.stream.put(10)
    rows: list[int] = []

    class Losing:
        """A sink for the output of a second query's start: the report is made open again before Spark asks on."""

        def __init__(self, tracked: Callable[[DataFrame, int], None]) -> None:
            self.tracked = tracked
            self.done = 0

        def __call__(self, frame: DataFrame, batch_id: int) -> None:
            self.tracked(frame, batch_id)
            self.done += 1
            pointer = store.read_pointer()
            if self.done == 1 and pointer is not None:
                store.open_report(pointer.id, "lost")

    src = query.stream.source()
    tracked = src.tracked(lambda batch: rows.extend(numbers(batch.df)), on_exhausted="drop", **FAST)
    started = src.read_stream(query.spark).writeStream.foreachBatch(Losing(tracked))
    running = started.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start()
    assert running.awaitTermination(120)
    assert sorted(rows) == sorted(2 * list(range(10)))
    assert query.stream.checkpoints() == query.stream.tips()


def test_a_report_that_somebody_else_has_opened_since_fails_the_batch(query: TrackedQuery, store: ZookeeperStateStore) -> None:
    """A zombie's late report cannot ack, and neither can a batch whose plan was taken over."""
    query.stream.put(10)
    rows: list[int] = []

    def process(batch: TrackedBatch) -> None:
        rows.extend(numbers(batch.df))
        pointer = store.read_pointer()
        assert pointer is not None
        store.finish_report(store.open_report(pointer.id, "zombie"), PlanReport())
        store.open_report(pointer.id, "another")

    with pytest.raises(Exception, match="report"):
        query.run(process)
    assert query.stream.checkpoints() == {}
    rows.clear()
    run_quietly(query, rows)
    assert sorted(rows) == list(range(10))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda frame: frame.drop("messageId"), "messageId"),
        (lambda frame: frame.select("messageId", "data"), "streamName, shardId"),
        (lambda frame: frame.withColumnRenamed("shardId", "shard"), "shardId"),
    ],
)
def test_a_frame_that_has_lost_columns_is_refused_at_once(
    query: TrackedQuery, change: Callable[[DataFrame], DataFrame], named: str
) -> None:
    query.stream.put(5)
    src, ran = query.stream.source(), []
    tracked = src.tracked(ran.append, on_exhausted="drop")
    writer = change(src.read_stream(query.spark)).writeStream.foreachBatch(tracked)
    running = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=f"no column {named}"):
        running.awaitTermination(120)
    assert ran == []


def test_rows_filtered_before_are_missed(query: TrackedQuery) -> None:
    """Else they would be acked though nobody has seen them. Columns may be added."""
    query.stream.put(20)
    src = query.stream.source()

    def start(frame: DataFrame, name: str, rows: list[int]) -> Any:
        def process(batch: TrackedBatch) -> None:
            rows.extend(row.n for row in batch.df.collect())

        tracked = src.tracked(process, on_exhausted="drop")
        writer = frame.writeStream.foreachBatch(tracked).option("checkpointLocation", str(query.checkpoint) + name)
        return writer.trigger(availableNow=True).start()

    frame = src.read_stream(query.spark).withColumn("n", number())
    with pytest.raises(Exception, match=r"frame holds .* of shard .* published .*filter and deduplicate inside"):
        start(frame.where("n > 5"), "filtered", []).awaitTermination(120)
    assert query.stream.checkpoints() == {}
    rows: list[int] = []
    assert start(frame, "whole", rows).awaitTermination(120)
    assert sorted(rows) == list(range(20))


def test_a_function_that_takes_a_part_acks_only_what_was_read(query: TrackedQuery) -> None:
    """What nobody has read comes with a later batch."""
    query.stream.put(80)
    seen: list[int] = []

    def process(batch: TrackedBatch) -> None:
        if not seen:
            seen.extend(numbers(batch.df.limit(1)))
        else:
            seen.extend(numbers(batch.df))

    query.run(process, source={"max_tasks": 4})
    by_shard = {shard: len(sequences) for shard, sequences in query.stream.records.items()}
    assert len(seen) == 1 + 80 - max(count for count in by_shard.values() if 1 + 80 - count == len(seen))
    assert query.stream.checkpoints() == query.stream.tips()


def test_a_function_that_reads_nothing_acks_nothing(query: TrackedQuery) -> None:
    query.stream.put(10)
    seen: list[int] = []
    batches: list[int] = []

    def process(batch: TrackedBatch) -> None:
        batches.append(batch.id)
        if len(batches) > 1:
            seen.extend(numbers(batch.df))

    query.run(process)
    assert sorted(seen) == list(range(10))


def test_a_batch_of_a_closed_plan_is_not_reported(
    query: TrackedQuery, store: ZookeeperStateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Its records are delivered again by the shard states, so what fails in it is only logged."""
    query.stream.put(10)
    rows: list[list[int]] = []

    def fail_once(batch: TrackedBatch) -> None:
        rows.append(numbers(batch.df))
        raise KeyError("stopped here")

    with pytest.raises(Exception, match="stopped here"):
        query.run(fail_once)
    pointer = store.read_pointer()
    assert pointer is not None
    store.acquire(this_process(0), timeout_s=30)
    store.close_plan(pointer.id)
    store.release()

    def process(batch: TrackedBatch) -> None:
        rows.append(numbers(batch.df))
        if len(rows) == 2:
            batch.fail(batch.df.where(number() == 3), "bad", retry=False)

    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        query.run(process)
    assert "1 of them failed" in caplog.text
    assert query.letters == []
    assert sorted(rows[2]) == list(range(10))


def test_two_queries_track_one_stream_under_two_names(query: TrackedQuery, tmp_path: Path) -> None:
    query.stream.put(20)
    rows: dict[str, list[int]] = {"one": [], "two": []}
    queries = []
    for name, seen in rows.items():
        src = query.stream.source(application=name)

        def process(batch: TrackedBatch, seen: list[int] = seen, name: str = name) -> None:
            assert current_batch() is batch
            bad = number() == (1 if name == "one" else 2)
            seen.extend(numbers(batch.fail_where(batch.df, bad, "not mine", retry=False)))

        tracked = src.tracked(process, on_exhausted="drop", **FAST)
        writer = src.read_stream(query.spark).writeStream.foreachBatch(tracked)
        queries.append(writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start())
    assert all(one.awaitTermination(120) for one in queries)
    assert sorted(rows["one"]) == [n for n in range(20) if n != 1]
    assert sorted(rows["two"]) == [n for n in range(20) if n != 2]
    assert query.stream.states("one").keys() == query.stream.states("two").keys()


def test_rejecting_and_retrying_in_two_calls_of_map_records_rejects(query: TrackedQuery) -> None:
    query.stream.put(6)

    def retry(record: Record) -> object:
        if record.data == b"record 1":
            raise ConnectionError("later")
        return (1,)

    def reject(record: Record) -> object:
        if record.data == b"record 1":
            raise Reject("never")
        return (2,)

    def process(batch: TrackedBatch) -> None:
        assert batch.map_records(retry, "n int").count() == 5
        assert batch.map_records(reject, "n int").count() == 5

    query.run(process)
    assert [(letter.data, letter.reason, letter.attempts) for letter in query.letters] == [(b"record 1", "never", 1)]
