"""Conditions as texts of SQL: one that raises where something is wrong, which Spark must neither
move nor leave out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
