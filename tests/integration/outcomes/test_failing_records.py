"""Failing records of tracked batches on a real Spark: by id, row, frame and condition, by errors of
a function, as poison of a batch that fails as a whole, and exhausted ones. Also the order of the
records that a failed record blocks.
"""

from __future__ import annotations

import contextlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.errors import ConfigError
from scheme import JsonScheme, PayloadError, PayloadScheme
from spark_job.tracking.outcomes import Outcome
from spark_job.tracking.tracked_batch import current_batch, output_schema
from state.report import OnFailure
from tests.support.outcomes.acker import AckedBatch, record_id, run_batch, source_frame
from tests.support.outcomes.tracked import TrackedBatches, number, numbers

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from scheme.record import Record
    from spark_job import TrackedBatch

pytestmark = pytest.mark.spark


def test_records_fail_by_id_row_and_frame_and_are_retried(
    tracked_batches: TrackedBatches,
) -> None:
    tracked_batches.stream.put(20)
    done: list[int] = []

    def process(batch: TrackedBatch) -> None:
        frame = batch.df.withColumn("n", number())
        first = frame.where("attempt = 1 and n < 6")
        rows = {row.n: row for row in first.collect()}
        if rows:
            batch.fail(rows[0].messageId, "an id")
            batch.fail([rows[1], rows[2].messageId], "a row and an id", after_s=0.1)
            batch.fail(first.where("n in (3, 4)"), "a frame")
            batch.fail(rows[5], "rejected", retry=False)
            batch.fail(rows[5], "and to be retried")
        done.extend(row.n for row in frame.collect() if row.messageId not in batch.failures)

    tracked_batches.run(process)
    assert sorted(done) == [0, 1, 2, 3, 4, *range(6, 20)]
    assert [(letter.data, letter.reason) for letter in tracked_batches.letters] == [
        (b"record 5", "rejected")
    ]
    assert tracked_batches.unresolved() == {}


def test_a_record_fails_as_a_whole_where_the_condition_holds_for_a_row_or_is_null(
    spark: SparkSession,
) -> None:
    """So `fail_where` returns none of its rows, and all columns of the others."""
    rest: list[tuple[int, int]] = []

    def process(batch: AckedBatch) -> None:
        rows = batch.df.withColumn("n", F.expr("try_cast(CAST(data AS STRING) AS INT)"))
        rows = rows.withColumn("part", F.explode(F.array(*map(F.lit, range(3)))))
        good = batch.fail_where(rows, "n < 0 AND part = 1", reason="negative total", retry=False)
        assert good.columns == rows.columns
        rest.extend((row.n, row.part) for row in good.collect())

    batch = run_batch(source_frame(spark, ["1", "-1", "no number", "4"]), process)
    assert {number: batch.reason(number) for number in batch.failed_numbers} == {
        1: "negative total",
        2: "negative total (the condition is NULL)",
    }
    assert {one.outcome for one in batch.failures.values()} == {Outcome.REJECT}
    assert rest == [(n, part) for n in (1, 4) for part in range(3)]


def test_records_of_their_batch_are_failed_before_its_end_or_it_is_an_error(
    spark: SparkSession,
) -> None:
    """As by a thread for which the function has not waited: the records have been acked. A call
    with a record of another batch fails no record at all.
    """

    def process(batch: AckedBatch) -> None:
        with pytest.raises(ValueError, match="shardId-000000000009:5:1 is not in this batch"):
            batch.fail([record_id(0), "shardId-000000000009:5:1"], "mixed")
        wrong: Any
        for wrong, kind in ((None, "a NoneType"), (5, "an int"), ([record_id(0), 5], "an int")):
            with pytest.raises(ValueError, match=f"batch.fail was called with {kind}; pass"):
                batch.fail(wrong, "wrong")

    batch = run_batch(source_frame(spark, ["a"]), process)
    assert batch.failed_numbers == set()
    for late in (
        lambda: batch.fail(record_id(0), "late"),
        lambda: batch.fail_where(batch.df, "true", "late"),
        lambda: batch.map_records(lambda _: None, "id string"),
    ):
        with pytest.raises(RuntimeError, match="after the end of their batch"):
            late()
    batch.frame.close()


@pytest.mark.parametrize(
    ("on_failure", "waiting"), [(OnFailure.BLOCK_KEY, {4, 5}), (OnFailure.BLOCK_SHARD, {3, 4, 5})]
)
def test_records_that_must_wait_for_a_failed_one_are_not_in_the_rest(
    spark: SparkSession, on_failure: OnFailure, waiting: set[int]
) -> None:
    """They are failed with it, to be delivered again after it."""
    frame = source_frame(spark, ["0", "1", "2", "3", "4", "5"], keys=list("jkkjkk"))
    rest: list[int] = []

    def process(batch: AckedBatch) -> None:
        good = batch.fail_where(batch.df, number() == 2, "not now")
        rest.extend(numbers(good))

    batch = run_batch(frame, process, on_failure=on_failure)
    assert batch.failed_numbers == {2} | waiting
    assert set(rest) == {0, 1, 3, 4, 5} - waiting


def test_a_token_is_the_same_for_the_same_records_in_any_delivery(spark: SparkSession) -> None:
    frame = source_frame(spark, ["a", "b", "c"])
    again = frame.orderBy(F.desc("data")).withColumn("attempt", F.lit(2))
    tokens: list[str] = []

    def process(batch: AckedBatch) -> None:
        assert current_batch() is batch
        tokens.append(batch.token)

    for each in (frame, again, frame.where("data = CAST('a' AS BINARY)")):
        run_batch(each, process)
    first, second, another = tokens
    assert first == second != another
    assert len(first) == 32
    with pytest.raises(RuntimeError, match="no batch of a tracked query runs"):
        current_batch()


def test_records_that_a_scheme_finds_malformed_are_rejected(spark: SparkSession) -> None:
    """By `batch.parsed`, and by `fail_where` on a frame with a column of the scheme."""
    frame = source_frame(spark, ['{"id": "a"}', "no json", '{"id": 5}'])
    scheme = JsonScheme("id string")
    ids: list[str] = []

    def parses(batch: AckedBatch) -> None:
        ids.extend(row.id for row in batch.parsed(scheme).select("parsed.id").collect())

    def has_column(batch: AckedBatch) -> None:
        column = batch.df.withColumn("o", scheme.column(batch.df["data"]))
        good = batch.fail_where(column, "o.value.id = 'z'", "z").select("o.value.id")
        ids.extend(row.id for row in good.collect())

    for process in (parses, has_column):
        batch = run_batch(frame, process)
        assert {batch.failures[record_id(n)].outcome for n in (1, 2)} == {Outcome.REJECT}
        assert batch.failed_numbers == {1, 2}
    assert ids == ["a", "a"]


def test_a_scheme_in_python_decodes_a_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    """What was found malformed and what is processed are of one decoding, however many actions
    follow. It is let go when the function returns.
    """
    frame = source_frame(spark, ["a", "bad", "", "b,c"])
    calls = tmp_path / "calls"
    found: list[str] = []
    persisted = spark.sparkContext._jsc.getPersistentRDDs
    kept_by_others = set(persisted())

    def process(batch: AckedBatch) -> None:
        rows = batch.parsed(Counted(str(calls)))
        found.extend(row.name for row in rows.select("parsed.name").collect())
        assert rows.count() == 3

    batch = run_batch(frame, process)
    assert batch.reason(1) == "bad"
    assert batch.failed_numbers == {1}
    assert sorted(found) == ["a", "b", "c"]
    assert calls.read_text() == "." * 4
    assert set(persisted()) <= kept_by_others


@dataclass(frozen=True)
class Counted(PayloadScheme):
    """Names with commas between them. It writes a point to a file for each payload."""

    path: str

    schema_ddl = "name STRING"
    many = True

    def read(self, payload: bytes) -> list[tuple[str]]:
        with Path(self.path).open("a") as calls:
            calls.write(".")
        if payload == b"bad":
            raise PayloadError("bad")
        return [(name,) for name in payload.decode().split(",") if name]


def test_queries_that_run_at_a_time_have_batches_of_their_own(spark: SparkSession) -> None:
    together = Barrier(2)

    def process(batch: AckedBatch) -> bool:
        together.wait(60)
        return current_batch() is batch

    found: list[bool] = []
    frame = source_frame(spark, ["a"])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: run_batch(frame, lambda b: found.append(process(b))), range(2)))
    assert found == [True, True]


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

    with pytest.raises(Exception, match="did not fail when Spark first computed the batch"):
        tracked_batches.run(process)
    assert tracked_batches.stream.checkpoints() == {}
    assert rows == []


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("n nosuch", r"is 'n nosuch', which is not a valid DDL schema \(Unsupported data type"),
        ("n int, größe int", "which is not a valid DDL schema .*give names with types"),
        ("int", "is 'int'; give names"),
        ("n int, code varchar(5)", r"a column code of type varchar\(5\).*use another type"),
        ("place geometry(4326)", r"a column place of type geometry\(4326\), .*use another type"),
        ("places array<geography(4326)>", r"of type array<geography\(4326\)>, .*use another"),
        ({"n": "int"}, "is of type dict; give names"),
    ],
)
@pytest.mark.usefixtures("spark")  # it reads the text
def test_a_schema_that_cannot_be_used_is_one_sentence(schema: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"the schema passed to batch.map_records .*{said}"):
        output_schema(schema)


async def later(_: Record) -> dict[str, int]:
    return {"n": 1}


@pytest.mark.parametrize("function", [None, "enrich", later])
def test_what_cannot_process_a_record_fails_no_record(
    tracked_batches: TrackedBatches, function: Any
) -> None:
    """Each record would fail, and be dead-lettered in the end."""
    tracked_batches.stream.put(5)
    with pytest.raises(ConfigError, match=r"the function passed to batch\.map_records is"):
        tracked_batches.run(lambda batch: batch.map_records(function, "n int"))
    assert tracked_batches.letters == []
    assert tracked_batches.stream.checkpoints() == {}


@pytest.mark.parametrize(
    ("swallowed", "error"),
    [
        (contextlib.nullcontext(), "Python worker exited unexpectedly"),
        (contextlib.suppress(Exception), "do not catch errors of batch.map_records"),
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
    assert "worker" in str(letter.reason)
    assert tracked_batches.unresolved() == {}
    assert tracked_batches.stream.checkpoints() == tracked_batches.stream.tips()


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
    assert "2 records have no retry left, so they are dropped" in line
    assert "record 0" not in line
    assert tracked_batches.unresolved() == {}
