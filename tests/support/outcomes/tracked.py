"""Tracked queries over a stream, and their results: reports, states and dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import DeadLetter
from state.zookeeper.store import ZookeeperStateStore
from tests.support.spark.source import APPLICATION, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_job import TrackedBatch
    from spark_job.dead_letter.letter import Letter
    from tests.support.spark.source import StreamUnderTest

FAST: dict[str, Any] = {"retry_first_delay": "10ms", "retry_max_delay": "20ms"}


@dataclass
class TrackedQuery:
    """A tracked application over a stream. Each `run` is a query that reads what is there, retries
    included, and ends.
    """

    spark: SparkSession
    stream: StreamUnderTest
    checkpoint: Path
    letters: list[Letter] = field(default_factory=list)

    def frame(self, **options: Any) -> DataFrame:
        return self.stream.source(**options).read_stream(self.spark)

    def run(
        self,
        process: Callable[[TrackedBatch], object],
        *,
        source: dict[str, Any] | None = None,
        **tracking: Any,
    ) -> None:
        """Raises the query's error."""
        src = self.stream.source(**(source or {}))
        if tracking.get("on_exhausted", "dead_letter") == "dead_letter":
            tracking = {"dead_letter": DeadLetter.to(self.letters.extend)} | tracking
        tracked = src.tracked(process, **(FAST | tracking))
        query = (
            src.read_stream(self.spark)
            .writeStream.foreachBatch(tracked)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    def put_texts(
        self, texts: Sequence[str], *, keys: Callable[[int], str] = "key {}".format
    ) -> None:
        """Put these payloads on the stream, at most 500."""
        entries = [{"Data": text.encode(), "PartitionKey": keys(n)} for n, text in enumerate(texts)]
        for answer in self.stream.client.put_records(StreamName=STREAM, Records=entries)["Records"]:
            self.stream.records.setdefault(answer["ShardId"], []).append(answer["SequenceNumber"])

    def run_quietly(self, rows: list[int], **tracking: Any) -> None:
        """Run a query that fails nothing and adds the numbers of its records to `rows`."""
        self.run(lambda batch: rows.extend(numbers(batch.df)), **tracking)

    def unresolved(self) -> dict[str, int]:
        """Unresolved records by shard, where there are any."""
        counts = {
            shard: sum(one.count for one in state.unresolved)
            for shard, state in self.stream.states().items()
        }
        return {shard: count for shard, count in counts.items() if count}


@pytest.fixture
def tracked_query(spark: SparkSession, stream: StreamUnderTest, tmp_path: Path) -> TrackedQuery:
    return TrackedQuery(spark, stream, tmp_path / "checkpoint")


@pytest.fixture
def store(stream: StreamUnderTest) -> Iterator[ZookeeperStateStore]:
    """Another process's store of the application's state."""
    store = ZookeeperStateStore(
        stream.zookeeper, root="kinesis-spout", application=APPLICATION, stream=STREAM
    )
    yield store
    store.close()


def number() -> Column:
    """N of a payload `record n`."""
    return F.substring_index(F.col("data").cast("string"), " ", -1).cast("int")


def numbers(frame: DataFrame) -> list[int]:
    return [row.n for row in frame.select(number().alias("n")).collect()]
