"""What has been put back of the dead letters under a path: parquet files in `_redriven` there,
which readers of the letters skip.

A record is known by its stream, shard and sequence number, whatever attempt its letter is of, and
for each stream that it was put on: a trial on another stream does not keep it from its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.clock import Clock
    from spark_job.dead_letter.letter import Letter

FOLDER = "_redriven/ledger"  # readers skip names with an underscore, and Spark warns of a path that ends in one
IDENTITY = ("target", "streamName", "shardId", "sequenceNumber", "subSequenceNumber")
LEDGER_DDL = (
    "target STRING, streamName STRING, shardId STRING, sequenceNumber STRING, subSequenceNumber "
    "BIGINT, "
    "messageId STRING, redrivenAt TIMESTAMP"
)
_ABSENT = frozenset({"PATH_NOT_FOUND"})


class RedriveLedger:
    """The ledger of one path. Methods block on Spark and the file system, and raise what they
    raise.
    """

    def __init__(self, spark: SparkSession, path: str, clock: Clock) -> None:
        self._spark = spark
        self._clock = clock
        self.path = f"{_root_of(path)}/{FOLDER}"

    def read(self) -> DataFrame:
        """All entries (columns of LEDGER_DDL); none where nothing was ever put back."""
        try:
            return self._spark.read.schema(LEDGER_DDL).parquet(self.path)
        except AnalysisException as exc:
            if exc.getCondition() not in _ABSENT:
                raise
            return self._spark.createDataFrame([], LEDGER_DDL)

    def create(self) -> None:
        """Make sure that it can be written, before anything is put that it would have
        to remember.
        """
        self._append([])

    def append(self, put: Sequence[tuple[str, Letter]]) -> None:
        """Remember letters as put on the stream that is named beside each."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1_000, UTC)
        self._append([
            (
                target,
                letter.stream_name,
                letter.shard_id,
                letter.sequence_number,
                letter.sub_sequence_number,
                letter.message_id,
                now,
            )
            for target, letter in put
        ])  # fmt: skip

    def _append(self, rows: list[tuple[object, ...]]) -> None:
        self._spark.createDataFrame(rows, LEDGER_DDL).coalesce(1).write.mode("append").parquet(
            self.path
        )


def _root_of(path: str) -> str:
    """Where the ledger belongs: for one plan's directory beside it, since that is replaced as a
    whole, and another run may be given all plans.
    """
    parent, slash, last = path.rstrip("/").rpartition("/")
    if last.startswith("plan="):
        return parent if slash else "."
    return path.rstrip("/") or "/"
