"""Dead letters, for tests that write them and put them back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kinesis_spout.dead_letter.letter import COLUMNS, LETTER_DDL, Letter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_FAILURE = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Story:
    """The values that a test's letters share."""

    stream: str = "orders"
    shard: str = "shardId-000000000000"
    reason: str = "ValueError: no such order"

    def letter(self, number: int) -> Letter:
        """Letter `number`. Its record failed `number` minutes after the first record, and for the
        last time an hour later.
        """
        failed = FIRST_FAILURE + timedelta(minutes=number)
        return Letter(
            message_id=f"{self.shard}:{1000 + number}:4",
            stream_name=self.stream,
            shard_id=self.shard,
            sequence_number=str(1000 + number),
            sub_sequence_number=0,
            partition_key=f"key {number}",
            data=b"\xff\x00 order %d" % number,
            approximate_arrival=failed - timedelta(seconds=1),
            attempts=4,
            first_failure=failed,
            last_failure=failed + timedelta(hours=1),
            reason=self.reason,
            application="orders-etl",
        )

    def letters(self, count: int) -> list[Letter]:
        return [self.letter(number) for number in range(count)]


def gone(letter: Letter) -> Letter:
    """The letter of a record that passed the stream's retention before its retry."""
    return replace(
        letter,
        data=None,
        partition_key=None,
        approximate_arrival=None,
        reason="past the stream's retention",
    )


def frame_of(spark: SparkSession, letters: list[Letter], *, partitions: int = 2) -> DataFrame:
    """The letters as `tracked` hands them to a sink."""
    return spark.createDataFrame([row_of(letter) for letter in letters], LETTER_DDL).repartition(
        partitions
    )


def row_of(letter: Letter) -> tuple[object, ...]:
    return tuple(getattr(letter, column.field) for column in COLUMNS)


def records_of(letters: list[Letter]) -> list[tuple[str | None, bytes | None]]:
    """Key and payload of each."""
    return [(letter.partition_key, letter.data) for letter in letters]
