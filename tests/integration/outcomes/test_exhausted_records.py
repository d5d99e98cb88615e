"""Exhausted records on a real Spark: they are dead-lettered or dropped, or they stop the query."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from spark_job import DeadLetter
from tests.support.outcomes.tracked import TrackedBatches, TrackedQuery, number, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from spark_job import TrackedBatch
    from spark_job.dead_letter.letter import Letter

pytestmark = pytest.mark.spark


def test_a_dead_letter_sink_that_is_down_fails_the_batch_and_nothing_is_acked(
    tracked_query: TrackedQuery,
) -> None:
    tracked_query.stream.put(10)
    rows: list[int] = []

    def down(_letters: list[Letter]) -> None:
        raise ConnectionError("the sink is down")

    def process(batch: TrackedBatch) -> None:
        rows.extend(numbers(batch.fail_where(batch.df, number() == 3, "three", retry=False)))

    said = r"dead letters of plan .* cannot be written .*the sink is down"
    with pytest.raises(StreamingQueryException, match=said):
        tracked_query.run(process, dead_letter=DeadLetter.to(down))
    assert tracked_query.stream.checkpoints() == {}
    assert re.search(said, tracked_query.stream.last_end() or "")
    tracked_query.run(process)
    assert sorted(rows) == sorted(2 * [n for n in range(10) if n != 3])
    assert [letter.data for letter in tracked_query.letters] == [b"record 3"]
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_letters_of_a_repeated_plan_replace_those_written_before(
    tracked_batches: TrackedBatches, tmp_path: Path
) -> None:
    """The batch failed after it had written a letter. In its repetition no record fails, and the
    directory is empty.
    """
    tracked_batches.stream.put(10)
    dead = tmp_path / "dead"
    sink = DeadLetter("parquet", path=str(dead))

    class DownAfterwards:
        def write(self, letters: DataFrame, *, plan_id: str) -> None:
            sink.write(letters, plan_id=plan_id)
            raise ConnectionError("down")

    with pytest.raises(ConnectionError, match="down"):
        tracked_batches.run(
            lambda batch: batch.fail(batch.df.where(number() == 5), "bad", retry=False),
            dead_letter=DownAfterwards(),
        )
    spark = tracked_batches.spark
    assert spark.read.parquet(str(dead)).count() == 1
    tracked_batches.run_quietly([], dead_letter=sink)
    assert spark.read.schema("messageId string").parquet(str(dead)).count() == 0
    assert tracked_batches.stream.checkpoints() == tracked_batches.stream.tips()


def test_exhausted_records_stop_the_query_or_are_dropped_and_logged_without_their_payload(
    tracked_batches: TrackedBatches, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the query stops, the first one is named and nothing is acked. It is told as the end of
    the run.
    """
    tracked_batches.stream.put(10)

    def process(batch: TrackedBatch) -> None:
        batch.fail(batch.df.where(number() < 2), "bad")

    named = r"record shardId-\d+:\d+:1 failed 1 times .*on_exhausted is stop"
    with pytest.raises(Exception, match=named):
        tracked_batches.run(process, on_exhausted="stop", retry_limit=0)
    assert tracked_batches.stream.checkpoints() == {}
    assert "on_exhausted is stop" in (tracked_batches.stream.last_end() or "")
    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        tracked_batches.run(process, on_exhausted="drop", retry_limit=0)
    (line,) = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert "2 records may not be tried again and are dropped" in line
    assert "record 0" not in line
    assert tracked_batches.unresolved() == {}


def test_an_error_of_the_function_is_told_as_the_end_of_the_run(
    tracked_batches: TrackedBatches,
) -> None:
    tracked_batches.stream.put(1)

    def process(_batch: TrackedBatch) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        tracked_batches.run(process)
    assert tracked_batches.stream.last_end() == (
        "the function given to tracked(...) raised OSError: [Errno 28] No space left on device"
    )
