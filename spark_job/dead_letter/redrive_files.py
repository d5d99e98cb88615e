"""Files of dead letters, as DeadLetter writes them, read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

from kinesis_spout.errors import KinesisError
from spark_job.dead_letter.letter import LETTER_COLUMNS, LETTER_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "json", "orc")


class RedriveError(KinesisError):
    """Files that cannot be put back: not dead letters, or of a format that must be given.

    A sentence for the user. Nothing was put.
    """


@dataclass(frozen=True, slots=True)
class LetterFiles:
    """Files under a path, of one format; None when there are none at all."""

    spark: SparkSession
    path: str
    format: str | None

    @classmethod
    def at(cls, spark: SparkSession, path: str, format: str | None = None) -> LetterFiles:  # noqa: A002  # Spark's name for it
        """The format, if not given, is told by the files' names. Blocks; raises `RedriveError`, and
        what Spark raises.
        """
        return cls(spark, path, format or _format_of(spark, path))

    def __str__(self) -> str:
        return f"the {self.format or 'missing'} files in {self.path}"

    def read(self) -> DataFrame:
        """All letters (columns of LETTER_DDL); of what is none, all columns are null."""
        if self.format is None:
            return self.spark.createDataFrame([], LETTER_DDL)
        return (
            self.spark.read.schema(LETTER_DDL)
            .format(self.format)
            .load(self.path)
            .select(*LETTER_COLUMNS)
        )


def _format_of(spark: SparkSession, path: str) -> str | None:
    # of files read as binary, only the names are looked at: columns that nobody asks for are not
    # read
    names = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(path)
        .select(F.col("path").alias("name"))
    )
    # compressed ones are named part-0.snappy.parquet and part-0.json.gz
    suffix = F.regexp_extract(
        F.substring_index("name", "/", -1), rf"\.({'|'.join(FORMATS)})(?:\.[a-z0-9]+)?$", 1
    )
    found = {row["suffix"] for row in names.select(suffix.alias("suffix")).distinct().collect()}
    formats = sorted(found - {""})
    if len(formats) > 1:
        raise RedriveError(
            f"{path} holds files of the formats {' and '.join(formats)}; say by --format which are "
            "the dead letters"
        )
    if not formats and found:
        raise RedriveError(
            f"{path} holds no file named .{', .'.join(FORMATS)}; say by --format what the dead "
            "letters are"
        )
    return formats[0] if formats else None
