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


def to_rows(
    records: pa.RecordBatch, *, stream: str, shard_id: str, attempts: pa.Array | None = None
) -> pa.RecordBatch:
    """Rows of `records`, which have the decoder's columns (`record_columns.PAGE_SCHEMA`).

    `attempts` (int32) are the delivery counts of retries; None means first deliveries.
    """
    count = records.num_rows
    sequence = records.column("sequenceNumber")
    attempt = (
        pa.repeat(pa.scalar(FIRST_ATTEMPT, pa.int32()), count) if attempts is None else attempts
    )
    message_id = pc.binary_join_element_wise(
        pa.scalar(shard_id), sequence, pc.cast(attempt, pa.string()), ":"
    )
    columns = [
        pa.repeat(pa.scalar(stream), count),
        pa.repeat(pa.scalar(shard_id), count),
        sequence,
        pa.repeat(pa.scalar(0, pa.int64()), count),
        records.column("partitionKey"),
        records.column("data"),
        records.column("approximateArrivalTimestamp"),
        attempt,
        message_id,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
