"""A tracked batch on a real Spark: reports that count, frames that are refused, partial reads, and
outcomes of user records. Of several streams, each outcome counts for the stream it is from.
"""

from __future__ import annotations

import logging
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.errors import ConfigError
from kinesis_spout.testing.settings import FakeKinesisSettings
from spark_job import DeadLetter, KinesisSource, Reject, Retry
from spark_job.dead_letter import DeadLetterError
from spark_job.driver.coordinator import Coordinator
from spark_job.process_services import ProcessServices
from state.process import this_process
from tests.support.aggregates.wire import aggregate_of
from tests.support.kinesis.services import create_stream, fields_of, kinesis_client, serve
from tests.support.outcomes.acker import source_frame
from tests.support.outcomes.tracked import TrackedBatches, number, numbers
from tests.support.spark.source import STREAM, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from scheme.record import Record
    from spark_job import TrackedBatch
    from state.zookeeper.store import ZookeeperStateStore
    from tests.support.outcomes.tracked import TrackedQuery

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda frame: frame.drop("messageId"), "messageId"),
        (lambda frame: frame.select("messageId", "data"), "streamName, shardId"),
        (lambda frame: frame.withColumnRenamed("shardId", "shard"), "shardId"),
    ],
)
def test_a_frame_that_has_lost_columns_is_refused_at_once(
    tracked_batches: TrackedBatches, change: Callable[[DataFrame], DataFrame], named: str
) -> None:
    ran: list[object] = []
    tracked = tracked_batches.stream.source().tracked(ran.append, on_exhausted="drop")
    with pytest.raises(ConfigError, match=f"no column {named}"):
        tracked(change(source_frame(tracked_batches.spark, ["a"])), 0)
    assert ran == []


@pytest.mark.parametrize("place", ["format nope", "stream nowhere"])
def test_a_missing_place_of_dead_letters_is_refused_before_the_first_batch(
    tracked_batches: TrackedBatches, place: str
) -> None:
    """And not by the first dead letter, perhaps weeks later."""
    stream = tracked_batches.stream
    stream.put(5)
    aws: dict[str, Any] = fields_of(stream.endpoint_url)
    nope, nowhere = DeadLetter("nope"), DeadLetter.to_stream("nowhere", **aws)
    dead_letter = nope if place == "format nope" else nowhere
    ran: list[TrackedBatch] = []
    with pytest.raises(DeadLetterError, match=f"{place.split()[1]}.* no batch is processed"):
        tracked_batches.run(ran.append, dead_letter=dead_letter)
    assert ran == []


def test_a_stream_of_dead_letters_that_does_not_answer_is_a_warning(
    tracked_batches: TrackedBatches, caplog: pytest.LogCaptureFixture
) -> None:
    """Putting may be allowed where describing is not, or possible by the first dead letter."""
    stream = tracked_batches.stream
    stream.put(5)
    aws: dict[str, Any] = fields_of("http://127.0.0.1:9")  # where nothing listens
    rows: list[int] = []
    with caplog.at_level(logging.WARNING):
        tracked_batches.run_quietly(rows, dead_letter=DeadLetter.to_stream("dead", **aws))
    assert sorted(rows) == list(range(5))
    assert "the dead-letter stream dead was not checked" in caplog.text


def test_a_frame_of_another_source_is_refused(tracked_batches: TrackedBatches) -> None:
    """Its own source is not tracked, so records that fail here would be acked with the batch."""
    stream = tracked_batches.stream
    ran: list[TrackedBatch] = []
    stream.put(5)
    tracked = stream.source(application="another").tracked(ran.append, on_exhausted="drop")
    refused = pytest.raises(ConfigError, match="another has no open batch of stream orders")
    with refused:
        tracked_batches.play(stream.source(), tracked)
    assert ran == []
    assert stream.checkpoints() == {}
    # An application that has had batches may be replaying its last one, but no second one.
    tracked_batches.offsets, tracked_batches.committed = [], -1
    tracked_batches.run_quietly([], source={"application": "another"})
    tracked_batches.offsets, tracked_batches.committed = [], -1
    with refused:
        tracked_batches.play(stream.source(max_records_per_shard=1), tracked)
    assert ran == []


def test_rows_that_were_filtered_before_the_function_fail_the_batch(
    tracked_batches: TrackedBatches,
) -> None:
    """Otherwise they would be acked unseen. Columns may be added."""
    tracked_batches.stream.put(20)
    src = tracked_batches.stream.source()
    rows: list[int] = []
    tracked = src.tracked(
        lambda batch: rows.extend(row.n for row in batch.df.collect()), on_exhausted="drop"
    )

    def numbered(frame: DataFrame, condition: str) -> DataFrame:
        return frame.withColumn("n", number()).where(condition)

    with pytest.raises(
        Exception,
        match=r"contains .* of shard .* published .*filter and deduplicate only inside",
    ):
        tracked_batches.play(src, lambda frame, batch: tracked(numbered(frame, "n > 5"), batch))
    assert tracked_batches.stream.checkpoints() == {}
    rows.clear()
    tracked_batches.play(src, lambda frame, batch: tracked(numbered(frame, "n >= 0"), batch))
    assert sorted(rows) == list(range(20))


def test_records_of_tasks_that_the_function_has_not_read_come_with_a_later_batch(
    tracked_query: TrackedQuery,
) -> None:
    """`take` reads the first partition only. None is lost, and none comes twice."""
    tracked_query.stream.put(20)
    seen: list[tuple[str, int]] = []

    def process(batch: TrackedBatch) -> None:
        rows = batch.df.select("shardId", number().alias("n"))
        seen.extend((row.shardId, row.n) for row in (rows.collect() if seen else rows.take(1)))

    tracked_query.run(process, source={"max_tasks": 4})
    (first, _), *later = seen
    assert len({shard for shard, _ in later}) == 3
    assert first not in {shard for shard, _ in later}
    assert len({n for _, n in later}) == len(later) > 0
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_two_batches_in_a_row_without_a_report_end_the_query_and_say_what_to_do(
    tracked_batches: TrackedBatches, store: ZookeeperStateStore
) -> None:
    """The first one is delivered again. With `whole_batch_ack` the application is no longer
    tracked, and records that were queued are acked once they are read.
    """
    stream, seen = tracked_batches.stream, []
    stream.put(10)
    tracked_batches.run(
        lambda batch: batch.fail(batch.df.where(number() == 3), "later", after_s=1),
        source={"available_now_retry_wait": "0s"},
        retry_limit=1_000,
    )
    stream.put(10)

    def untracked(frame: DataFrame, _batch: int) -> None:
        seen.append({n for n in numbers(frame) if n >= 10})

    with pytest.raises(ConfigError, match=r"source\.tracked.*wholeBatchAck"):
        tracked_batches.play(stream.source(), untracked)
    assert seen == [set(range(10, 20))] * 2
    assert stream.checkpoints() != stream.tips()
    tracked_batches.play(stream.source(whole_batch_ack=True), untracked)
    assert stream.checkpoints() == stream.tips()
    assert tracked_batches.unresolved() == {}
    assert store.reports.read_policy() is None


def close_plan(store: ZookeeperStateStore, *, stays_tracked: bool = True) -> None:
    """As a process that takes the application over, while the query is down."""
    pointer = store.plans.pointer()
    assert pointer is not None
    store.ownership.acquire(this_process(0), timeout_s=30)
    store.plans.close(pointer.id)
    if not stays_tracked:
        store.reports.clear_policy()
    store.ownership.release()


def stopped(_batch: TrackedBatch) -> None:
    raise KeyError("stopped here")


@pytest.mark.parametrize("was_tracked", [True, False])
def test_a_batch_of_a_closed_plan_is_not_processed(
    tracked_batches: TrackedBatches, store: ZookeeperStateStore, *, was_tracked: bool
) -> None:
    """The shard states bring its records again. Also where it is the application's first batch, so
    that nothing in ZooKeeper says yet that it is tracked.
    """
    tracked_batches.stream.put(10)
    with pytest.raises(KeyError, match="stopped here"):
        tracked_batches.run(stopped)
    close_plan(store, stays_tracked=was_tracked)
    rows: list[list[int]] = []
    tracked_batches.run(lambda batch: rows.append(sorted(numbers(batch.df))))
    assert rows == [list(range(10))]


def test_a_batch_that_was_reported_before_its_plan_was_closed_is_not_run_again(
    tracked_batches: TrackedBatches, store: ZookeeperStateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark has not committed it, so it replays the batch. The report holds: a record that failed
    in the replay alone would be acked, and missing from a sink that overwrites by batch.
    """
    tracked_batches.stream.put(10)
    rows: list[int] = []
    with pytest.raises(KeyError, match="not committed"):
        tracked_batches.run_quietly(rows, commits=False)
    close_plan(store)
    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        tracked_batches.run_quietly(rows)
    assert "the function is not called again" in caplog.text
    assert sorted(rows) == list(range(10))
    assert tracked_batches.stream.checkpoints() == tracked_batches.stream.tips()


def test_the_report_of_another_batch_does_not_hold_for_a_replay(
    tracked_batches: TrackedBatches, store: ZookeeperStateStore
) -> None:
    """Records of a plan that was closed without a report are redelivered, whatever was reported
    before.
    """
    tracked_batches.stream.put(10)
    tracked_batches.run_quietly([])
    tracked_batches.stream.put(10)
    with pytest.raises(KeyError, match="stopped here"):
        tracked_batches.run(stopped)
    reported, unreported = store.plans.known()
    assert store.reports.read(reported) is not None
    assert store.reports.read(unreported) is None
    close_plan(store)
    rows: list[list[int]] = []
    tracked_batches.run(lambda batch: rows.append(sorted(numbers(batch.df))))
    assert rows == [list(range(10, 20))]


def put_aggregates(query: TrackedQuery, *sizes: int) -> None:
    """Put aggregates of so many user records, numbered on."""
    first = 0
    for size in sizes:
        data = [b"record %d" % each for each in range(first, first + size)]
        query.stream.put_record("k", aggregate_of(data, ["k"]))
        first += size


@pytest.mark.parametrize("before", ["raw", "unpack"])
def test_a_batch_that_failed_is_replayed_as_it_was_after_a_change_of_the_option(
    before: str, tracked_batches: TrackedBatches
) -> None:
    """And what fails in it then is retried as it was delivered."""
    put_aggregates(tracked_batches, 3, 3)

    def source(mode: str) -> dict[str, Any]:
        return {"available_now_retry_wait": "0s", "aggregated_records": mode}

    def breaks(batch: TrackedBatch) -> None:
        batch.df.count()
        raise ValueError("a bug")

    with pytest.raises(Exception, match="a bug"):
        tracked_batches.run(breaks, source=source(before))
    seen: list[bytes] = []
    failed: list[bytes] = []

    def process(batch: TrackedBatch) -> None:
        rows = batch.df.collect()
        seen.extend(bytes(row.data) for row in rows)
        again = [row for row in rows if bytes(row.data) not in failed]
        failed.extend(bytes(row.data) for row in again)
        batch.fail(again, "not yet", after_s=0)

    tracked_batches.run(process, source=source("unpack" if before == "raw" else "raw"))
    packed = [aggregate_of([b"record %d" % n for n in range(f, f + 3)], ("k",)) for f in (0, 3)]
    delivered = packed if before == "raw" else [b"record %d" % n for n in range(6)]
    assert sorted(seen) == sorted(2 * delivered)
    assert tracked_batches.stream.checkpoints() == tracked_batches.stream.tips()


CLICKS = "clicks"
ARN_HERE = f"arn:aws:kinesis:us-east-1:000000000000:stream/{STREAM}"
ARN_THERE = f"arn:aws:kinesis:eu-west-1:444455556666:stream/{STREAM}"
BOTH: dict[str, Any] = {"stream": f"{STREAM},{CLICKS}"}


def put(stream: StreamUnderTest, name: str, texts: Sequence[str]) -> None:
    """The second half of the records has one key."""
    half = len(texts) // 2
    entries = [
        {"Data": text.encode(), "PartitionKey": text if n < half else "k"}
        for n, text in enumerate(texts)
    ]
    stream.client.put_records(StreamName=name, Records=entries)


def put_on_both(stream: StreamUnderTest, *texts: str) -> list[tuple[str, str]]:
    """The second stream's shards have the ids of the first. Returns all names and texts, sorted."""
    create_stream(stream.client, CLICKS, shards=4)
    for name in (STREAM, CLICKS):
        put(stream, name, texts)
    return sorted((name, text) for name in (CLICKS, STREAM) for text in texts)


def texts_of(batch: TrackedBatch) -> list[tuple[str, str]]:
    rows = batch.df.select("streamName", F.col("data").cast("string").alias("text")).collect()
    return sorted((row.streamName, row.text) for row in rows)


@contextmanager
def elsewhere(stream: StreamUnderTest) -> Iterator[StreamUnderTest]:
    """A stream of the same name in another region and account."""
    settings = FakeKinesisSettings(region="eu-west-1", account_id="444455556666")
    with (
        serve(clock=stream.clock, settings=settings) as fake,
        kinesis_client(fake.endpoint_url) as client,
    ):
        create_stream(client, STREAM, shards=4)
        yield StreamUnderTest(client, fake.endpoint_url, stream.zookeeper, stream.clock)
        ProcessServices.forget_all()


def tried(record: Record) -> dict[str, Any]:
    """Of one of the two streams, r8 is retried twice and r4 is rejected."""
    assert record.message_id.startswith(f"{record.stream_name}/")
    text = record.data.decode()
    if record.stream_name == ARN_HERE and text == "r8" and record.attempt < 3:
        raise Retry("later")
    if record.stream_name == ARN_HERE and text == "r4":
        raise Reject("never")
    return {"stream": record.stream_name, "text": text, "attempt": record.attempt}


@pytest.mark.parametrize("way", ["frame", "map_records"])
def test_the_frame_of_one_stream_is_refused_by_a_source_of_several(
    tracked_batches: TrackedBatches, stream: StreamUnderTest, way: str
) -> None:
    """Its message ids do not name the stream. The failures would be found in no stream, or their
    dead letters not be written, and the records acked.
    """
    create_stream(stream.client, CLICKS, shards=1)
    stream.put(5)
    letters: list[object] = []
    several = KinesisSource.several([stream.source(), stream.source(stream=CLICKS)])

    def process(batch: TrackedBatch) -> None:
        if way == "frame":
            batch.fail(batch.df.where(number() == 3), "bad", retry=False)
        else:
            batch.map_records(lambda record: 1 / (record.data != b"record 3"), "n double")

    tracked = several.tracked(process, dead_letter=DeadLetter.to(letters.extend))
    with pytest.raises(Exception, match="does not belong to the source of tracked"):
        tracked_batches.play(stream.source(), tracked)
    assert stream.checkpoints() == {}


def test_outcomes_and_letters_are_those_of_the_records_own_stream(
    tracked_batches: TrackedBatches, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """Two streams of one name, by their ARNs and each under an application of its own. They have
    the same payloads, keys and shard ids. A retry holds the later records of its key on its own
    stream. The letters of each stream's plan have a folder of their own.
    """
    same = [f"r{n}" for n in range(12)]
    written: list[tuple[str, str, int]] = []
    path = str(tmp_path / "dead")
    dead = DeadLetter("parquet", path=path)

    def process(batch: TrackedBatch) -> None:
        bad = batch.df.where(f"streamName = '{ARN_THERE}' AND CAST(data AS STRING) = 'r5'")
        batch.fail(bad, "bad there", retry=False)
        rows = batch.map_records(tried, "stream string, text string, attempt int").collect()
        written.extend((row.stream, row.text, row.attempt) for row in rows)

    with elsewhere(stream) as there:
        put(stream, STREAM, same)
        put(there, STREAM, same)
        here = stream.source(stream=None, stream_arn=ARN_HERE)
        other = there.source(
            stream=None, stream_arn=ARN_THERE, region=None, application="elsewhere"
        )
        both = KinesisSource.several([here, other])
        tracked_batches.run(process, source=both, on_failure="block_key", dead_letter=dead)
    wanted = {(name, text, 1) for name in (ARN_HERE, ARN_THERE) for text in same}
    waited = {(ARN_HERE, text, 1) for text in ("r4", "r8")}
    assert sorted(written) == sorted(wanted - waited | {(ARN_HERE, "r8", 3)})
    for name in (ARN_HERE, ARN_THERE):
        of_the_key = [text for of, text, _ in written if of == name and text in same[6:]]
        assert of_the_key == same[6:]
    assert written.index((ARN_THERE, "r11", 1)) < written.index((ARN_HERE, "r8", 3))
    rows = tracked_batches.spark.read.parquet(path).collect()
    assert {(row.streamName, row.application, bytes(row.data), row.reason) for row in rows} == {
        (ARN_THERE, "elsewhere", b"r5", "bad there"),
        (ARN_HERE, "orders-etl", b"r4", "never"),
    }
    assert all(row.messageId.startswith(f"{row.streamName}/{row.shardId}:") for row in rows)
    assert len({row.plan for row in rows}) == len(rows)


def close_plan_of(stream: StreamUnderTest, name: str) -> None:
    """Another process takes the stream over, and closes the plan that was left open."""
    settings = stream.settings(stream=name)
    services = ProcessServices.connect(settings)
    with closing(Coordinator(settings, services)) as coordinator:
        pointer = services.store.plans.pointer()
        assert pointer is not None
        coordinator.tasks("", known_plan=pointer.id)


def test_a_repeated_batch_with_a_closed_plan_comes_again_with_the_records_of_all_streams(
    tracked_batches: TrackedBatches, stream: StreamUnderTest
) -> None:
    """They come with later plans: none is lost, none counts twice."""
    both = put_on_both(stream, "a", "b")
    seen: list[list[tuple[str, str]]] = []

    def process(batch: TrackedBatch) -> None:
        seen.append(texts_of(batch))
        if len(seen) == 1:
            raise RuntimeError("once")

    with pytest.raises(RuntimeError, match="once"):
        tracked_batches.run(process, source=BOTH)
    close_plan_of(stream, CLICKS)
    tracked_batches.run(process, source=BOTH)
    assert seen == [both, both]


def test_a_repeated_batch_is_not_processed_without_the_rows_that_a_report_holds(
    tracked_batches: TrackedBatches, stream: StreamUnderTest
) -> None:
    """A sink that overwrites by batch would lose them: their stream has acked them."""
    both = put_on_both(stream, "a", "b")
    sink: dict[int, list[tuple[str, str]]] = {}

    def process(batch: TrackedBatch) -> None:
        sink[batch.id] = texts_of(batch)

    with pytest.raises(KeyError, match="not committed"):
        tracked_batches.run(process, source=BOTH, commits=False)
    close_plan_of(stream, CLICKS)
    tracked_batches.run(process, source=BOTH)
    assert sorted({one for rows in sink.values() for one in rows}) == both


def test_a_record_that_ends_its_process_is_found_among_the_rows_of_all_streams(
    tracked_batches: TrackedBatches, stream: StreamUnderTest
) -> None:
    """From the third delivery on, the function gets a part of the rows, stream by stream. The other
    rows are queued again for the stream that they are of. Until the record is found, no stream
    reads new records.
    """
    both = put_on_both(stream, *"abcdefgh")
    killer, new = (STREAM, "d"), [(CLICKS, "new"), (STREAM, "new")]
    given: list[int] = []
    done: list[tuple[str, str]] = []

    def process(batch: TrackedBatch) -> None:
        texts = texts_of(batch)
        given.append(len(texts))
        if len(given) == 3:
            for name, _ in new:
                put(stream, name, ["new"])
        assert tracked_batches.letters or not {*new} & {*texts}
        if killer in texts:
            raise RuntimeError("Python worker exited unexpectedly")
        done.extend(texts)

    for _ in range(20):
        try:
            tracked_batches.run(process, source=BOTH, retry_limit=1)
        except RuntimeError:
            continue
        break
    assert given[:3] == [16, 16, 4]
    assert sorted(done) == sorted({*both, *new} - {killer})
    (letter,) = tracked_batches.letters
    assert (letter.stream_name, letter.data) == (STREAM, b"d")
    assert str(letter.reason).startswith("its process ended without an answer")
