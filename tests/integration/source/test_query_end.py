"""How a query of a plain source ended is told in the application's state, for `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.support.spark.source import StreamUnderTest

pytestmark = pytest.mark.spark
PASSWORD = "hunter2"  # of nobody


def started(frame: DataFrame, path: Path, process: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(process)
    return writer.option("checkpointLocation", str(path)).start()


def test_the_error_of_a_plain_function_is_told(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """Without what looks like a secret, and not the error of another query of the session."""

    def fails(batch: DataFrame, _batch_id: int) -> None:
        raise ValueError(f"no rates for {batch.count()} at jdbc://me:{PASSWORD}@db")

    def other_fails(_batch: DataFrame, _batch_id: int) -> None:
        raise KeyError("another query")

    stream.put(8)
    frame = stream.source().read_stream(spark)
    rate = spark.readStream.format("rate").load()
    other = started(rate, tmp_path / "other", other_fails)
    wait_until(lambda: not other.isActive, 120)
    query = started(frame, tmp_path / "ours", fails)
    wait_until(lambda: not query.isActive, 120)
    wait_until(lambda: stream.last_end() is not None)
    assert stream.last_end() == "ValueError: no rates for 8 at jdbc://***@db"


def test_a_query_says_that_an_error_would_be_told(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """Once a batch is over: so one that ends without a word was killed or stopped."""

    def count(batch: DataFrame, _batch_id: int) -> None:
        batch.count()

    stream.put(8)
    query = started(stream.source().read_stream(spark), tmp_path, count)
    try:
        wait_until(stream.tells_errors, 120)
    finally:
        query.stop()
    assert stream.last_end() is None
