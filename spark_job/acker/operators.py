"""The acker's operators: they track each row that is derived from a record, up to the sinks.

The acker fails the records of which a derived row is lost or doubled. It is for a function given to
`source.tracked(...)` that joins, splits and groups DataFrames, where `map_records` is too narrow:

    def process(batch):  # word count
        text = F.col("data").cast("string")
        lines = acker.anchor(batch).select("_anchor", F.split(text, " ").alias("words"))
        words = acker.split(lines, "words", "word")
        counts = acker.merge(words, "word", F.count("*").alias("count"))
        acker.settle((counts, lambda frame: frame.write.mode("append").parquet(OUT)))

`docs/guides/acker.md` has more of these, and `spark_job.acker.shares` the maths.

An anchored frame has a column `_anchor`, which must stay in it. Between the operators of this
module any operator of Spark may be used. `settle` checks all rows before anything is written, and
fails (`batch.fail`) the records with lost or doubled rows: they are retried, and dead-lettered in
the end. Records that share a merged row with them fail too. No row derived from a failed record is
written. All other records continue.

It detects operators that change the set of rows, and not those that change a value in a row. A row
that is doubled, and then loses its double again, passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it
from pyspark.sql.types import ArrayType

from spark_job.acker.faults import fail_at_fault, without_roots
from spark_job.acker.run import (
    AckerError,
    AckerRun,
    Merge,
    check_anchored,
    current_run,
    is_deterministic,
)
from spark_job.acker.shares import (
    ANCHOR,
    ANCHOR_DDL,
    NOTHING,
    TOTALS,
    Total,
    anchors,
    group_anchor,
    source_anchor,
    totals,
    with_child_anchors,
)
from spark_job.tracking.spark_sql import without
from spark_job.tracking.tracked_batch import current_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.tracking.tracked_batch import TrackedBatch

Write = Callable[[DataFrame], object]
_LISTENERS_WAIT_MS = 60_000
_ITEMS, _COUNT, _PLACE, _PART = "_acker_items", "_acker_count", "_acker_place", "_acker_part"


def anchor(batch_or_df: TrackedBatch | DataFrame) -> DataFrame:
    """Start tracking the rows of a batch, or of a frame derived from `batch.df`.

    Such a frame must have one row per record, with its `messageId`. Every record of `batch.df` must
    be in the frame, except records that have failed by the time `settle` is called. Rows that the
    frame has already lost or duplicated count as lost or duplicated. Runs no job.

    Raises RuntimeError outside a tracked batch's function, and `AckerError` for a frame without a
    `messageId` or a frame that is already anchored.
    """
    run = current_run("anchor")
    df = batch_or_df if isinstance(batch_or_df, DataFrame) else batch_or_df.df
    if "messageId" not in df.columns:
        raise AckerError(
            "the frame passed to acker.anchor has no column messageId, which identifies the "
            "records",
            "call acker.anchor before you drop the column messageId",
        )
    if ANCHOR in df.columns:
        raise AckerError(
            f"the frame passed to acker.anchor already has a column {ANCHOR}",
            "pass each frame to acker.anchor only once",
        )
    site = run.next_site()
    run.anchored.append(site)
    return df.withColumn(ANCHOR, source_anchor(F.col("messageId"), run.seed, site))


def split(df: DataFrame, column: Column | str, into: str) -> DataFrame:
    """Return one row for each element of an array, in column `into`. All other columns stay.

    Like `explode`, but tracked. A row with an empty or NULL array is dropped on purpose: its record
    does not fail. Raises `AckerError` for a column that is not an array.
    """
    run = current_run("split", df)
    items = F.col(column) if isinstance(column, str) else column
    kind = df.select(items.alias(_ITEMS)).schema[_ITEMS].dataType
    if not isinstance(kind, ArrayType):
        raise AckerError(
            f"the column passed to acker.split has type {kind.simpleString()}, not an array type",
            "pass a column of an array type",
        )
    counted = df.withColumn(_ITEMS, items).withColumn(_COUNT, F.coalesce(F.size(_ITEMS), F.lit(0)))
    run.repeatable(counted)
    run.drops.append(anchors(counted.where(F.col(_COUNT) <= 0)))
    rows = counted.drop(into).select("*", F.posexplode(_ITEMS).alias(_PLACE, into))
    return with_child_anchors(rows, run.next_site(), F.col(_PLACE), F.col(_COUNT)).drop(
        _ITEMS, _COUNT, _PLACE
    )


def filter(df: DataFrame, condition: Column | str) -> DataFrame:  # noqa: A001  # Spark's own name for it
    """Return the rows that meet the condition. The other rows are dropped on purpose.

    Dropping a row here does not fail its record. A row is also dropped if the condition is NULL for
    it.
    """
    run = current_run("filter", df)
    met = F.coalesce(F.expr(condition) if isinstance(condition, str) else condition, F.lit(False))  # noqa: FBT003  # Spark's
    judged = run.repeatable(df.withColumn(_COUNT, met))
    run.drops.append(anchors(judged.where(~F.col(_COUNT))))
    return judged.where(F.col(_COUNT)).drop(_COUNT)


def branch(df: DataFrame, n: int) -> list[DataFrame]:
    """Return the same rows `n` times, for `n` different sinks.

    A record is processed once its rows have arrived on all branches. Raises `AckerError` if `n` is
    below 1.
    """
    run = current_run("branch", df)
    if n < 1:
        raise AckerError(f"acker.branch was called for {n} branches", "pass at least 1")
    site = run.next_site()
    return [with_child_anchors(df, site, F.lit(i), F.lit(n)) for i in range(n)]


def merge(
    df: DataFrame, keys: Column | str | Sequence[Column | str], *aggregates: Column
) -> DataFrame:
    """`df.groupBy(keys).agg(aggregates)`, tracked.

    Each resulting row stands for all records of its group. If one of these records fails, the row
    is not written, and the group's other records fail too. Without keys, all rows become one.
    Raises `AckerError` for a key that has a different value each time it is computed, such as
    `rand()`.
    """
    run = current_run("merge", df)
    by = [keys] if isinstance(keys, str | Column) else list(keys)
    run.repeatable(df)
    if is_deterministic(df) and not is_deterministic(df.select(*by)):
        raise AckerError(
            "a key passed to acker.merge has a different value each time Spark computes it",
            "first add the key as a column, and group by this column",
        )
    site = run.next_site()
    run.merges.append(Merge(df, by, site))
    grouped = df.groupBy(*by).agg(*aggregates, *totals(f"{ANCHOR}."))
    return grouped.withColumn(ANCHOR, group_anchor(site)).drop(*TOTALS)


def unanchored(df: DataFrame) -> DataFrame:
    """Return the same rows, no longer tracked: if they are lost or duplicated, no record fails.
    Their `_anchor` is NULL.
    """
    run = current_run("unanchored", df)
    run.drops.append(anchors(run.repeatable(df)))
    return df.withColumn(ANCHOR, F.lit(None).cast(ANCHOR_DDL))


def settle(*sinks: tuple[DataFrame, Write]) -> None:
    """Check all rows, fail the records with lost or duplicated rows, then write every sink.

    Call `settle` once per batch, at the end of the function. Each sink is a pair of a frame and a
    function that writes the frame. The function gets the frame without `_anchor`, and without rows
    derived from failed records. It is also called for an empty frame. Its first action on the frame
    must read all rows, as `frame.write` does. `isEmpty` and `take` do not read all rows, and
    `foreachPartition` and `rdd` are not observed.

    Blocks until all sinks are written. Raises `AckerError`, which fails the batch, if a frame has
    lost its anchors or if rows have another batch's anchors; nothing is written then. Also raises
    `AckerError` if a sink's function did not write what was checked.
    """
    run = current_run("settle")
    batch = current_batch()
    named = _named(sinks)
    run.settled = True
    try:
        # Persisted from the check to the write, so that the rows that were checked are the rows
        # that are written. A lost cache is computed again, perhaps with another result: `_write`
        # adds the shares up once more.
        for sink in named:
            run.keep(sink.frame)
        arrived = _arrived_totals(run, named, batch)
        if arrived is not None:  # only a mismatch is searched root by root, in several jobs
            for sink, total in zip(named, arrived, strict=True):
                _write(sink, total)
            return
        failed = fail_at_fault(run, [sink.frame for sink in named], batch)
        for sink in named:
            good = without_roots(sink.frame, failed)
            row = good.agg(*totals(f"{ANCHOR}.")).collect()[0]
            _write(sink._replace(frame=good), Total.of(row))
    finally:
        run.release()


class _Sink(NamedTuple):
    name: str
    frame: DataFrame
    write: Write


def _named(sinks: Sequence[Any]) -> list[_Sink]:
    named = []
    for number, sink in enumerate(sinks, start=1):
        if not (
            isinstance(sink, tuple)
            and len(sink) == 2
            and isinstance(sink[0], DataFrame)
            and callable(sink[1])
        ):
            raise AckerError(
                f"argument {number} of acker.settle is not a pair (frame, write)",
                "pass (frame, function) pairs, in which the function writes the frame",
            )
        check_anchored(sink[0], f"the frame of sink {number}")
        named.append(_Sink(f"sink {number}", *sink))
    return named


def _arrived_totals(
    run: AckerRun, sinks: Sequence[_Sink], batch: TrackedBatch
) -> list[Total] | None:
    """The total of each sink if the sums of the batch match, else None. Runs one Spark job."""
    failed = list(batch.failures)
    issued = [anchors(without(source, failed)) for source in run.sources(batch)]
    arrived = [anchors(sink.frame) for sink in sinks]
    rows = [
        part.agg(*totals()).withColumn(_PART, F.lit(number))
        for number, part in enumerate([*issued, *arrived, *run.drops])
    ]
    # The rows of a union come in any order.
    found = {row[_PART]: Total.of(row) for row in reduce(DataFrame.unionByName, rows).collect()}
    ordered = [found[number] for number in range(len(rows))]
    issued_totals, arrived_totals = ordered[: len(issued)], ordered[len(issued) :]
    expected, present = sum(issued_totals, NOTHING), sum(arrived_totals, NOTHING)
    return arrived_totals[: len(sinks)] if present.same_shares(expected) else None


def _write(sink: _Sink, checked: Total) -> None:
    observation = Observation()
    sink.write(sink.frame.observe(observation, *totals(f"{ANCHOR}.")).drop(ANCHOR))
    written = _observed(observation, sink.frame)
    if written is None and checked.rows:
        raise AckerError(
            f"the function of {sink.name} ran no action on its frame, so the acker cannot check "
            "what was written",
            "write the frame with frame.write, or with another action of the DataFrame that "
            "reads all rows (not foreachPartition or rdd)",
        )
    if written is not None and written != checked:
        raise AckerError(
            f"the first action of {sink.name} read {written.rows} rows, which are not the "
            f"{checked.rows} rows that the acker had checked",
            "make the write the first action (without an earlier isEmpty or take), or raise "
            "Spark's storage memory if Spark lost persisted rows",
        )


def _observed(observation: Observation, frame: DataFrame) -> Total | None:
    """The total of the rows that the first action read; None if there was no action."""
    session: Any = frame.sparkSession
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS_WAIT_MS)  # noqa: SLF001  # it is what sets the result
    # Observation.get would wait for ever if there was no action, so its future is asked first.
    known: Any = observation._jo  # noqa: SLF001  # Python's Observation does not show its future
    if not known.future().isCompleted():
        return None
    return Total.of(observation.get)
