"""Reads back the files of dead letters that a DeadLetter has written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

from kinesis_spout.errors import KinesisError
from spark_job.dead_letter.letter import LETTER_COLUMNS, LETTER_DDL
from spark_job.dead_letter.letter_parts import PARTS_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "json", "orc")
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
