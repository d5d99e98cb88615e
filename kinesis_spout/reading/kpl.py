"""Detection of records that the Kinesis Producer Library (KPL) aggregated."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.errors import KinesisError
from scheme.record import KPL_MAGIC, is_kpl_aggregate


class AggregatedRecordError(KinesisError):
    """A record is a KPL aggregate. Nothing was read past it."""


REMEDY = (
    "set option aggregatedRecords to unpack for its user records, or set aggregatedRecords to raw "
    "for its bytes"
)


def refuse_aggregates(records: pa.RecordBatch, shard_id: str, *, remedy: str = REMEDY) -> None:
    """Raise `AggregatedRecordError` for the first KPL aggregate: it contains several user records
    and must not be returned as one. `remedy`: the end of the error's sentence.
    """
    candidates = pc.starts_with(records.column("data"), KPL_MAGIC)
    if not candidates.true_count:
        return
    for index in pc.indices_nonzero(candidates).to_pylist():
        if is_kpl_aggregate(records.column("data")[index].as_py()):
            sequence = records.column("sequenceNumber")[index]
            raise AggregatedRecordError(
                f"record {sequence} of shard {shard_id} is a KPL aggregate; {remedy}"
            )
