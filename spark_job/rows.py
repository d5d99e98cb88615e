"""Rows for Spark from decoded pages, as Arrow columns: no Python code runs per record.

A record is a row, or each user record of an aggregate is.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.aggregation.unpacking import Unpacker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinesis_spout.aggregation.hash_range import HashRange

log = logging.getLogger("kinesis_spout")

ARROW_SCHEMA = pa.schema(
    [
        ("streamName", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("partitionKey", pa.string()),
        ("data", pa.binary()),
        ("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
        ("attempt", pa.int32()),
        ("messageId", pa.string()),
    ]
)
COLUMNS = tuple(ARROW_SCHEMA.names)
FIRST_ATTEMPT = 1
UNPACK = "unpack"


class ShardRows:
    """Rows of one shard, for one thread.

    - `aggregated_records`: the option; only `unpack` changes the records here.
    - `hash_range`: called when the first aggregate is met, and may block; None: not known.
    - `columns`: of `spark_job.rows`, those that are wanted.
    """

    def __init__(
        self,
        shard_id: str,
        *,
        stream: str,
        aggregated_records: str,
        hash_range: Callable[[], HashRange | None],
        columns: Sequence[str],
    ) -> None:
        self._shard_id = shard_id
        self._stream = stream
        self._columns = columns
        self._unpacker = Unpacker(hash_range) if aggregated_records == UNPACK else None

    def of(
        self, records: pa.RecordBatch, attempts: pa.Array | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of `records`, which have the decoder's columns, in their order. `attempts`: as
        of `to_rows`. Raises what `hash_range` raises.
        """
        if self._unpacker is None:
            yield self._rows(records, attempts)
            return
        if attempts is not None:
            records = records.append_column("attempt", attempts)
        left_out = self._unpacker.left_out
        for part in self._unpacker.unpack(records):
            yield self._rows(part, None if attempts is None else part.column("attempt"))
        if self._unpacker.left_out and not left_out:
            log.warning(
                "shard %s of stream %s: user records of aggregates are left out, because their "
                "hash keys belong to other shards; a producer that follows the shards has put "
                "them there again (%d so far, later ones are not logged)",
                self._shard_id,
                self._stream,
                self._unpacker.left_out,
            )

    def _rows(self, records: pa.RecordBatch, attempts: pa.Array | None) -> pa.RecordBatch:
        return to_rows(
            records,
            stream=self._stream,
            shard_id=self._shard_id,
            attempts=attempts,
            columns=self._columns,
        )


def to_rows(
    records: pa.RecordBatch,
    *,
    stream: str,
    shard_id: str,
    attempts: pa.Array | None = None,
    columns: Sequence[str] = COLUMNS,
) -> pa.RecordBatch:
    """Rows of `records`, which have the decoder's columns (`record_columns.PAGE_SCHEMA`), or those
    of an `Unpacker`.

    `attempts` (int32) are the delivery counts of retries; None means first deliveries. `columns`:
    those of `ARROW_SCHEMA` that are wanted, in their order; the others are not made.
    """
    return pa.RecordBatch.from_arrays(
        [_column(name, records, stream, shard_id, attempts) for name in columns],
        schema=_schema(tuple(columns)),
    )


def _column(
    name: str, records: pa.RecordBatch, stream: str, shard_id: str, attempts: pa.Array | None
) -> pa.Array:
    if name in records.schema.names:
        return records.column(name)
    count = records.num_rows
    first, first_text, no_sub = _constants()
    match name:
        case "streamName":
            return pa.repeat(stream, count)
        case "shardId":
            return pa.repeat(shard_id, count)
        case "subSequenceNumber":
            return pa.repeat(no_sub, count)
        case "attempt":
            return pa.repeat(first, count) if attempts is None else attempts
    attempt_text = first_text if attempts is None else attempts.cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(shard_id), _numbers(records), attempt_text, ":")


def _numbers(records: pa.RecordBatch) -> pa.Array:
    """Sequence numbers as `SequenceNumber` writes them: a sub-sequence number of 0 is left out."""
    sequence = records.column("sequenceNumber")
    if "subSequenceNumber" not in records.schema.names:
        return sequence
    sub = records.column("subSequenceNumber")
    both = pc.binary_join_element_wise(sequence, sub.cast(pa.string()), ".")
    return pc.if_else(pc.equal(sub, 0), sequence, both)


@cache
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([ARROW_SCHEMA.field(name) for name in columns])


@cache
def _constants() -> tuple[pa.Scalar, pa.Scalar, pa.Scalar]:
    """The first attempt as a number and as a text, and no sub-sequence number. Not made on import:
    the first scalar imports pandas, if it is there.
    """
    return pa.scalar(FIRST_ATTEMPT, pa.int32()), pa.scalar(str(FIRST_ATTEMPT)), pa.scalar(0)
