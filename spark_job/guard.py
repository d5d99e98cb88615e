"""A condition that raises where something is wrong, which Spark must neither move nor leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def guarded(frame: DataFrame, condition: Column) -> DataFrame:
    """The rows that meet a condition which may raise, looked at before any later condition.

    Spark may put a condition of the user's before this one, and then a row that should raise, all of its columns NULL, would be
    gone without a word. It moves no condition past one that is not deterministic, as the partition's number is said to be.
    """
    return frame.where((F.spark_partition_id() >= 0) & condition)
