"""Exhausted records on a real Spark: they are dead-lettered or dropped, or they stop the query."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from spark_job import DeadLetter
from tests.support.outcomes.tracked import TrackedQuery, number, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from spark_job import TrackedBatch

pytestmark = pytest.mark.spark


def test_a_dead_letter_sink_that_is_down_fails_the_batch_and_nothing_is_acked(
    tracked_query: TrackedQuery,
) -> None:
    tracked_query.stream.put(10)
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

    with pytest.raises(
        Exception, match=r"dead letters of plan .* cannot be written .*the sink is down"
    ):
        tracked_query.run(process, dead_letter=DeadLetter.to(sink))
    assert tracked_query.stream.checkpoints() == {}
    end = tracked_query.stream.last_end()
    assert end is not None
    assert "dead letters of plan" in end
    assert "the sink is down" in end
    down.clear()
    tracked_query.run(process, dead_letter=DeadLetter.to(sink))
    assert sorted(rows) == sorted(2 * [n for n in range(10) if n != 3])
    assert len(letters) == 1
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_an_error_of_the_function_is_told_as_the_end_of_the_run(
    tracked_query: TrackedQuery,
) -> None:
    tracked_query.stream.put(10)

    def process(_batch: TrackedBatch) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(Exception, match="No space left on device"):
        tracked_query.run(process)
    assert tracked_query.stream.last_end() == (
        "the function given to tracked(...) raised OSError: [Errno 28] No space left on device"
    )


def test_dropped_records_are_counted_and_logged_without_their_payload(
    tracked_query: TrackedQuery, caplog: pytest.LogCaptureFixture
) -> None:
    tracked_query.stream.put(10)
    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        tracked_query.run(
            lambda batch: batch.fail(batch.df.where(number() < 2), "bad", retry=False),
            on_exhausted="drop",
        )
    (line,) = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert "2 records may not be tried again and are dropped" in line
    assert "record 0" not in line
    assert tracked_query.unresolved() == {}


def test_a_query_with_on_exhausted_stop_names_the_record_and_acks_nothing(
    tracked_query: TrackedQuery,
) -> None:
    tracked_query.stream.put(10)
    with pytest.raises(
        Exception, match=r"record shardId-\d+:\d+:1 failed 1 times .*on_exhausted is stop"
    ):
        tracked_query.run(
            lambda batch: batch.fail(batch.df.where(number() == 5), "bad"),
            on_exhausted="stop",
            retry_limit=0,
        )
    assert tracked_query.stream.checkpoints() == {}


def test_letters_of_a_repeated_plan_replace_those_written_before(
    tracked_query: TrackedQuery, tmp_path: Path
) -> None:
    """The batch failed after it had written a letter. In its repetition no record fails, and the
    directory is empty.
    """
    tracked_query.stream.put(10)
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
        tracked_query.run(process, dead_letter=DownAfterwards())
    assert tracked_query.spark.read.parquet(str(dead)).count() == 1
    tracked_query.run(process, dead_letter=sink)
    assert tracked_query.spark.read.schema("messageId string").parquet(str(dead)).count() == 0
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_a_lowered_limit_dead_letters_queued_records_without_a_call(
    tracked_query: TrackedQuery,
) -> None:
    tracked_query.stream.put(10)
    seen: list[int] = []
    never: dict[str, Any] = {
        "retry_first_delay": "1h",
        "retry_max_delay": "1h",
        "source": {"available_now_retry_wait": "0s"},
    }
    tracked_query.run(
        lambda batch: batch.fail(batch.df.where(number() == 5), "first try"), retry_limit=3, **never
    )
    assert sum(tracked_query.unresolved().values()) == 1
    tracked_query.stream.put(1)
    # The planner learns the new policy with its first batch.
    tracked_query.run_quietly(seen, retry_limit=0)
    assert 5 not in seen
    assert [(letter.data, letter.attempts, letter.reason) for letter in tracked_query.letters] == [
        (b"record 5", 1, "first try")
    ]
    assert tracked_query.unresolved() == {}
