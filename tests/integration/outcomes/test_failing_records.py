"""Failing records of a tracked batch on a real Spark: by id, row, frame and condition.

Also the order of the records that a failed record blocks.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from scheme import JsonScheme
from spark_job.tracking.outcomes import Outcome
from spark_job.tracking.tracked_batch import current_batch
from state.report import OnFailure
from tests.support.outcomes.acker import AckedBatch, record_id, run_batch, source_frame
from tests.support.outcomes.tracked import TrackedBatches, TrackedQuery, number, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_job import TrackedBatch

pytestmark = pytest.mark.spark


def test_the_issues_second_sample_runs_as_written(
    tracked_query: TrackedQuery, tmp_path: Path
) -> None:
    """Negative totals are rejected. So are totals that are NULL."""
    out = tmp_path / "out"
    tracked_query.put_texts(
        [
            '{"id": "a", "total": 1}',
            '{"id": "b", "total": -1}',
            '{"id": "c"}',
            "no json",
            '{"id": "d", "total": 4}',
        ]
    )

    def parsed(df: DataFrame) -> DataFrame:
        return df.withColumn(
            "o", F.from_json(F.col("data").cast("string"), "id string, total double")
        )

    def process(batch: TrackedBatch) -> None:
        rows = batch.fail_where(
            parsed(batch.df), "o.total < 0", reason="negative total", retry=False
        )
        rows.select("o.*").write.mode("append").parquet(str(out))

    tracked_query.run(process)
    assert {row.id: row.total for row in tracked_query.spark.read.parquet(str(out)).collect()} == {
        "a": 1.0,
        "d": 4.0,
    }
    null = "negative total (the condition is NULL)"
    reasons = {letter.data: letter.reason for letter in tracked_query.letters}
    assert reasons == {
        b'{"id": "b", "total": -1}': "negative total",
        b'{"id": "c"}': null,
        b"no json": null,
    }
    assert tracked_query.unresolved() == {}


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


def test_a_record_of_several_rows_fails_as_a_whole(spark: SparkSession) -> None:
    """So `fail_where` returns none of its rows, and all columns of the others."""
    frame = source_frame(spark, ["a", "b"])
    rest: list[tuple[bytes, int]] = []

    def process(batch: AckedBatch) -> None:
        parts = F.explode(F.array(*map(F.lit, range(3))))
        rows = batch.df.withColumn("part", parts)
        good = batch.fail_where(rows, "data = CAST('b' AS BINARY) AND part = 1", "half bad")
        assert good.columns == rows.columns
        rest.extend((bytes(row.data), row.part) for row in good.collect())

    assert run_batch(frame, process).failed_numbers == {1}
    assert rest == [(b"a", 0), (b"a", 1), (b"a", 2)]


def test_a_record_of_another_batch_cannot_be_failed(spark: SparkSession) -> None:
    """Then the call fails no record at all."""

    def process(batch: AckedBatch) -> None:
        with pytest.raises(ValueError, match="shardId-000000000009:5:1 is not of this batch"):
            batch.fail([record_id(0), "shardId-000000000009:5:1"], "mixed")

    assert run_batch(source_frame(spark, ["a"]), process).failed_numbers == set()


def test_the_batch_is_evaluated_once_for_any_number_of_actions(spark: SparkSession) -> None:
    draw = F.udf(lambda: secrets.randbelow(2**31), "int", useArrow=False).asNondeterministic()
    seen: list[int] = []

    def process(batch: AckedBatch) -> None:
        for _ in range(2):
            seen.extend(row.drawn for row in batch.df.collect())

    run_batch(source_frame(spark, ["a"]).withColumn("drawn", draw()), process)
    assert seen[0] == seen[1]


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
    with pytest.raises(RuntimeError, match="no tracked batch runs"):
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
