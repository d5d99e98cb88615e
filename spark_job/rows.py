"""Rows for Spark from decoded pages, as Arrow columns: no Python code runs per record."""

from __future__ import annotations

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
_FIRST = pa.scalar(FIRST_ATTEMPT, pa.int32())
_FIRST_TEXT = pa.scalar(str(FIRST_ATTEMPT))
_NO_SUB = pa.scalar(0, pa.int64())


def to_rows(
    records: pa.RecordBatch, *, stream: str, shard_id: str, attempts: pa.Array | None = None
) -> pa.RecordBatch:
    """Rows of `records`, which have the decoder's columns (`record_columns.PAGE_SCHEMA`).

    `attempts` (int32) are the delivery counts of retries; None means first deliveries.
    """
    count = records.num_rows
    sequence = records.column("sequenceNumber")
    attempt = pa.repeat(_FIRST, count) if attempts is None else attempts
    attempt_text = _FIRST_TEXT if attempts is None else attempts.cast(pa.string())
    shard = pa.scalar(shard_id)
    message_id = pc.binary_join_element_wise(shard, sequence, attempt_text, ":")
    columns = [
        pa.repeat(stream, count),
        pa.repeat(shard, count),
        sequence,
        pa.repeat(_NO_SUB, count),
        records.column("partitionKey"),
        records.column("data"),
        records.column("approximateArrivalTimestamp"),
        attempt,
        message_id,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
