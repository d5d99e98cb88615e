"""Files of dead letters that only Spark reads: those of another machine or a store of objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

from kinesis_spout.dead_letter.files import (
    LEDGER_DDL,
    LEDGER_IDENTITY,
    LetterFormat,
    ledger_in,
)
from kinesis_spout.dead_letter.letter import ALL_MEMBERS, COLUMNS, Letter, piece_of, piece_of_line
from scheme.record import KPL_MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from kinesis_spout.dead_letter.letter import Column, Piece

_ROWS_DDL = ", ".join(f"{column.name} {column.type}" for column in ALL_MEMBERS)


@dataclass(frozen=True)
class SparkLetterFiles:
    """Letters under a path of any file system that Spark reads."""

    spark: SparkSession
    path: str

    def __str__(self) -> str:
        return self.path

    def names(self) -> Iterator[str]:
        for path in self._paths():
            yield path.rpartition("/")[2]

    def pieces(self, kind: LetterFormat, *, heads: bool) -> Iterator[Piece | None]:
        """Holds one Spark partition of letters in memory at a time."""
        if kind is LetterFormat.JSON:
            lines = self.spark.read.text(_literal(self.path)).select("value")  # without `plan`
            for (line,) in lines.toLocalIterator():
                if line.strip():
                    yield piece_of_line(line)
            return
        # With this schema, a row of a file that is no letter reads as all NULL.
        letters = self.spark.read.schema(_ROWS_DDL).format(kind.value).load(_literal(self.path))
        if heads:
            letters = letters.withColumn("data", F.substring("data", 1, len(KPL_MAGIC)))
        for row in with_plain_times(letters, ALL_MEMBERS).toLocalIterator():
            yield piece_of(row.asDict())

    def ledger(self) -> Iterator[tuple[Any, ...]]:
        try:
            entries = self.spark.read.schema(LEDGER_DDL).parquet(_literal(self._ledger_folder))
            yield from map(tuple, entries.select(*LEDGER_IDENTITY).distinct().toLocalIterator())
        except AnalysisException as exc:
            if exc.getCondition() != "PATH_NOT_FOUND":
                raise

    def append(self, entries: Sequence[tuple[Any, ...]]) -> None:
        # One file for an append: without `coalesce`, one for each core.
        frame = self.spark.createDataFrame(entries, LEDGER_DDL).coalesce(1)
        frame.write.mode("append").parquet(self._ledger_folder)

    @cached_property
    def _ledger_folder(self) -> str:
        # Spark gives whole paths: only that of a file, and of none in a folder, ends as this one.
        tail = self.path.rpartition(":")[2].strip("/")
        folder, _, name = self.path.rstrip("/").rpartition("/")
        is_file = any(
            path.endswith(f"/{tail}") and not path.endswith(f"/{tail}/{name}")
            for path in self._paths()
        )
        return ledger_in((folder or ".") if is_file else self.path)

    def _paths(self) -> Iterator[str]:
        """As binary files, but only their names are read: Spark does not read columns that are not
        selected.
        """
        files = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        for row in files.load(_literal(self.path)).select("path").toLocalIterator():
            yield row["path"]


def _literal(path: str) -> str:
    """A path for Spark's readers, which take brackets for a pattern."""
    return re.sub(r"[\[\]]", r"\\\g<0>", path)


def with_plain_times(letters: DataFrame, columns: Iterable[Column] = COLUMNS) -> DataFrame:
    """These columns of letters, with times as microseconds since 1970 UTC: a timestamp column would
    change with the time zone of the Python process.
    """
    return letters.select(
        *(
            F.unix_micros(name).alias(name) if kind == "TIMESTAMP" else F.col(name)
            for name, kind, *_ in columns
        )
    )


def letter_of(row: Row) -> Letter:
    """A row of `with_plain_times`, of a frame of letters, as a Letter."""
    piece = piece_of(row.asDict())
    if piece is None:
        raise ValueError("a row of the dead letter files is not a dead letter")
    return piece.letter
