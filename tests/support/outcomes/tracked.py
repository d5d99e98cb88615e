"""Tracked queries over a stream, and their results: reports, states and dead letters.

`tracked_query` runs queries of Spark. `tracked_batches` runs the same functions without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import DeadLetter
from spark_job.data_source import SCHEMA_DDL, KinesisStreamReader
from spark_job.kinesis_source import KinesisStreams
from state.zookeeper.store import ZookeeperStateStore
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import APPLICATION, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from kinesis_spout.dead_letter.letter import Letter
    from spark_job import KinesisSource, TrackedBatch
    from spark_job.settings import QuerySettings
    from tests.support.simulated.micro_batch_engine import Row
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

    def run(
        self,
        process: Callable[[TrackedBatch], object],
        *,
        source: dict[str, Any] | KinesisStreams | None = None,
        commits: bool = True,
        **tracking: Any,
    ) -> None:
        """Raises the query's error. Without `commits` the query dies after a batch is done, before
        Spark commits it: that is a `KeyError`.
        """
        src = source if isinstance(source, KinesisStreams) else self.stream.source(**(source or {}))
        if tracking.get("on_exhausted", "dead_letter") == "dead_letter":
            tracking = {"dead_letter": DeadLetter.to(self.letters.extend)} | tracking
        tracked = src.tracked(process, **(FAST | tracking))

        def run_batch(frame: DataFrame, batch_id: int) -> None:
            tracked(frame, batch_id)
            if not commits:
                raise KeyError("not committed")

        self.play(src, run_batch)

    def play(
        self, source: KinesisSource | KinesisStreams, function: Callable[[DataFrame, int], None]
    ) -> None:
        query = (
            source.read_stream(self.spark)
            .writeStream.foreachBatch(function)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

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


@dataclass
class TrackedBatches(TrackedQuery):
    """The same without a query: Spark's micro-batch loop in this process calls the function with
    frames of the rows that were read. A run costs a tenth of a query.
    """

    offsets: list[dict[str, Any]] = field(default_factory=list)
    committed: int = -1

    def play(
        self, source: KinesisSource | KinesisStreams, function: Callable[[DataFrame, int], None]
    ) -> None:
        query = source.query()
        loop = _Loop(query.streams[0], available_now=True, offsets=self.offsets)
        loop.committed, loop.query = self.committed, query
        loop.function = lambda rows, batch: function(self._frame_of(rows), batch)
        try:
            loop.run_until_idle()
        finally:
            self.committed = loop.committed
            loop.stop()

    def _frame_of(self, rows: list[Row]) -> DataFrame:
        values = [tuple(row.values()) for row in rows]
        # One partition, so that the rows of a shard are together and in order.
        return self.spark.createDataFrame(values, SCHEMA_DDL).coalesce(1)


class _Loop(MicroBatchEngine):
    query: QuerySettings
    function: Callable[[list[Row], int], None]

    def start(self) -> None:
        self.reader = KinesisStreamReader(self.query)
        self.reader.prepareForTriggerAvailableNow()

    def finish(self, batch: int, rows: list[Row]) -> None:
        self.function(rows, batch)


@pytest.fixture
def tracked_batches(spark: SparkSession, stream: StreamUnderTest, tmp_path: Path) -> TrackedBatches:
    return TrackedBatches(spark, stream, tmp_path / "checkpoint")


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
