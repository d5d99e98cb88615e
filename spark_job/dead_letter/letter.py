"""A dead letter: a record that could not be processed, and why. As Spark columns and in Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

_T = TypeVar("_T")
CHUNK_LETTERS = 500
CHUNK_BYTES = 32 * 1024 * 1024
LETTER_DDL = (
    "messageId STRING, streamName STRING, shardId STRING, sequenceNumber STRING, "
    "subSequenceNumber BIGINT, partitionKey STRING, data BINARY, "
    "approximateArrivalTimestamp TIMESTAMP, attempts INT, firstFailure TIMESTAMP, "
    "lastFailure TIMESTAMP, reason STRING, application STRING"
)
LETTER_COLUMNS = tuple(column.split()[0] for column in LETTER_DDL.split(", "))
_TIMES = frozenset({"approximateArrivalTimestamp", "firstFailure", "lastFailure"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter.

    Times are in UTC. `attempts` counts the deliveries that failed. `data` is None if the record was
    gone from the stream before its retry. `sub_sequence_number` is None for a record that was
    delivered while aggregates were not unpacked: if it is one, `data` is all of it. The repr shows
    neither payload nor partition key.
    """

    message_id: str
    stream_name: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int | None
    partition_key: str | None = field(repr=False)
    data: bytes | None = field(repr=False)
    approximate_arrival: datetime | None
    attempts: int
    first_failure: datetime | None
    last_failure: datetime | None
    reason: str
    application: str


def letters_with_plain_times(letters: DataFrame, *others: str) -> DataFrame:
    """The columns of a letter in order, then `others`, with times as microseconds since 1970 UTC.

    A timestamp column would change with the time zone of the Python process.
    """
    plain = (
        F.unix_micros(name).alias(name) if name in _TIMES else F.col(name)
        for name in LETTER_COLUMNS
    )
    return letters.select(*plain, *others)


def letter_of(row: Any) -> Letter:
    """A row of `letters_with_plain_times` as a Letter."""
    return Letter(
        message_id=row["messageId"],
        stream_name=row["streamName"],
        shard_id=row["shardId"],
        sequence_number=row["sequenceNumber"],
        sub_sequence_number=row["subSequenceNumber"],
        partition_key=row["partitionKey"],
        data=None if row["data"] is None else bytes(row["data"]),
        approximate_arrival=moment(row["approximateArrivalTimestamp"]),
        attempts=row["attempts"] or 0,
        first_failure=moment(row["firstFailure"]),
        last_failure=moment(row["lastFailure"]),
        reason=row["reason"] or "",
        application=row["application"] or "",
    )


def moment(micros: int | None) -> datetime | None:
    """The time in UTC of these microseconds since 1970; None for None."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def in_chunks(items: Iterable[_T], letter: Callable[[_T], Letter]) -> Iterator[list[_T]]:
    """The items in lists of at most 500, with at most 32 MiB of payload unless one letter alone has
    more. `letter`: of an item. No list is empty.
    """
    chunk: list[_T] = []
    room = CHUNK_BYTES
    for item in items:
        size_bytes = len(letter(item).data or b"")
        if chunk and (len(chunk) == CHUNK_LETTERS or size_bytes > room):
            yield chunk
            chunk, room = [], CHUNK_BYTES
        chunk.append(item)
        room -= size_bytes
    if chunk:
        yield chunk
