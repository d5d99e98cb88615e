"""Calls of Spark SQL that take more than one line to get right."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_ID = "_ks_id"


def map_in_arrow(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """`frame.mapInArrow(function, schema)`."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
        )
        return frame.mapInArrow(function, schema)


def literal(text: str) -> str:
    """A text in SQL. In hexadecimal digits nothing needs an escape, whatever it holds."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def guarded(frame: DataFrame, condition: str) -> DataFrame:
    """The rows that meet a condition which may raise, looked at before any later condition.

    Spark may put a condition of the user's before this one, and then a row that should raise, all
    of its columns NULL, would be gone without a word. It moves no condition past one that is not
    deterministic, as the partition's number is said to be.
    """
    return frame.where(f"spark_partition_id() >= 0 AND ({condition})")


def without(frame: DataFrame, ids: Collection[str]) -> DataFrame:
    """The frame without rows of these message ids, in the same order of rows and columns."""
    return _joined(frame, ids, "left_anti") if ids else frame


def only(frame: DataFrame, ids: Collection[str]) -> DataFrame:
    """The frame's rows of these message ids."""
    return _joined(frame, ids, "left_semi")


def _joined(frame: DataFrame, ids: Collection[str], how: str) -> DataFrame:
    """A join on an expression: one on a common name would put that column first."""
    table = pa.table({_ID: pa.array(sorted(ids), pa.string())})
    id_frame = F.broadcast(frame.sparkSession.createDataFrame(table))
    return frame.join(id_frame, F.col("messageId") == F.col(_ID), how)
