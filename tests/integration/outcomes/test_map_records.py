"""`batch.map_records` on a real Spark: output and failures come from one evaluation."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from spark_job import DeadLetter, Reject, Retry
from tests.support.spark.source import APPLICATION

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from scheme.record import Record
    from spark_job import TrackedBatch
    from tests.support.outcomes.tracked import TrackedBatches, TrackedQuery

pytestmark = pytest.mark.spark


def test_whatever_a_function_raises_is_the_outcome_of_its_record(
    tracked_batches: TrackedBatches,
) -> None:
    """Also a library that exits, and a reason that UTF-8 cannot encode. The query goes on, and each
    record has its letter.
    """
    tracked_batches.stream.put(12)
    seen: list[str] = []

    def enrich(record: Record) -> object:
        match record.data:
            case b"record 1":
                sys.exit(1)
            case b"record 2":
                raise Reject("half \ud83d")
            case b"record 6":
                return {"text": "half \ud83d"}
        return {"text": record.data.decode()}

    def process(batch: TrackedBatch) -> None:
        rows = batch.map_records(enrich, "text string")
        for row in batch.df.where("CAST(data AS STRING) = 'record 7'").collect():
            batch.fail(row.messageId, "half \ud83d")
        seen.extend(row.text for row in rows.collect())

    tracked_batches.run(process, retry_limit=0)
    assert {letter.data: letter.reason for letter in tracked_batches.letters} == {
        b"record 1": "SystemExit: 1",
        b"record 2": "half \\ud83d",
        b"record 6": "column text of the function's output is a str that does not fit string",
        b"record 7": "half \\ud83d",
    }
    assert set(seen) >= {f"record {n}" for n in (0, 3, 4, 5, 8, 9, 10, 11)}
    assert tracked_batches.unresolved() == {}


def test_the_issues_first_sample_runs_as_written(
    tracked_query: TrackedQuery, tmp_path: Path
) -> None:
    """One record is rejected at once, one is retried until it succeeds, one fails with an error.
    All others are written as parquet.
    """
    out, dead, ready = tmp_path / "out", tmp_path / "dead", tmp_path / "ready"
    tracked_query.put_texts(
        [json.dumps({"id": f"o{n}", "total": n - 1}) for n in range(50)] + ["no json"]
    )

    def enrich(record: Record) -> dict[str, Any]:
        order = json.loads(record.data)
        if order["total"] < 0:
            raise Reject("negative total")
        if order["id"] == "o7" and not ready.exists():
            ready.touch()
            raise Retry("no rates yet", after_s=0.2)
        return {"id": order["id"], "total": order["total"]}

    def process(batch: TrackedBatch) -> None:
        batch.map_records(enrich, "id string, total double").write.mode("append").parquet(str(out))

    tracked_query.run(process, retry_limit=1, dead_letter=DeadLetter("parquet", path=str(dead)))
    written = tracked_query.spark.read.parquet(str(out)).collect()
    assert sorted((row.id, row.total) for row in written) == sorted(
        (f"o{n}", n - 1.0) for n in range(1, 50)
    )
    letters = {
        bytes(row.data): row for row in tracked_query.spark.read.parquet(str(dead)).collect()
    }
    rejected, broken = letters[b'{"id": "o0", "total": -1}'], letters[b"no json"]
    assert (rejected.attempts, rejected.reason, rejected.application) == (
        1,
        "negative total",
        APPLICATION,
    )
    assert (broken.attempts, broken.reason.split(":")[0]) == (2, "JSONDecodeError")
    assert rejected.messageId == f"{rejected.shardId}:{rejected.sequenceNumber}:1"
    assert broken.firstFailure < broken.lastFailure
    assert len(letters) == 2
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_persisted_rows_that_are_lost_and_differ_afterwards_fail_the_batch(
    tracked_batches: TrackedBatches, tmp_path: Path
) -> None:
    """Record 3 fails in the second evaluation only: it has no row, and is not among the failures.
    So nothing may be acked.

    The function's own condition on the rows must not hide it.
    """
    tracked_batches.stream.put(20)
    second = tmp_path / "second"
    rows: list[int] = []

    def change(record: Record) -> dict[str, Any]:
        number = int(record.data.split()[1])
        if number == (3 if second.exists() else 5):
            raise ValueError("not now")
        return {"n": number}

    def process(batch: TrackedBatch) -> None:
        output = batch.map_records(change, "n int")
        second.touch()
        tracked_batches.spark.catalog.clearCache()
        rows.extend(row.n for row in output.where("n >= 0").collect())

    with pytest.raises(Exception, match="had not failed when its batch was first evaluated"):
        tracked_batches.run(process)
    assert tracked_batches.stream.checkpoints() == {}
    assert rows == []


def test_persisted_rows_that_are_lost_and_are_the_same_afterwards_do_no_harm(
    tracked_batches: TrackedBatches,
) -> None:
    """Of a function that returns several rows for a record, or none."""
    tracked_batches.stream.put(20)
    rows: list[int] = []

    def change(record: Record) -> object:
        if record.data == b"record 5":
            raise Reject("never")
        number = int(record.data.split()[1])
        return None if number == 6 else ({"n": number} for _ in range(2))

    def process(batch: TrackedBatch) -> None:
        output = batch.map_records(change, "n int")
        tracked_batches.spark.catalog.clearCache()
        rows.extend(row.n for row in output.collect())

    tracked_batches.run(process)
    assert sorted(rows) == sorted(2 * [n for n in range(20) if n not in (5, 6)])
    assert [letter.data for letter in tracked_batches.letters] == [b"record 5"]


@pytest.mark.parametrize(
    ("swallowed", "error"),
    [
        (contextlib.nullcontext(), "Python worker exited unexpectedly"),
        (contextlib.suppress(Exception), "let the error through"),
    ],
)
def test_a_function_that_ends_its_worker_fails_the_batch(
    tracked_batches: TrackedBatches, swallowed: AbstractContextManager[None], error: str
) -> None:
    """Also if its error is swallowed. Otherwise all of its records would count as processed. By
    Spark's words a batch counts as one without an answer.
    """
    tracked_batches.stream.put(5)

    def process(batch: TrackedBatch) -> None:
        with swallowed:
            batch.map_records(lambda _: os._exit(1), "n int")

    with pytest.raises(Exception, match=error):
        tracked_batches.run(process)
    assert tracked_batches.stream.checkpoints() == {}
