"""Calls of Spark SQL that take more than one line to get right."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

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
    """`frame.mapInArrow(function, schema)` without its warning about pandas.

    Spark routes the call through its pandas functions. It wants pandas to be installed, and warns
    of versions that it does not support, although no pandas object is made.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="PySpark does not yet fully support pandas", category=FutureWarning
        )
        return frame.mapInArrow(function, schema)


def literal(text: str) -> str:
    """The text as an SQL literal, in hexadecimal digits, so that nothing needs an escape."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def guarded(frame: DataFrame, condition: str) -> DataFrame:
    """The rows that meet `condition`, an SQL text that may raise; it runs before later conditions.

    Spark may push a condition of the user's below this one. A row that should raise has NULL in all
    of its columns, so the user's condition would drop it silently. Spark moves no condition past
    one that is not deterministic, and `spark_partition_id()` counts as such.
    """
    return frame.where(f"spark_partition_id() >= 0 AND ({condition})")


def values(frame: DataFrame, column: str) -> list[Any]:
    """The column's values, in the order of the rows. Runs a job."""
    found: list[Any] = frame.select(column).toArrow().column(column).to_pylist()
    return found


def without(frame: DataFrame, ids: Collection[str]) -> DataFrame:
    """The frame without the rows of these message ids. Rows and columns keep their order."""
    return _joined(frame, ids, "left_anti") if ids else frame


def only(frame: DataFrame, ids: Collection[str]) -> DataFrame:
    """The rows of these message ids."""
    return _joined(frame, ids, "left_semi")


def _joined(frame: DataFrame, ids: Collection[str], how: str) -> DataFrame:
    """Join on an expression: a join on a common column name would move that column to the front."""
    table = pa.table({_ID: pa.array(sorted(ids), pa.string())})
    id_frame = F.broadcast(frame.sparkSession.createDataFrame(table))
    return frame.join(id_frame, F.col("messageId") == F.col(_ID), how)
