"""The acker refuses use outside of a batch, frames without anchors, and sinks that do not write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import acker
from spark_job.acker import AckerError
from spark_job.tracking.spark_sql import map_in_arrow
from tests.support.outcomes.acker import AckedBatch, Sink, run_batch, source_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def nothing(frame: DataFrame) -> None:
    """A writer that writes nothing."""


def settled_by(write: Callable[[DataFrame], object]) -> Callable[[AckedBatch], None]:
    return lambda batch: acker.settle((acker.anchor(batch), write))


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return source_frame(spark, ["a", "b", "c"])


def test_the_acker_works_in_a_tracked_batch_only(frame: DataFrame) -> None:
    """Outside of a batch there is nothing to fail records in."""
    with pytest.raises(RuntimeError, match="no tracked batch runs"):
        acker.anchor(frame)
    with pytest.raises(RuntimeError, match="no tracked batch runs"):
        acker.settle((frame, nothing))


REFUSED: dict[str, tuple[Callable[[AckedBatch], object], str]] = {
    "no anchor": (lambda b: acker.filter(b.df, "true"), "before acker.anchor"),
    "settle alone": (lambda b: acker.settle(), "before acker.anchor"),
    "no message id": (lambda b: acker.anchor(b.df.select("data")), "no column messageId"),
    "anchored twice": (lambda b: acker.anchor(acker.anchor(b)), "already"),
    "not settled": (acker.anchor, r"settle\(...\) was not called"),
    "lost at a sink": (
        lambda b: acker.settle((acker.anchor(b).select("data"), nothing)),
        "the frame of sink 1 has lost",
    ),
    "lost before a filter": (
        lambda b: acker.filter(acker.anchor(b).select("data"), "true"),
        "acker.filter has lost the column",
    ),
    "lost before a merge": (
        lambda b: acker.merge(acker.anchor(b).select("data"), "data"),
        "acker.merge has lost",
    ),
    "joined": (
        lambda b: acker.settle((acker.anchor(b).join(acker.anchor(b), "messageId"), nothing)),
        r"2 columns _anchor: two anchored frames were joined",
    ),
    "no array": (
        lambda b: acker.split(acker.anchor(b), "messageId", "x"),
        "of type string; give it an array",
    ),
    "no branches": (lambda b: acker.branch(acker.anchor(b), 0), "0 branches"),
    "a random key": (
        lambda b: acker.merge(acker.anchor(b), F.rand()),
        "is different each time it is computed",
    ),
    "no pair": (
        lambda b: acker.settle(acker.anchor(b)),  # type: ignore[arg-type]  # the mistake
        "sink 1 given to acker.settle is not a pair",
    ),
    "no writer": (
        lambda b: acker.settle((acker.anchor(b), nothing), (b.df, "path")),  # type: ignore[arg-type]  # the mistake
        "sink 2 given to acker.settle is not a pair",
    ),
    "settled twice": (
        lambda b: list(
            map(acker.settle, [(frame, Sink()) for frame in acker.branch(acker.anchor(b), 2)])
        ),
        r"acker.settle\(...\) was called after settle",
    ),
    "anchored after settle": (
        lambda b: [settled_by(Sink())(b), acker.anchor(b)],
        "was called after settle",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_use_fails_the_batch_and_says_what_to_do(frame: DataFrame, name: str) -> None:
    """Each error is one sentence."""
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
    "nothing": (nothing, "sink 1: its function ran no action"),
    "foreachPartition": (
        lambda f: f.foreachPartition(lambda rows: None),
        "ran no action on the frame",
    ),
    "a part": (lambda f: f.limit(1).collect(), "sink 1: 3 rows were checked, and"),
    "a look first": (lambda f: (f.take(1), f.collect()), "let the write be that action"),
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
    """No rows are expected from it."""
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

    with pytest.raises(AckerError, match="sink 1: 3 rows were checked, and 2 went through"):
        run_batch(frame.coalesce(1), process)


def test_anchors_of_another_batch_are_refused(frame: DataFrame) -> None:
    """A frame of an earlier batch has other records, which cannot be failed in this one."""
    earlier: list[DataFrame] = []

    def first(batch: AckedBatch) -> None:
        earlier.append(acker.anchor(frame))
        acker.settle((earlier[0], Sink()))

    run_batch(frame, first)
    sink = Sink()
    with pytest.raises(AckerError, match="3 anchors that are of no record of this batch"):
        run_batch(frame, lambda batch: acker.settle((acker.anchor(batch).union(earlier[0]), sink)))
    assert sink.times == 0
