"""The acker: follows every row that is made of a record to the sinks, and fails the records of
which rows are lost or doubled.

For a function given to `source.tracked(...)` that joins, splits and groups with DataFrames, where
`map_records` is too narrow:

    from spark_job import acker

    def process(batch):                                   # word count
        lines = acker.anchor(batch).select("_anchor", F.expr("split(CAST(data AS STRING), ' ')").alias("words"))
        words = acker.split(lines, "words", "word")
        counts = acker.merge(words, "word", F.count("*").alias("count"))
        acker.settle((counts, lambda frame: frame.write.mode("append").parquet(OUT)))

    def process(batch):                                   # enrichment: a left join with a table whose keys are unique
        orders = acker.anchor(batch.parsed(JsonScheme("id BIGINT, customer BIGINT"))).select("parsed.*", "_anchor")
        rich = orders.join(customers, "customer", "left")
        known = acker.filter(rich, "name IS NOT NULL")    # dropped on purpose; `where` would fail these records
        acker.settle((known, lambda frame: frame.write.mode("append").parquet(OUT)))

    def process(batch):                                   # many to one, and two sinks
        parts = acker.anchor(batch).withColumn("order", F.get_json_object(F.col("data").cast("string"), "$.order"))
        to_merge, to_keep = acker.branch(parts, 2)
        orders = acker.merge(to_merge, "order", F.collect_list("data").alias("parts"))
        acker.settle((orders, write_orders), (to_keep, write_archive))

An anchored frame has a column `_anchor`, which has to stay in it; all other operators of Spark may
be used between those of this module. What they lose or double is found when `settle` is called,
before anything is written: the records concerned are failed (`batch.fail`: they are retried, and in
the end dead-lettered), with them those that share a merged row with them, and what was made of
these records is not written. All others go on.

As Storm's acker does, this one keeps no list of rows: see `shares`. It finds what changes the set
of rows, not what changes a value in a row. A row that is doubled and has then lost its double again
is as it should be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it
from pyspark.sql.types import ArrayType

from spark_job.acker.run import (
    AckerError,
    Merge,
    check_anchored,
    current_run,
    is_deterministic,
    started_run,
)
from spark_job.acker.settle_batch import settle
from spark_job.acker.shares import (
    ANCHOR,
    TOTALS,
    anchors,
    group_anchor,
    no_anchor,
    source_anchor,
    totals,
    with_child_anchors,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.tracking.tracked_batch import TrackedBatch

__all__ = [
    "ANCHOR",
    "AckerError",
    "anchor",
    "branch",
    "filter",
    "merge",
    "settle",
    "split",
    "unanchored",
]

_ITEMS, _COUNT, _PLACE = "_acker_items", "_acker_count", "_acker_place"


def anchor(batch_or_df: TrackedBatch | DataFrame) -> DataFrame:
    """The batch's records, or a frame made of them with one row each and its `messageId`, followed
    from here on.

    Every record of `batch.df` that has not failed by the time of `settle` must be in it: what the
    frame has lost or doubled before counts as lost or doubled. Runs no job. Raises RuntimeError
    outside of a tracked batch's function, and `AckerError` for a frame without `messageId` or with
    anchors already.
    """
    run = started_run()
    df = batch_or_df if isinstance(batch_or_df, DataFrame) else batch_or_df.df
    if "messageId" not in df.columns:
        raise AckerError(
            "the frame given to acker.anchor has no column messageId, by which records fail; "
            "anchor it earlier"
        )
    if ANCHOR in df.columns:
        raise AckerError(
            f"the frame given to acker.anchor has a column {ANCHOR} already; anchor a frame once"
        )
    site = run.next_site()
    run.anchored.append(site)
    return df.withColumn(ANCHOR, source_anchor(F.col("messageId"), run.seed, site))


def split(df: DataFrame, column: Column | str, into: str) -> DataFrame:
    """One row for each element of an array, which is column `into`; all other columns stay, as with
    `explode`.

    A row whose array is empty or NULL is dropped on purpose. Raises `AckerError` for a column that
    is no array.
    """
    run = current_run(operator="split")
    check_anchored(df, "the frame given to acker.split")
    items = F.col(column) if isinstance(column, str) else column
    _check_array(df, items)
    counted = df.withColumn(_ITEMS, items).withColumn(_COUNT, F.coalesce(F.size(_ITEMS), F.lit(0)))
    run.repeatable(counted)
    run.drops.append(anchors(counted.where(F.col(_COUNT) <= 0)))
    rows = counted.drop(into).select("*", F.posexplode(_ITEMS).alias(_PLACE, into))
    return with_child_anchors(rows, run.next_site(), F.col(_PLACE), F.col(_COUNT)).drop(
        _ITEMS, _COUNT, _PLACE
    )


def filter(df: DataFrame, condition: Column | str) -> DataFrame:  # noqa: A001  # Spark's own name for it
    """The rows that meet the condition. The others, also where it is NULL, are dropped on purpose:
    their records are done.
    """
    run = current_run(operator="filter")
    check_anchored(df, "the frame given to acker.filter")
    met = F.coalesce(F.expr(condition) if isinstance(condition, str) else condition, F.lit(False))  # noqa: FBT003  # Spark's
    judged = run.repeatable(df.withColumn(_COUNT, met))
    run.drops.append(anchors(judged.where(~F.col(_COUNT))))
    return judged.where(F.col(_COUNT)).drop(_COUNT)


def branch(df: DataFrame, n: int) -> list[DataFrame]:
    """The same rows `n` times, for `n` ways to a sink each: a record is done when it has arrived on
    all of them.
    """
    run = current_run(operator="branch")
    check_anchored(df, "the frame given to acker.branch")
    if n < 1:
        raise AckerError(f"acker.branch was asked for {n} branches; give 1 or more")
    site = run.next_site()
    return [with_child_anchors(df, site, F.lit(i), F.lit(n)) for i in range(n)]


def merge(
    df: DataFrame, keys: Column | str | Sequence[Column | str], *aggregates: Column
) -> DataFrame:
    """`df.groupBy(keys).agg(aggregates)`; a row of the result stands for all records of its group,
    and fails with any of them.

    Without keys all rows become one. Raises `AckerError` for keys that are computed anew each time,
    like `rand()`.
    """
    run = current_run(operator="merge")
    check_anchored(df, "the frame given to acker.merge")
    by = [keys] if isinstance(keys, str | Column) else list(keys)
    run.repeatable(df)
    if is_deterministic(df) and not is_deterministic(df.select(*by)):
        raise AckerError(
            "a key given to acker.merge is computed anew each time; make it a column first, and "
            "group by that"
        )
    site = run.next_site()
    run.merges.append(Merge(df, by, site))
    grouped = df.groupBy(*by).agg(*aggregates, *totals(f"{ANCHOR}.x", f"{ANCHOR}.s"))
    return grouped.withColumn(ANCHOR, group_anchor(site)).drop(*TOTALS)


def unanchored(df: DataFrame) -> DataFrame:
    """The same rows, no longer followed: what becomes of them does not matter to their records.
    `_anchor` is NULL in them.
    """
    run = current_run(operator="unanchored")
    check_anchored(df, "the frame given to acker.unanchored")
    run.drops.append(anchors(run.repeatable(df)))
    return df.withColumn(ANCHOR, no_anchor())


def _check_array(df: DataFrame, items: Column) -> None:
    kind = df.select(items.alias(_ITEMS)).schema[_ITEMS].dataType
    if not isinstance(kind, ArrayType):
        raise AckerError(
            f"acker.split was given a column of type {kind.simpleString()}; give it an array"
        )
