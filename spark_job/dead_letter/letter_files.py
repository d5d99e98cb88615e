"""Reads back the files of dead letters that a DeadLetter has written.

They may also come from a stream of letters. A stream takes a large payload only in several records,
so such a letter is in parts, which are joined here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

from kinesis_spout.errors import KinesisError
from spark_job.dead_letter.letter import LETTER_COLUMNS, LETTER_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "json", "orc")
PARTS_DDL = "part INT, parts INT"
IS_INCOMPLETE = "isIncomplete"
# Whose rows are the parts of one letter. A whole aggregate has the message id of its first user
# record, and no sub-sequence number.
_LETTER = ("streamName", "messageId", "subSequenceNumber", "parts")
_DDL = f"{LETTER_DDL}, {PARTS_DDL}"


class RedriveError(KinesisError):
    """Files that cannot be put back: not dead letters, or of a format that must be given.

    A sentence for the user. Nothing was put.
    """


@dataclass(frozen=True, slots=True)
class LetterFiles:
    """The files under a path, of one format. `format` is None if there are no files at all."""

    spark: SparkSession
    path: str
    format: str | None

    @classmethod
    def at(cls, spark: SparkSession, path: str, format: str | None = None) -> LetterFiles:  # noqa: A002  # Spark's name for it
        """The files at a path. Without `format`, the names of the files decide.

        Blocks. Raises `RedriveError`, and Spark's errors.
        """
        return cls(spark, path, format or _format_of(spark, path))

    def __str__(self) -> str:
        return f"the {self.format or 'missing'} files in {self.path}"

    def read(self) -> DataFrame:
        """All rows, in the columns of `LETTER_DDL` and `PARTS_DDL`. A row that is not a letter is
        all NULL.
        """
        if self.format is None:
            return self.spark.createDataFrame([], _DDL)
        return (
            self.spark.read.schema(_DDL)
            .format(self.format)
            .load(self.path)
            .select(*LETTER_COLUMNS, "part", "parts")
        )


def _format_of(spark: SparkSession, path: str) -> str | None:
    # As binary files, but only their names are read: Spark does not read columns that are not
    # selected.
    names = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(path)
        .select(F.col("path").alias("name"))
    )
    # Compressed files are named part-0.snappy.parquet and part-0.json.gz.
    suffix = F.regexp_extract(
        F.substring_index("name", "/", -1), rf"\.({'|'.join(FORMATS)})(?:\.[a-z0-9]+)?$", 1
    )
    found = {row["suffix"] for row in names.select(suffix.alias("suffix")).distinct().collect()}
    formats = sorted(found - {""})
    if len(formats) > 1:
        raise RedriveError(
            f"{path} holds files of the formats {' and '.join(formats)}; give the format of the "
            "dead letters with --format"
        )
    if not formats and found:
        raise RedriveError(
            f"{path} holds no file named .{', .'.join(FORMATS)}; give the format of the dead "
            "letters with --format"
        )
    return formats[0] if formats else None


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
