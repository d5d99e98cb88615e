"""Joins letters that are in parts: a stream takes a large payload only in several records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

from spark_job.dead_letter.letter import LETTER_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTS_DDL = "part INT, parts INT"
IS_INCOMPLETE = "isIncomplete"
# Whose rows are the parts of one letter. A whole aggregate has the message id of its first user
# record, and no sub-sequence number.
_LETTER = ("streamName", "messageId", "subSequenceNumber", "parts")


def joined(rows: DataFrame) -> DataFrame:
    """The letters of `rows`, with the columns of `LETTER_DDL` and `isIncomplete`.

    `rows` has the columns of `LETTER_DDL` and `PARTS_DDL`, the latter null for a letter in one
    piece. A part that is there twice counts once. A letter of which a part is missing has null
    `data`, and is incomplete.
    """
    is_part = F.coalesce(F.col("parts") > 1, F.lit(False))  # noqa: FBT003  # Spark's literal
    whole = rows.where(~is_part).select(
        *LETTER_COLUMNS,
        F.lit(False).alias(IS_INCOMPLETE),  # noqa: FBT003  # Spark's literal
    )
    others = [name for name in LETTER_COLUMNS if name not in (*_LETTER, "data")]
    pieces = (
        rows.where(is_part)
        .dropDuplicates([*_LETTER, "part"])
        .groupBy(*_LETTER)
        .agg(
            F.array_sort(F.collect_list(F.struct("part", "data"))).alias("pieces"),
            F.first(F.struct(*others)).alias("others"),
        )
        .withColumn(IS_INCOMPLETE, F.size("pieces") < F.col("parts"))
    )
    payload = F.aggregate(
        "pieces", F.lit(b""), lambda before, piece: F.concat(before, piece["data"])
    )
    return whole.unionByName(
        pieces.select(
            "streamName",
            "messageId",
            "subSequenceNumber",
            "others.*",
            F.when(~F.col(IS_INCOMPLETE), payload).alias("data"),
            IS_INCOMPLETE,
        )
    )
