"""`Redrive`: puts dead letters back on the stream that they came from, each record once.

    spark = SparkSession.builder.getOrCreate()
    work = Redrive.open(spark, "s3a://bucket/dead/orders", aws=AwsConfig(region="eu-central-1"))
    print(work.find())
    work.put()

A ledger beside the letters (`_redriven`) records the letters that were put, after every 500 of
them. So a second run puts nothing twice, and after a kill at most the last 500 are put again. Do
not start two runs on one path at a time: each would put all letters.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.service.botocore_connection import KinesisConnection
from kinesis_spout.service.record_putter import RecordPutter
from spark_job.dead_letter.letter import in_chunks
from spark_job.dead_letter.payload_records import payload_records
from spark_job.dead_letter.redrive_ledger import RedriveLedger
from spark_job.dead_letter.redrive_letters import Found, RedriveLetters, Selection, format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from kinesis_spout.service.record_putter import OutgoingRecord
    from spark_job.dead_letter.letter import Letter

__all__ = ["Found", "Redrive", "Selection"]

_EVERYTHING = Selection()
_DEFAULT_AWS = AwsConfig()
_SYSTEM_CLOCK = SystemClock()


def _never() -> bool:
    return False


def _ignore(_put: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True)
class Redrive:
    """Dead letters under a path, to be put back on their stream.

    Methods block on Spark and on Kinesis. Call them from one thread at a time. They raise
    `kinesis_spout.errors.KinesisError`, of which `RedriveError` is about the files, and Spark's
    errors.
    """

    letters: RedriveLetters
    ledger: RedriveLedger
    aws: AwsConfig
    target: StreamRef | None

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        path: str,
        *,
        format: str | None = None,  # noqa: A002  # Spark's name for it
        selection: Selection = _EVERYTHING,
        aws: AwsConfig = _DEFAULT_AWS,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> Redrive:
        """Find the files. Without `format` (parquet, json or orc), their names decide."""
        ledger = RedriveLedger(spark, path, clock)
        letters = RedriveLetters(spark, path, format or format_of(spark, path), selection, ledger)
        return cls(letters, ledger, aws, selection.target)

    def find(self) -> Found:
        """Count the letters that are to be put, and those that are not. Changes nothing."""
        return self.letters.find()

    def put(
        self,
        *,
        limit: int | None = None,
        stopping: Callable[[], bool] = _never,
        progress: Callable[[int], object] = _ignore,
    ) -> int:
        """Put the letters back, at most `limit` of them. Returns how many were put.

        At least once, see the module docstring. Letters are put in chunks of at most 500, with at
        most 32 MiB of payload unless one letter alone has more. `stopping` is
        called before each chunk, and True ends the run. `progress` is called after each chunk, with
        the number of letters put so far.
        """
        count = 0
        self.ledger.create()  # fails now if the ledger cannot be written, before anything is put
        with ExitStack() as stack:
            putters: dict[str, RecordPutter] = {}
            for chunk in in_chunks(islice(self.letters.to_put(), limit), itemgetter(1)):
                if stopping():
                    break
                for target in {name for name, _ in chunk} - putters.keys():
                    putters[target] = stack.enter_context(closing(self._putter(target)))
                pending = _PendingChunk(chunk)
                try:
                    for target in sorted({name for name, _ in chunk}):
                        putters[target].put(pending.records(target), pending.on_accepted)
                finally:
                    # Also when the service refuses one for good: a later run puts the others again
                    # otherwise, and so does every run after it.
                    if put := pending.put_letters():
                        self.ledger.append(put)
                        count += len(put)
                        progress(count)
        return count

    def _putter(self, target: str) -> RecordPutter:
        return RecordPutter(KinesisConnection(self.aws, self.target or StreamRef.parse(target)))


class _PendingChunk:
    """The letters of a chunk, and which of their records were not put yet."""

    def __init__(self, chunk: Sequence[tuple[str, Letter]]) -> None:
        self._letters = [
            (target, letter, [] if letter.data is None else payload_records(letter))
            for target, letter in chunk
        ]
        # By identity: two letters may become equal records, and each of them must be put.
        self._unput = {id(record) for _, _, records in self._letters for record in records}

    def records(self, target: str) -> list[OutgoingRecord]:
        return [
            record for name, _, records in self._letters if name == target for record in records
        ]

    def on_accepted(self, record: OutgoingRecord, _shard_id: str | None) -> None:
        self._unput.discard(id(record))

    def put_letters(self) -> list[tuple[str, Letter]]:
        """The letters of which every record was put."""
        return [
            (target, letter)
            for target, letter, records in self._letters
            if self._unput.isdisjoint(map(id, records))
        ]
