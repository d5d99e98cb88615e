"""Rows for Spark from decoded pages, as Arrow columns: no Python code runs per record."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

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
FIRST_ATTEMPT = 1


def to_rows(
    records: pa.RecordBatch, *, stream: str, shard_id: str, attempts: pa.Array | None = None
) -> pa.RecordBatch:
    """Rows of `records`, which have the decoder's columns (`record_columns.PAGE_SCHEMA`).

    `attempts` (int32) are the delivery counts of retries; None means first deliveries.
    """
    count = records.num_rows
    sequence = records.column("sequenceNumber")
    first, first_text, no_sub = _constants()
    attempt = pa.repeat(first, count) if attempts is None else attempts
    attempt_text = first_text if attempts is None else attempts.cast(pa.string())
    shard = pa.scalar(shard_id)
    message_id = pc.binary_join_element_wise(shard, sequence, attempt_text, ":")
    columns = [
        pa.repeat(stream, count),
        pa.repeat(shard, count),
        sequence,
        pa.repeat(no_sub, count),
        records.column("partitionKey"),
        records.column("data"),
        records.column("approximateArrivalTimestamp"),
        attempt,
        message_id,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


@cache
def _constants() -> tuple[pa.Scalar, pa.Scalar, pa.Scalar]:
    """The first attempt as a number and as a text, and no sub-sequence number. Not made on import:
    the first scalar imports pandas, if it is there.
    """
    return pa.scalar(FIRST_ATTEMPT, pa.int32()), pa.scalar(str(FIRST_ATTEMPT)), pa.scalar(0)
