"""The acker on Spark fails exactly the records of which an operator lost or doubled a row, and
refuses wrong use.
"""

from __future__ import annotations

import secrets
from functools import reduce
from itertools import product
from random import Random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import acker
from spark_job.acker import AckerError
from spark_job.acker.faults import component_labels
from spark_job.acker.shares import (
    ANCHOR,
    ANCHOR_DDL,
    Total,
    anchors,
    group_anchor,
    totals,
)
from spark_job.tracking.spark_sql import map_in_arrow
from state.report import OnFailure
from tests.support.outcomes.acker import AckedBatch, Sink, record_id, run_batch, source_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TEXTS = ["a b", "b c d", "e", "f f", "g"]
LOST, DOUBLED = "missing", "more than once"
OPERATORS: dict[str, tuple[Callable[[DataFrame], DataFrame], dict[int, str]]] = {
    "a where": (lambda df: df.where("text != 'e'"), {2: LOST}),
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
    "one lost and another doubled": (
        lambda df: df.where("text != 'e'").union(df.where("text = 'g'")),
        {2: LOST, 4: DOUBLED},
    ),
    "everything lost": (lambda df: df.where("false"), dict.fromkeys(range(5), LOST)),
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
    # Not ==: Spark drops the cut plans of earlier batches when the JVM collects garbage.
    assert persisted(spark) <= before


def persisted(spark: SparkSession) -> set[int]:
    # Python's SparkContext has no such call.
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def nothing(frame: DataFrame) -> None:
    """A writer that writes nothing."""


def settled_by(write: Callable[[DataFrame], object]) -> Callable[[AckedBatch], None]:
    return lambda batch: acker.settle((acker.anchor(batch), write))


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return source_frame(spark, ["a", "b", "c"])


def test_the_acker_works_in_a_tracked_batch_only(frame: DataFrame) -> None:
    """Outside of a batch there is nothing to fail records in."""
    with pytest.raises(RuntimeError, match="no batch of a tracked query runs"):
        acker.anchor(frame)
    with pytest.raises(RuntimeError, match="no batch of a tracked query runs"):
        acker.settle((frame, nothing))


REFUSED: dict[str, tuple[Callable[[AckedBatch], object], str]] = {
    "no anchor": (lambda b: acker.filter(b.df, "true"), "before acker.anchor"),
    "settle alone": (lambda b: acker.settle(), "before acker.anchor"),
    "no message id": (lambda b: acker.anchor(b.df.select("data")), "no column messageId"),
    "anchored twice": (lambda b: acker.anchor(acker.anchor(b)), "already"),
    "not settled": (acker.anchor, r"but not acker\.settle"),
    "lost at a sink": (
        lambda b: acker.settle((acker.anchor(b).select("data"), nothing)),
        "the frame of sink 1 has no column",
    ),
    "lost before a filter": (
        lambda b: acker.filter(acker.anchor(b).select("data"), "true"),
        "acker.filter has no column",
    ),
    "lost before a merge": (
        lambda b: acker.merge(acker.anchor(b).select("data"), "data"),
        "acker.merge has no column",
    ),
    "joined": (
        lambda b: acker.settle((acker.anchor(b).join(acker.anchor(b), "messageId"), nothing)),
        r"2 columns _anchor, because two anchored frames were joined",
    ),
    "no array": (
        lambda b: acker.split(acker.anchor(b), "messageId", "x"),
        "has type string, not an array type",
    ),
    "no branches": (lambda b: acker.branch(acker.anchor(b), 0), "0 branches"),
    "a random key": (
        lambda b: acker.merge(acker.anchor(b), F.rand()),
        "has a different value each time Spark computes it",
    ),
    "no pair": (
        lambda b: acker.settle(acker.anchor(b)),  # type: ignore[arg-type]  # the mistake
        "argument 1 of acker.settle is not a pair",
    ),
    "no writer": (
        lambda b: acker.settle((acker.anchor(b), nothing), (b.df, "path")),  # type: ignore[arg-type]  # the mistake
        "argument 2 of acker.settle is not a pair",
    ),
    "settled twice": (
        lambda b: list(
            map(acker.settle, [(frame, Sink()) for frame in acker.branch(acker.anchor(b), 2)])
        ),
        r"acker.settle\(...\) was called after acker.settle",
    ),
    "anchored after settle": (
        lambda b: [settled_by(Sink())(b), acker.anchor(b)],
        "was called after acker.settle",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_use_fails_the_batch_and_says_what_to_do(frame: DataFrame, name: str) -> None:
    process, message = REFUSED[name]
    with pytest.raises(AckerError, match=message):
        run_batch(frame, process)


def test_an_error_of_the_function_is_not_hidden_by_a_missing_settle(frame: DataFrame) -> None:
    """The check at the end runs only if the function has returned."""

    def process(batch: AckedBatch) -> None:
        acker.anchor(batch)
        raise KeyError("rates")

    with pytest.raises(KeyError, match="rates"):
        run_batch(frame, process)


WRITERS: dict[str, tuple[Callable[[DataFrame], object], str]] = {
    "nothing": (nothing, "the function of sink 1 ran no action"),
    "foreachPartition": (
        lambda f: f.foreachPartition(lambda rows: None),
        "ran no action on its frame",
    ),
    "a part": (lambda f: f.limit(1).collect(), "sink 1 read 1 rows, .* the 3 rows"),
    "a look first": (lambda f: (f.take(1), f.collect()), "make the write the first action"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_sink_that_does_not_write_the_checked_rows_fails_the_batch(
    frame: DataFrame, name: str
) -> None:
    """The shares are added up again during the write. A writer that runs no action is detected at
    once, without waiting for one.
    """
    write, message = WRITERS[name]
    with pytest.raises(AckerError, match=message):
        run_batch(frame.repartition(1), settled_by(write))


def test_a_sink_without_rows_may_write_nothing(frame: DataFrame) -> None:
    run_batch(
        frame, lambda batch: acker.settle((acker.filter(acker.anchor(batch), "false"), nothing))
    )


def test_rows_that_differ_between_check_and_write_fail_the_batch(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    """The persisted rows are lost in between, as when an executor dies, and the second evaluation
    gives other rows.
    """
    second_time = tmp_path / "second time"

    def fewer_later(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(1) if second_time.exists() else batch

    def loses_the_cache(good: DataFrame) -> None:
        spark.catalog.clearCache()
        second_time.touch()
        good.collect()

    def process(batch: AckedBatch) -> None:
        rows = acker.anchor(batch)
        acker.settle((map_in_arrow(rows, fewer_later, rows.schema), loses_the_cache))

    with pytest.raises(AckerError, match="read 2 rows, which are not the 3 rows"):
        run_batch(frame.coalesce(1), process)


def test_anchors_of_another_batch_are_refused(frame: DataFrame) -> None:
    """A frame of an earlier batch has other records, which cannot be failed in this one."""
    earlier: list[DataFrame] = []

    def first(batch: AckedBatch) -> None:
        earlier.append(acker.anchor(frame))
        acker.settle((earlier[0], Sink()))

    run_batch(frame, first)
    sink = Sink()
    with pytest.raises(AckerError, match="3 anchors that belong to no record of this batch"):
        run_batch(frame, lambda batch: acker.settle((acker.anchor(batch).union(earlier[0]), sink)))
    assert sink.times == 0


LEAST, GREATEST = -(2**63), 2**63 - 1
EDGES = [
    0,
    1,
    -1,
    LEAST,
    GREATEST,
    0xFFFF_FFFF,
    0x1_0000_0000,
    -0x1_0000_0000,
    0x0123_4567_89AB_CDEF,
]


def test_sums_in_spark_are_sums_in_python(spark: SparkSession) -> None:
    """In groups, whole frames and frames without rows. A row that is not tracked adds nothing."""
    rows = [(n % 3, (n, x, s)) for n, (x, s) in enumerate(product(EDGES, EDGES))] + [
        (0, None),
        (9, None),
    ]
    frame = spark.createDataFrame(rows, f"k INT, {ANCHOR} {ANCHOR_DDL}")
    whole = Total.of(anchors(frame).agg(*totals()).collect()[0])
    assert whole == python_total([anchor for _, anchor in rows])
    empty = Total.of(frame.where("false").agg(*totals(f"{ANCHOR}.")).collect()[0])
    assert empty == Total(0, 0, 0)
    groups = (
        frame.groupBy("k").agg(*totals(f"{ANCHOR}.")).select("k", group_anchor(5).alias("merged"))
    )
    merged = {row["k"]: row["merged"] for row in groups.collect()}
    assert merged.pop(9) is None
    for key, anchor in merged.items():
        expected = python_total([given for k, given in rows if k == key])
        assert (anchor["x"] % 2**64, anchor["s"] % 2**64) == (expected.x, expected.s)
    assert len({anchor["root"] for anchor in merged.values()}) == 3


def python_total(given: list[tuple[int, int, int] | None]) -> Total:
    total = Total(0, 0, 0)
    for anchor in given:
        _, x, s = anchor or (0, 0, 0)
        total += Total(1, x % 2**64, s % 2**64)
    return total


def labels_by_search(edges: list[tuple[int, int]]) -> dict[int, int]:
    neighbours: dict[int, set[int]] = {}
    for a, b in edges:
        if a != b:
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
    labels: dict[int, int] = {}
    for start in sorted(neighbours):
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if node not in labels:
                labels[node] = start
                waiting += neighbours[node]
    return labels


def test_every_node_is_labelled_with_the_least_of_its_component(spark: SparkSession) -> None:
    """One graph has trees, cycles, cliques, double edges, a self-loop and negative numbers."""
    random = Random(5)  # noqa: S311  # the same graph in every run
    edges = [(3, 3), (-5, -(2**63)), (2**63 - 1, -5), (2**63 - 1, -5), (-5, 2**63 - 1)]
    for first in range(0, 2000, 100):  # islands of up to 100 nodes
        size = random.randrange(2, 100)
        edges += [
            (first + random.randrange(size), first + random.randrange(size)) for _ in range(size)
        ]
    random.shuffle(edges)
    found = component_labels(spark.createDataFrame(edges, "a BIGINT, b BIGINT")).collect()
    assert {row["node"]: row["label"] for row in found} == labels_by_search(edges)
    assert len(found) == len({row["node"] for row in found})
