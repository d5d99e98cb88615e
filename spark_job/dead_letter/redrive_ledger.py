"""The ledger of a redrive: which dead letters under a path were put back.

It is parquet files in `_redriven` under the path, which readers of the letters skip. An entry names
a record by its stream, shard and sequence number, regardless of the attempt of its letter. It also
names the target stream, so a trial on another stream does not keep a record from its own stream.
`isWhole` tells an aggregate that was delivered whole from its first user record, which has the same
numbers. It is null in an entry of an earlier version, which may be of either.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from scheme.record import KPL_MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.clock import Clock
    from spark_job.dead_letter.letter import Letter

# Spark's readers skip names that begin with an underscore, but warn if the path that they are given
# ends in one: hence the folder inside.
FOLDER = "_redriven/ledger"
NUMBERS = ("streamName", "shardId", "sequenceNumber", "subSequenceNumber")
IDENTITY = ("target", *NUMBERS, "isWhole")
LEDGER_DDL = (
    "target STRING, streamName STRING, shardId STRING, sequenceNumber STRING, "
    "subSequenceNumber BIGINT, messageId STRING, redrivenAt TIMESTAMP, isWhole BOOLEAN"
)
_ABSENT = frozenset({"PATH_NOT_FOUND"})


class RedriveLedger:
    """The ledger of one path. Methods block on Spark and files, and raise their errors."""

    def __init__(self, spark: SparkSession, path: str, clock: Clock) -> None:
        self._spark = spark
        self._clock = clock
        self.path = f"{_root_of(path)}/{FOLDER}"

    def read(self) -> DataFrame:
        """All entries, in the columns of LEDGER_DDL. Empty if nothing was ever put back."""
        try:
            return self._spark.read.schema(LEDGER_DDL).parquet(self.path)
        except AnalysisException as exc:
            if exc.getCondition() not in _ABSENT:
                raise
            return self._spark.createDataFrame([], LEDGER_DDL)

    def create(self) -> None:
        """Create the ledger, to make sure that it can be written before anything is put."""
        self._append([])

    def append(self, put: Sequence[tuple[str, Letter]]) -> None:
        """Record letters as put. Each comes with the name of its target stream."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1_000, UTC)
        self._append([
            (
                target,
                letter.stream_name,
                letter.shard_id,
                letter.sequence_number,
                letter.sub_sequence_number or 0,
                letter.message_id,
                now,
                is_whole(letter),
            )
            for target, letter in put
        ])  # fmt: skip

    def _append(self, rows: list[tuple[object, ...]]) -> None:
        # One file for an append: without `coalesce`, one for each core.
        self._spark.createDataFrame(rows, LEDGER_DDL).coalesce(1).write.mode("append").parquet(
            self.path
        )


def is_whole(letter: Letter) -> bool:
    """Whether the letter is of an aggregate that was delivered whole. Without the payload, any
    record that was delivered without unpacking aggregates may be one.
    """
    if letter.sub_sequence_number is not None:
        return False
    return letter.data is None or letter.data.startswith(KPL_MAGIC)


def _root_of(path: str) -> str:
    """The path that holds the ledger: the parent, if `path` is the directory of one plan.

    The job overwrites that directory as a whole, and a later redrive may be given all plans.
    """
    parent, slash, last = path.rstrip("/").rpartition("/")
    if last.startswith("plan="):
        return parent if slash else "."
    return path.rstrip("/") or "/"
