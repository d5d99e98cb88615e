"""From decoded pages to the rows that Spark gets: Arrow columns, no Python per record."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.errors import KinesisError
from scheme.record import KPL_MAGIC, is_kpl_aggregate

SCHEMA_DDL = (
    "streamName STRING, shardId STRING, sequenceNumber STRING, subSequenceNumber BIGINT, partitionKey STRING, "
    "data BINARY, approximateArrivalTimestamp TIMESTAMP, attempt INT, messageId STRING"
)
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


class AggregatedRecordError(KinesisError):
    """A record that the Kinesis Producer Library aggregated. Nothing was read past it."""


def to_rows(records: pa.RecordBatch, *, stream: str, shard_id: str, attempts: pa.Array | None = None) -> pa.RecordBatch:
    """Rows of records, which have the decoder's columns: of new ones, or of the deliveries that `attempts` (int32) counts."""
    count = records.num_rows
    sequence = records.column("sequenceNumber")
    attempt = pa.repeat(pa.scalar(FIRST_ATTEMPT, pa.int32()), count) if attempts is None else attempts
    message_id = pc.binary_join_element_wise(pa.scalar(shard_id), sequence, pc.cast(attempt, pa.string()), ":")
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


def refuse_aggregates(records: pa.RecordBatch, shard_id: str) -> None:
    """Raise `AggregatedRecordError` for the first KPL aggregate: its bytes are no user's record and must not pass for one."""
    candidates = pc.equal(pc.binary_slice(records.column("data"), 0, len(KPL_MAGIC)), pa.scalar(KPL_MAGIC))
    if not pc.any(candidates, min_count=0).as_py():
        return
    for index in pc.indices_nonzero(candidates).to_pylist():
        if is_kpl_aggregate(records.column("data")[index].as_py()):
            sequence = records.column("sequenceNumber")[index]
            raise AggregatedRecordError(
                f"record {sequence} of shard {shard_id} is a KPL aggregate, which is not supported yet; "
                "switch aggregation off in the producer, or set option aggregatedRecords to raw and unpack the records yourself"
            )
