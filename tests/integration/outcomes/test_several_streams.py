"""A tracked query of several streams: each record's outcome counts for the stream it is from."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.testing.settings import FakeKinesisSettings
from spark_job import DeadLetter, KinesisSource, Reject, Retry
from spark_job.driver.coordinator import Coordinator
from spark_job.process_services import ProcessServices
from tests.support.kinesis.services import create_stream, kinesis_client, serve
from tests.support.spark.source import STREAM, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from scheme.record import Record
    from spark_job import TrackedBatch
    from tests.support.outcomes.tracked import TrackedBatches

pytestmark = pytest.mark.spark
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


def close_plan(stream: StreamUnderTest, name: str) -> None:
    """Another process takes the stream over, and closes the plan that was left open."""
    settings = stream.settings(stream=name)
    services = ProcessServices.connect(settings)
    with closing(Coordinator(settings, services)) as coordinator:
        pointer = services.store.plans.pointer()
        assert pointer is not None
        coordinator.close_open_plan(pointer.id)


def test_of_a_repeated_batch_only_the_streams_count_whose_plan_is_open(
    tracked_batches: TrackedBatches, stream: StreamUnderTest
) -> None:
    """The records of the other one come with a later plan: none is lost, none counts twice."""
    both = put_on_both(stream, "a", "b")
    seen: list[list[tuple[str, str]]] = []

    def process(batch: TrackedBatch) -> None:
        seen.append(texts_of(batch))
        if len(seen) == 1:
            raise RuntimeError("once")

    with pytest.raises(RuntimeError, match="once"):
        tracked_batches.run(process, source=BOTH)
    close_plan(stream, CLICKS)
    tracked_batches.run(process, source=BOTH)
    assert seen == [both, both[2:], both[:2]]


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
    close_plan(stream, CLICKS)
    tracked_batches.run(process, source=BOTH)
    assert sorted({one for rows in sink.values() for one in rows}) == both


def test_a_record_that_ends_its_process_is_found_among_the_rows_of_all_streams(
    tracked_batches: TrackedBatches, stream: StreamUnderTest
) -> None:
    """From the third delivery on, the function gets the first rows, stream by stream. The others
    are queued again for the stream that they are of.
    """
    both = put_on_both(stream, *"abcdefgh")
    killer = (STREAM, "d")
    given: list[int] = []
    done: list[tuple[str, str]] = []

    def process(batch: TrackedBatch) -> None:
        texts = texts_of(batch)
        given.append(len(texts))
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
    assert sorted(done) == [one for one in both if one != killer]
    (letter,) = tracked_batches.letters
    assert (letter.stream_name, letter.data) == (STREAM, b"d")
    assert letter.reason.startswith("its process ended without an answer")
