"""Rows for Spark from decoded pages, as Arrow columns: no Python code runs per record."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def to_rows(
    records: pa.RecordBatch,
    *,
    stream: str,
    shard_id: str,
    attempts: pa.Array | None = None,
    columns: Sequence[str] = COLUMNS,
) -> pa.RecordBatch:
    """Rows of `records`, which have the decoder's columns (`record_columns.PAGE_SCHEMA`).

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
    sequence = records.column("sequenceNumber")
    return pc.binary_join_element_wise(pa.scalar(shard_id), sequence, attempt_text, ":")


@cache
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([ARROW_SCHEMA.field(name) for name in columns])


@cache
def _constants() -> tuple[pa.Scalar, pa.Scalar, pa.Scalar]:
    """The first attempt as a number and as a text, and no sub-sequence number. Not made on import:
    the first scalar imports pandas, if it is there.
    """
    return pa.scalar(FIRST_ATTEMPT, pa.int32()), pa.scalar(str(FIRST_ATTEMPT)), pa.scalar(0)
