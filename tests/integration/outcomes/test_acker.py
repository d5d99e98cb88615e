"""The acker on Spark fails exactly the records of which an operator lost or doubled a row."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from scheme import JsonScheme
from spark_job import acker
from state.report import OnFailure
from tests.support.outcomes.acker import AckedBatch, Sink, record_id, run_batch, source_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TEXTS = ["a b", "b c d", "e", "f f", "g"]
OPERATORS: dict[str, tuple[Callable[[DataFrame], DataFrame], set[int]]] = {
    "a where": (lambda df: df.where("text != 'e'"), {2}),
    "dropna": (lambda df: df.withColumn("n", F.expr("if(text = 'g', NULL, 1)")).dropna(), {4}),
    "an inner join that finds nothing": (
        lambda df: df.join(table(df, "'e', 'g'"), "text"),
        {0, 1, 3},
    ),
    "a join with a key that is there twice": (
        lambda df: df.join(table(df, "'e', 'e', 'g'"), "text", "left"),
        {2},
    ),
    "a union with itself": (lambda df: df.union(df), {0, 1, 2, 3, 4}),
    "a row that is tripled": (
        lambda df: df.union(df.where("text = 'e'")).union(df.where("text = 'e'")),
        {2},
    ),
    "dropDuplicates": (
        lambda df: df.withColumn("size", F.length("text")).dropDuplicates(["size"]),
        {3, 4},
    ),
    "a limit": (lambda df: df.orderBy("messageId").limit(2), {2, 3, 4}),
    "one lost and another doubled": (
        lambda df: df.where("text != 'e'").union(df.where("text = 'g'")),
        {2, 4},
    ),
    "everything lost": (lambda df: df.where("false"), {0, 1, 2, 3, 4}),
    "exceptAll": (lambda df: df.exceptAll(df.where("text = 'e'")), {2}),
}


def table(df: DataFrame, keys: str) -> DataFrame:
    return df.sparkSession.sql(f"SELECT explode(array({keys})) AS text")


def texts(batch: AckedBatch) -> DataFrame:
    return acker.anchor(batch).select(
        "messageId", F.col("data").cast("string").alias("text"), acker.ANCHOR
    )


def words(batch: AckedBatch) -> DataFrame:
    return acker.split(texts(batch), F.split("text", " "), "word")


@pytest.mark.parametrize("name", OPERATORS)
def test_records_whose_rows_an_operator_loses_or_doubles_fail(
    spark: SparkSession, name: str
) -> None:
    """Spark's operators do not know the acker. Exactly the records whose rows they lost or doubled
    fail, and are not written.
    """
    operator, touched = OPERATORS[name]
    sink = Sink()
    batch = run_batch(
        source_frame(spark, TEXTS), lambda batch: acker.settle((operator(texts(batch)), sink))
    )
    assert batch.failed_numbers == touched
    assert sink.values("text") == sorted(text for n, text in enumerate(TEXTS) if n not in touched)
    assert acker.ANCHOR not in {column for row in sink.rows for column in row.asDict()}


def test_the_reason_says_whether_rows_were_lost_or_doubled(spark: SparkSession) -> None:
    """The reason is shown in the dead letter."""

    def process(batch: AckedBatch) -> None:
        rows = words(batch)
        acker.settle((rows.where("word != 'b'").union(rows.where("word = 'f'")), Sink()))

    batch = run_batch(source_frame(spark, TEXTS), process)
    assert batch.failed_numbers == {0, 1, 3}
    assert "missing" in batch.reason(0)
    assert "missing" in batch.reason(1)
    assert "more than once" in batch.reason(3)


def test_equal_rows_of_different_records_are_not_doubles(spark: SparkSession) -> None:
    """Their anchors differ, so `distinct` loses none of them. It removes a real double."""
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        rows = texts(batch).select("text", acker.ANCHOR)
        acker.settle((rows.union(rows).distinct(), sink))

    assert run_batch(source_frame(spark, ["a", "a", "b"]), process).failed_numbers == set()
    assert sink.values("text") == ["a", "a", "b"]


def test_a_word_count_fails_no_line(spark: SparkSession) -> None:
    """With split and merge. Lines without a word, NULL or empty, are dropped on purpose."""
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        lines = texts(batch).withColumn(
            "words", F.expr("if(text = '', NULL, filter(split(text, ' '), w -> w != '-'))")
        )
        counts = acker.merge(acker.split(lines, "words", "word"), "word", F.count("*").alias("n"))
        acker.settle((counts, sink))

    assert (
        run_batch(source_frame(spark, ["a b a", "", "-", "b", "c"]), process).failed_numbers
        == set()
    )
    assert {(row["word"], row["n"]) for row in sink.rows} == {("a", 2), ("b", 2), ("c", 1)}


def test_a_left_join_with_unique_keys_loses_nothing(spark: SparkSession) -> None:
    """The README's enrichment: malformed records are rejected, rows of unknown customers are
    dropped on purpose, and the others are written.
    """
    sink = Sink()
    customers = spark.createDataFrame([(1, "Ada"), (2, "Bob")], "customer BIGINT, name STRING")

    def process(batch: AckedBatch) -> None:
        orders = acker.anchor(batch.parsed(JsonScheme("id BIGINT, customer BIGINT")))
        flat = orders.select("parsed.*", acker.ANCHOR)
        known = acker.filter(flat.join(customers, "customer", "left"), "name IS NOT NULL")
        acker.settle((known, sink))

    bodies = [
        '{"id": 1, "customer": 1}',
        '{"id": 2, "customer": 9}',
        "no json",
        '{"id": 4, "customer": 2}',
    ]
    batch = run_batch(source_frame(spark, bodies), process)
    assert batch.failed_numbers == {2}
    assert "missing" not in batch.reason(2)
    assert batch.fails == 0, "the acker had nothing to add"
    assert {(row["id"], row["name"]) for row in sink.rows} == {(1, "Ada"), (4, "Bob")}


def test_rows_are_both_merged_and_written_as_they_are(spark: SparkSession) -> None:
    """Two branches of one frame: one is merged, the other is not."""
    orders, archive = Sink(), Sink()

    def process(batch: AckedBatch) -> None:
        parts = texts(batch).withColumn("order", F.substring("text", 1, 1))
        to_merge, to_keep = acker.branch(parts, 2)
        merged = acker.merge(to_merge, "order", F.sort_array(F.collect_list("text")).alias("parts"))
        acker.settle((merged, orders), (to_keep, archive))

    assert run_batch(source_frame(spark, ["x1", "x2", "y1", "x3"]), process).failed_numbers == set()
    assert {(row["order"], tuple(row["parts"])) for row in orders.rows} == {
        ("x", ("x1", "x2", "x3")),
        ("y", ("y1",)),
    }
    assert archive.values("text") == ["x1", "x2", "x3", "y1"]


def test_rows_that_are_dropped_on_purpose_or_unanchored_fail_no_record(spark: SparkSession) -> None:
    """Filter (false and NULL), nested split, merge of merges, and unanchored, in one function."""
    sink, loose = Sink(), Sink()

    def process(batch: AckedBatch) -> None:
        to_count, to_see = acker.branch(texts(batch), 2)
        parts = acker.split(to_count, F.split("text", ","), "part")
        letters = acker.split(parts, F.split("part", " "), "letter")
        known = acker.filter(letters, F.when(F.col("letter") != "n", F.col("letter") != "x"))
        pairs = acker.merge(known, ["messageId", "letter"], F.count("*").alias("n"))
        counts = acker.merge(pairs, [F.col("letter")], F.sum("n").alias("n"))
        seen = acker.unanchored(to_see)
        acker.settle(
            (acker.filter(counts, "n > 1"), sink), (seen.union(seen).where("text != 'x'"), loose)
        )

    assert (
        run_batch(source_frame(spark, ["a b,a", "x", "n", "b c,x n,d"]), process).failed_numbers
        == set()
    )
    assert {(row["letter"], row["n"]) for row in sink.rows} == {("a", 2), ("b", 2)}
    assert loose.values("text") == ["a b,a", "a b,a", "b c,x n,d", "b c,x n,d", "n", "n"]


def test_a_lost_grandchild_fails_its_record_only(spark: SparkSession) -> None:
    """A row lost after the second of two splits."""
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        letters = acker.split(
            acker.split(texts(batch), F.split("text", ","), "part"), F.split("part", " "), "letter"
        )
        acker.settle((letters.where("letter != 'c'"), sink))

    batch = run_batch(source_frame(spark, ["a b,c d", "e f,g", "h"]), process)
    assert batch.failed_numbers == {0}
    assert sink.values("letter") == ["e", "f", "g", "h"]


def test_a_forgotten_branch_fails_every_record(spark: SparkSession) -> None:
    """A frame counts as a sink only if it was given to settle."""
    sink = Sink()
    batch = run_batch(
        source_frame(spark, TEXTS),
        lambda batch: acker.settle((acker.branch(texts(batch), 2)[0], sink)),
    )
    assert batch.failed_numbers == {0, 1, 2, 3, 4}
    assert (sink.times, sink.rows) == (1, [])


def test_a_frame_given_to_two_sinks_without_branch_is_doubled(spark: SparkSession) -> None:
    """One row at two sinks counts as doubled, unless `branch` made the frames."""

    def process(batch: AckedBatch) -> None:
        rows = texts(batch)
        acker.settle((rows, Sink()), (rows, Sink()))

    batch = run_batch(source_frame(spark, TEXTS), process)
    assert batch.failed_numbers == {0, 1, 2, 3, 4}
    assert "more than once" in batch.reason(0)


def test_records_that_share_a_merged_row_with_a_failed_record_fail_too(spark: SparkSession) -> None:
    """A merged row without one of its parts would be wrong. So all of its records fail, and then
    all records of their merged rows, until no record is added.
    """
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        counts = acker.merge(words(batch).where("word != 'lost'"), "word", F.count("*").alias("n"))
        acker.settle((counts, sink))

    batch = run_batch(source_frame(spark, ["lost a", "a b", "b c", "d e", "e", "f"]), process)
    assert batch.failed_numbers == {0, 1, 2}
    assert "missing" in batch.reason(0)
    assert "merged" in batch.reason(1)
    assert sink.values("word") == ["d", "e", "f"]


def test_a_merged_row_that_is_lost_fails_all_of_its_parts(spark: SparkSession) -> None:
    """Two levels of merging. A merged row that was dropped on purpose links no records."""
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        counts = acker.merge(words(batch), "word", F.count("*").alias("n"))
        wanted = acker.filter(counts, "word != 'drop'")
        sizes = acker.merge(wanted, F.length("word").alias("size"), F.count("*").alias("words"))
        acker.settle((sizes.where("size != 2"), sink))

    batch = run_batch(source_frame(spark, ["aa drop", "bb", "c drop", "ddd"]), process)
    assert batch.failed_numbers == {0, 1}
    assert "missing" in batch.reason(1)
    assert sink.values("size") == [1, 3]


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


def test_records_that_the_function_failed_itself_are_not_written(spark: SparkSession) -> None:
    """fail_where has removed their rows already. After fail, settle removes them, and fails the
    records that were merged with them.
    """
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        rows = batch.fail_where(texts(batch), "text = 'e'", "no e", retry=False)
        batch.fail([record_id(0)], "mine")
        acker.settle(
            (
                acker.merge(
                    acker.split(rows, F.split("text", " "), "word"), "word", F.count("*").alias("n")
                ),
                sink,
            )
        )

    batch = run_batch(source_frame(spark, TEXTS), process)
    assert batch.failed_numbers == {0, 1, 2}
    assert (batch.reason(0), batch.reason(2)) == ("mine", "no e")
    assert "merged" in batch.reason(1)
    assert sink.values("word") == ["f", "g"]


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


def test_each_anchor_of_a_batch_is_checked(spark: SparkSession) -> None:
    """A function that calls anchor twice, each time for all records."""

    def process(batch: AckedBatch) -> None:
        acker.settle((texts(batch), Sink()), (texts(batch).where("text != 'g'"), Sink()))

    assert run_batch(source_frame(spark, TEXTS), process).failed_numbers == {4}


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


def test_an_empty_batch_settles(spark: SparkSession) -> None:
    """Its sinks are called with frames without rows."""
    sink = Sink()

    def process(batch: AckedBatch) -> None:
        acker.settle((acker.merge(words(batch), "word", F.count("*").alias("n")), sink))

    assert run_batch(source_frame(spark, []), process).failed_numbers == set()
    assert (sink.times, sink.rows) == (1, [])


def test_nothing_stays_persisted_after_a_batch(spark: SparkSession) -> None:
    """Also not if a sink fails. A frame that the user persisted stays persisted."""
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

    mine: list[DataFrame] = []

    def keeps_its_own(batch: AckedBatch) -> None:
        mine.append(texts(batch).persist())
        acker.settle((mine[0], Sink()))

    run_batch(source_frame(spark, TEXTS), keeps_its_own)
    assert mine[0].storageLevel.useMemory
    mine[0].unpersist()


def persisted(spark: SparkSession) -> int:
    # Python's SparkContext has no such call.
    return len(spark.sparkContext._jsc.getPersistentRDDs())
