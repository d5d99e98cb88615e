"""The acker on Spark fails exactly the records of which an operator lost or doubled a row."""

from __future__ import annotations

import secrets
from functools import reduce
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import acker
from state.report import OnFailure
from tests.support.outcomes.acker import AckedBatch, Sink, record_id, run_batch, source_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXTS = ["a b", "b c d", "e", "f f", "g"]
LOST, DOUBLED = "missing", "more than once"
OPERATORS: dict[str, tuple[Callable[[DataFrame], DataFrame], dict[int, str]]] = {
    "a where": (lambda df: df.where("text != 'e'"), {2: LOST}),
    "dropna": (
        lambda df: df.withColumn("n", F.expr("if(text = 'g', NULL, 1)")).dropna(),
        {4: LOST},
    ),
    "an inner join that finds nothing": (
        lambda df: df.join(table(df, "'e', 'g'"), "text"),
        dict.fromkeys((0, 1, 3), LOST),
    ),
    "a join with a key that is there twice": (
        lambda df: df.join(table(df, "'e', 'e', 'g'"), "text", "left"),
        {2: DOUBLED},
    ),
    "a union with itself": (lambda df: df.union(df), dict.fromkeys(range(5), DOUBLED)),
    "a row that is tripled": (
        lambda df: df.union(df.where("text = 'e'")).union(df.where("text = 'e'")),
        {2: DOUBLED},
    ),
    "dropDuplicates": (
        lambda df: df.withColumn("size", F.length("text")).dropDuplicates(["size"]),
        dict.fromkeys((3, 4), LOST),
    ),
    "a limit": (lambda df: df.orderBy("messageId").limit(2), dict.fromkeys((2, 3, 4), LOST)),
    "one lost and another doubled": (
        lambda df: df.where("text != 'e'").union(df.where("text = 'g'")),
        {2: LOST, 4: DOUBLED},
    ),
    "everything lost": (lambda df: df.where("false"), dict.fromkeys(range(5), LOST)),
    "exceptAll": (lambda df: df.exceptAll(df.where("text = 'e'")), {2: LOST}),
}


def table(df: DataFrame, keys: str) -> DataFrame:
    return df.sparkSession.sql(f"SELECT explode(array({keys})) AS text")


def texts(batch: AckedBatch, *more: str) -> DataFrame:
    return acker.anchor(batch).select(
        "messageId", *more, F.col("data").cast("string").alias("text"), acker.ANCHOR
    )


def words(batch: AckedBatch) -> DataFrame:
    return acker.split(texts(batch), F.split("text", " "), "word")


@pytest.fixture(scope="module")
def operated(spark: SparkSession) -> tuple[AckedBatch, Sink]:
    """One batch, of which each operator gets records of its own: those with its name as key."""
    keys = [name for name in OPERATORS for _ in TEXTS]
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        rows = texts(batch, "partitionKey")
        parts = [
            operator(rows.where(F.col("partitionKey") == name))
            for name, (operator, _) in OPERATORS.items()
        ]
        columns = ["partitionKey", "text", acker.ANCHOR]
        acker.settle((reduce(DataFrame.union, [part.select(*columns) for part in parts]), sink))

    frame = source_frame(spark, TEXTS * len(OPERATORS), keys=keys)
    return run_batch(frame, process), sink


@pytest.mark.parametrize("name", OPERATORS)
def test_records_whose_rows_an_operator_loses_or_doubles_fail(
    operated: tuple[AckedBatch, Sink], name: str
) -> None:
    """Spark's operators do not know the acker. Exactly the records whose rows they lost or doubled
    fail, and are not written. The reason tells which.
    """
    batch, sink = operated
    touched = OPERATORS[name][1]
    first = list(OPERATORS).index(name) * len(TEXTS)
    failed = {
        number - first: batch.reason(number)
        for number in batch.failed_numbers
        if number in range(first, first + len(TEXTS))
    }
    assert failed.keys() == touched.keys()
    assert all(word in failed[number] for number, word in touched.items())
    written = [row.text for row in sink.rows if row.partitionKey == name]
    assert sorted(written) == sorted(text for n, text in enumerate(TEXTS) if n not in touched)
    assert acker.ANCHOR not in {column for row in sink.rows for column in row.asDict()}


def test_a_word_count_fails_no_line(spark: SparkSession) -> None:
    """With split, filter and merge. Lines without a word, NULL or empty, are dropped on purpose,
    and so are words of which the condition is NULL.
    """
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        lines = texts(batch).withColumn(
            "words", F.expr("if(text = '', NULL, filter(split(text, ' '), w -> w != '-'))")
        )
        known = F.when(F.col("word") != "n", F.col("word") != "x")
        words = acker.filter(acker.split(lines, "words", "word"), known)
        acker.settle((acker.merge(words, "word", F.count("*").alias("n")), sink))

    bodies = ["a b a", "", "-", "b", "c x n", "n"]
    assert run_batch(source_frame(spark, bodies), process).failed_numbers == set()
    assert {(row["word"], row["n"]) for row in sink.rows} == {("a", 2), ("b", 2), ("c", 1)}


def test_forgotten_branches_frames_at_two_sinks_and_second_anchors_are_checked(
    spark: SparkSession,
) -> None:
    """A frame counts as a sink only if it was given to settle. A row at two sinks is doubled,
    unless `branch` made the frames.
    """
    forgotten, rest = Sink(), Sink()

    def process(batch: AckedBatch) -> None:
        rows = texts(batch)
        branch, _ = acker.branch(rows.where("text = 'a b'"), 2)
        twice = rows.where("text = 'e'")
        others = rows.where("text NOT IN ('a b', 'e')")
        again = texts(batch).where("text != 'g'")
        acker.settle(
            (branch, forgotten), (twice, Sink()), (twice, Sink()), (others, rest), (again, Sink())
        )

    batch = run_batch(source_frame(spark, TEXTS), process)
    assert batch.failed_numbers == {0, 2, 4}
    assert LOST in batch.reason(0)
    assert DOUBLED in batch.reason(2)
    assert LOST in batch.reason(4)
    assert (forgotten.times, forgotten.rows) == (1, [])
    assert rest.values("text") == ["b c d", "f f"]


def test_records_that_share_a_merged_row_with_a_failed_record_fail_too(spark: SparkSession) -> None:
    """A merged row without one of its parts would be wrong. So all of its records fail, and then
    all records of their merged rows, until no record is added. Here the function failed records
    itself, and lost a row.
    """
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        rows = batch.fail_where(texts(batch), "text = 'e'", "no e", retry=False)
        batch.fail([record_id(0)], "mine")
        parts = acker.split(rows, F.split("text", " "), "word").where("word != 'lost'")
        acker.settle((acker.merge(parts, "word", F.count("*").alias("n")), sink))

    bodies = ["a b", "b c", "c d", "e", "lost f", "f g", "h", "h i"]
    batch = run_batch(source_frame(spark, bodies), process)
    assert batch.failed_numbers == {0, 1, 2, 3, 4, 5}
    assert (batch.reason(0), batch.reason(3)) == ("mine", "no e")
    assert LOST in batch.reason(4)
    assert all("merged" in batch.reason(number) for number in (1, 2, 5))
    assert [(row.word, row.n) for row in sorted(sink.rows)] == [("h", 2), ("i", 1)]


def test_a_record_that_was_lost_before_the_anchor_fails(spark: SparkSession) -> None:
    """Otherwise a record that never got an anchor would be acked."""
    sink = Sink()
    batch = run_batch(
        source_frame(spark, TEXTS),
        lambda batch: acker.settle(
            (acker.anchor(batch.df.where("messageId NOT LIKE '%1002%'")), sink)
        ),
    )
    assert batch.failed_numbers == {2}
    assert len(sink.rows) == 4


def test_records_that_must_wait_for_a_failed_one_are_not_written(spark: SparkSession) -> None:
    """Under block_key a later record of the key is delivered again, after the failed one. Written
    now, it would be written twice.
    """
    sink = Sink()
    batch = run_batch(
        source_frame(spark, TEXTS, keys=["k", "k", "j", "k", "j"]),
        lambda batch: acker.settle((texts(batch).where("text != 'b c d'"), sink)),
        on_failure=OnFailure.BLOCK_KEY,
    )
    assert batch.failed_numbers == {1, 3}
    assert sink.values("text") == ["a b", "e", "g"]


def test_rows_that_differ_each_time_are_evaluated_once(spark: SparkSession) -> None:
    """With a random function in a filter, a split or a group, the rows that stay and the rows that
    are dropped come from one evaluation.
    """
    sinks = [Sink(), Sink()]
    draw = F.udf(lambda: secrets.randbelow(4), "int", useArrow=False).asNondeterministic()

    def process(batch: AckedBatch) -> None:
        kept = acker.filter(texts(batch), draw() < 2)
        drawn = acker.split(kept, F.slice(F.split("text", ""), F.lit(1), draw()), "letter")
        first, second = acker.branch(drawn.withColumn("lot", draw()), 2)
        acker.settle(
            (acker.merge(first, "lot", F.count("*").alias("n")), sinks[0]), (second, sinks[1])
        )

    batch = run_batch(source_frame(spark, ["abcdefgh"] * 60), process)
    assert batch.failed_numbers == set()
    assert sum(sinks[0].values("n")) == len(sinks[1].rows) > 0


def test_nothing_stays_persisted_after_a_batch(spark: SparkSession) -> None:
    """Though a sink fails."""
    before = persisted(spark)

    def broken(frame: DataFrame) -> None:
        frame.count()
        raise OSError("disk full")

    def process(batch: AckedBatch) -> None:
        rows = acker.filter(texts(batch), F.rand() < 2).where("text != 'g'")
        acker.settle((rows, broken))

    with pytest.raises(OSError, match="disk full"):
        run_batch(source_frame(spark, TEXTS), process)
    assert persisted(spark) == before


def persisted(spark: SparkSession) -> int:
    # Python's SparkContext has no such call.
    return len(spark.sparkContext._jsc.getPersistentRDDs())
