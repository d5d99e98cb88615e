"""A batch that fails as a whole is run in parts: poison is found, and an outage is not poison."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from scheme.record import Record
    from spark_job import TrackedBatch
    from tests.support.outcomes.tracked import TrackedBatches, TrackedQuery

pytestmark = pytest.mark.spark


def test_a_poison_record_is_found_retried_and_dead_lettered(
    tracked_batches: TrackedBatches,
) -> None:
    """The record kills its Python worker. Each other record is in one part that succeeds."""
    tracked_batches.stream.put(40)
    done: list[int] = []
    tokens: list[str] = []

    def change(record: Record) -> dict[str, Any]:
        if record.data == b"record 23":
            os._exit(1)
        return {"n": int(record.data.split()[1])}

    def process(batch: TrackedBatch) -> None:
        with pytest.raises(RuntimeError, match=r"batch\.token"):
            _ = batch.id
        rows = batch.map_records(change, "n int").collect()
        tokens.append(batch.token)
        done.extend(row.n for row in rows)

    tracked_batches.run(process, bisect=True, retry_limit=0)
    assert sorted(done) == [n for n in range(40) if n != 23]
    assert len(set(tokens)) == len(tokens) > 1
    (letter,) = tracked_batches.letters
    assert (letter.data, letter.attempts) == (b"record 23", 1)
    assert "worker" in letter.reason
    assert tracked_batches.unresolved() == {}
    assert tracked_batches.stream.checkpoints() == tracked_batches.stream.tips()


def test_a_function_that_exits_fails_as_any_other(
    tracked_query: TrackedQuery, tracked_batches: TrackedBatches
) -> None:
    """With bisect its record is found. Without it the query ends with one sentence."""
    tracked_query.stream.put(12)

    def process(batch: TrackedBatch) -> None:
        if any(row.data == b"record 3" for row in batch.df.select("data").collect()):
            sys.exit(3)

    sentence = "the function given to tracked(...) raised SystemExit: 3"
    with pytest.raises(StreamingQueryException) as caught:
        tracked_query.run(process)
    assert failure_sentence(str(caught.value)) == sentence
    tracked_batches.run(process, bisect=True, retry_limit=0)
    assert [letter.reason for letter in tracked_batches.letters] == [sentence]


def test_failures_of_a_part_that_raises_are_discarded(
    tracked_batches: TrackedBatches,
) -> None:
    """Those of a part that succeeds count, as in a whole batch."""
    tracked_batches.stream.put(16)
    done: list[int] = []

    def process(batch: TrackedBatch) -> None:
        rows = {int(bytes(row.data).split()[1]): row for row in batch.df.collect()}
        batch.fail(
            [row for n, row in rows.items() if n == 3 or (9 in rows and n != 3)],
            "said",
            retry=False,
        )
        if 9 in rows:
            raise ValueError("nine")
        done.extend(n for n in rows if n != 3)

    tracked_batches.run(process, bisect=True, retry_limit=0)
    assert sorted(done) == [n for n in range(16) if n not in (3, 9)]
    assert {letter.data: letter.reason for letter in tracked_batches.letters} == {
        b"record 3": "said",
        b"record 9": "ValueError: nine",
    }


def test_a_sink_that_is_down_is_not_poison(tracked_batches: TrackedBatches) -> None:
    """Most eighths fail, so the batch fails with its own error, and nothing is acked."""
    tracked_batches.stream.put(20)
    calls: list[int] = []

    def process(batch: TrackedBatch) -> None:
        calls.append(batch.df.count())
        raise ConnectionError("the warehouse is down")

    with pytest.raises(Exception, match="the warehouse is down"):
        tracked_batches.run(process, bisect=True, retry_limit=0)
    assert calls == [20, 10, 10, 5, 5, 5, 5, 3, 2, 3, 2, 3, 2, 3, 2]
    assert tracked_batches.stream.checkpoints() == {}
    done: list[int] = []
    tracked_batches.run(lambda batch: done.append(batch.df.count()), bisect=True, retry_limit=0)
    assert done == [20], "a batch that does not fail is not divided"
    assert tracked_batches.letters == []
