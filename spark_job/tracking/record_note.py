"""The rows that `map_records` adds to its output: failure notes and summaries.

A failure note stands for one failed record, and holds the record itself. A summary counts the rows
of one stretch of a shard. Both are in the column `NOTE`, which is NULL in a row of output. They are
persisted together with the output, so that all of them come from one evaluation.

The column is a list of one note. As a struct it would have the bytes of all its fields in each row
of output too, where it is NULL: a hundred, which Python writes and Spark reads. A list has four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kinesis_spout.errors import text_of
from spark_job.tracking.outcomes import FailedRecord, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOTE = "_ks_note"
SUMMARY = 0
"""The `outcome` of a summary. That of a failure note is the record's `Outcome`."""
_TIME = pa.timestamp("us", tz="UTC")
ORIGINAL: dict[str, tuple[pa.DataType, str]] = {
    "messageId": (pa.string(), "STRING"),
    "streamName": (pa.string(), "STRING"),
    "shardId": (pa.string(), "STRING"),
    "sequenceNumber": (pa.string(), "STRING"),
    "subSequenceNumber": (pa.int64(), "BIGINT"),
    "partitionKey": (pa.string(), "STRING"),
    "data": (pa.binary(), "BINARY"),
    "approximateArrivalTimestamp": (_TIME, "TIMESTAMP"),
}
"""The record's columns in a failure note, for its dead letter: name, Arrow type, Spark type."""
_OWN: dict[str, tuple[pa.DataType, str]] = {
    "run": (pa.string(), "STRING"),
    "outcome": (pa.int32(), "INT"),
    "reason": (pa.string(), "STRING"),
    "afterS": (pa.float64(), "DOUBLE"),
    "key": (pa.string(), "STRING"),
    "ordinal": (pa.int64(), "BIGINT"),
    "newCount": (pa.int64(), "BIGINT"),
    "newFirst": (pa.string(), "STRING"),
    "newLast": (pa.string(), "STRING"),
    "retryRows": (pa.int64(), "BIGINT"),
}
FIELDS = {**_OWN, **ORIGINAL}
COLLECTED = (*_OWN, "messageId", "shardId")
_STRUCT_TYPE = pa.struct([(name, arrow) for name, (arrow, _) in FIELDS.items()])
_STRUCT_DDL = f"STRUCT<{', '.join(f'{name}: {ddl}' for name, (_, ddl) in FIELDS.items())}>"
NOTE_TYPE = pa.list_(pa.field("element", _STRUCT_TYPE))
NOTE_DDL = f"{NOTE} ARRAY<{_STRUCT_DDL}>"
NOTE_SQL = f"{NOTE}[0]"
"""The note of a row that has one, in Spark's SQL."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How one record failed, on the executor. The fields are those of `FailedRecord`."""

    outcome: Outcome
    reason: str | None = None
    after_s: float | None = None
    key: str | None = None


def failure_notes(
    batch: pa.RecordBatch, failures: Mapping[int, Failure], ordinals: Mapping[int, int], run: str
) -> pa.ListArray:
    """Failure notes for rows of a source batch, in the order of the rows.

    `failures` and `ordinals` are by row index. `run` is the id of the evaluation.
    """
    indexes = sorted(failures)
    noted = [failures[index] for index in indexes]
    rows = batch.take(pa.array(indexes, pa.int64()))
    columns: dict[str, Sequence[Any] | pa.Array] = {
        "run": [run] * len(indexes),
        "outcome": [int(one.outcome) for one in noted],
        "reason": [one.reason and text_of(one.reason) for one in noted],
        "afterS": [one.after_s for one in noted],
        "key": [one.key for one in noted],
        "ordinal": [ordinals[index] for index in indexes],
        **{name: rows.column(name) for name in ORIGINAL},
    }
    return _notes(columns, len(indexes))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows of one shard: the count, first and last of the new ones, and the retries."""

    shard_id: str
    new_count: int
    new_first: str | None
    new_last: str | None
    retry_rows: int


def summary_notes(stretches: Sequence[Stretch], run: str) -> pa.ListArray:
    """A summary for each stretch."""
    count = len(stretches)
    columns: dict[str, Sequence[Any] | pa.Array] = {
        "run": [run] * count,
        "outcome": [SUMMARY] * count,
        "newCount": [one.new_count for one in stretches],
        "newFirst": [one.new_first for one in stretches],
        "newLast": [one.new_last for one in stretches],
        "retryRows": [one.retry_rows for one in stretches],
        "shardId": [one.shard_id for one in stretches],
    }
    return _notes(columns, count)


def no_notes(count: int) -> pa.ListArray:
    """The column of so many rows of output."""
    # Not pa.nulls: it gives the empty fields buffers for all rows.
    return pa.array([None] * count, NOTE_TYPE)


def _notes(columns: Mapping[str, Sequence[Any] | pa.Array], count: int) -> pa.ListArray:
    arrays = [
        _typed(columns[name], arrow) if name in columns else pa.nulls(count, arrow)
        for name, (arrow, _) in FIELDS.items()
    ]
    notes = pa.StructArray.from_arrays(arrays, fields=list(_STRUCT_TYPE))
    return pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), notes, type=NOTE_TYPE)


def _typed(values: Sequence[Any] | pa.Array, arrow: pa.DataType) -> pa.Array:
    return values.cast(arrow) if isinstance(values, pa.Array) else pa.array(values, arrow)


def failed_record(row: Mapping[str, Any]) -> FailedRecord:
    """A collected failure note as a failed record."""
    return FailedRecord.of(
        row["messageId"],
        Outcome(row["outcome"]),
        reason=row["reason"],
        after_s=row["afterS"],
        key=row["key"],
        ordinal=row["ordinal"],
    )
