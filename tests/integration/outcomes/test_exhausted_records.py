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
    from kinesis_spout.dead_letter.letter import Letter
    from spark_job import TrackedBatch

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
