"""The rows of a page with aggregates, as Arrow columns: nothing runs per user record in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.aggregation.hash_range import IS_OWNED
from kinesis_spout.aggregation.user_records import open_aggregate, user_records
from scheme.record import KPL_MAGIC, SUB_SEQUENCE_NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from kinesis_spout.aggregation.hash_range import HashRange
    from kinesis_spout.aggregation.user_records import OpenAggregate, UserRecords

_SUB_FIELD = pa.field(SUB_SEQUENCE_NUMBER, pa.int64(), nullable=False)
_OWNED_FIELD = pa.field(IS_OWNED, pa.bool_(), nullable=False)
# What is unpacked at a time. A key of 1 KiB may be that of each row, so this bounds memory.
MAX_ROWS = 65_536
_FROM_AGGREGATE = ("data", "partitionKey")


def unpacked_rows(
    records: pa.RecordBatch, hash_range: Callable[[], HashRange | None], *, keep_others: bool
) -> Iterator[tuple[pa.RecordBatch, UserRecords]]:
    """The parts of a page, and the rows of each: its user records, and its plain records as they
    are. `parents` are indices in the part. A part ends when its aggregates have `MAX_ROWS` records.
    `keep_others`: with the rows that belong to other shards.
    """
    first = 0
    at: list[int] = []
    opened: list[OpenAggregate] = []
    rows = 0
    for index, payload in _candidates(records):
        aggregate = open_aggregate(payload)
        if aggregate is None:
            continue
        at.append(index - first)
        opened.append(aggregate)
        rows += len(aggregate.records)
        if rows >= MAX_ROWS:
            users = user_records(opened, hash_range(), keep_others=keep_others)
            part = records.slice(first, index + 1 - first)
            yield part, _with_plain_rows(part, at, users)
            first, at, opened, rows = index + 1, [], [], 0
    if first < records.num_rows:
        owned = hash_range() if opened else None
        users = user_records(opened, owned, keep_others=keep_others)
        part = records.slice(first)
        yield part, _with_plain_rows(part, at, users)


def batches(
    part: pa.RecordBatch, rows: UserRecords, *, with_owned: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a part, `MAX_ROWS` at a time. Columns that are not of a user record have what the
    row's parent has.
    """
    for first in range(0, len(rows.parents), MAX_ROWS):
        at = slice(first, first + MAX_ROWS)
        parents = _as_arrow(rows.parents[at])
        columns = {
            name: part.column(name).take(parents)
            for name in part.schema.names
            if name not in _FROM_AGGREGATE
        }
        columns["data"] = rows.data.take(_as_arrow(rows.data_at[at]))
        columns["partitionKey"] = rows.keys.take(_as_arrow(rows.keys_at[at]))
        schema = part.schema.append(_SUB_FIELD)
        arrays = [*(columns[name] for name in part.schema.names), _as_arrow(rows.subs[at])]
        if with_owned:
            schema = schema.append(_OWNED_FIELD)
            arrays.append(_flags(rows.is_owned[at]))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _candidates(records: pa.RecordBatch) -> Iterator[tuple[int, memoryview]]:
    """The records that begin with the magic number: their indices and payloads, not copied."""
    data = records.column("data")
    _, offsets, values = data.buffers()
    edges = memoryview(offsets).cast("i")[data.offset : data.offset + len(data) + 1]
    payloads = memoryview(values).cast("B")
    for index in pc.indices_nonzero(pc.starts_with(data, KPL_MAGIC)).to_pylist():
        yield index, payloads[edges[index] : edges[index + 1]]


def _with_plain_rows(part: pa.RecordBatch, at: list[int], users: UserRecords) -> UserRecords:
    """The rows of a part in which the records with the indices `at` were given as aggregates."""
    rows_at = np.array(at, np.int64)
    is_plain = np.ones(part.num_rows, np.bool_)
    is_plain[rows_at[users.is_aggregate]] = False
    rows = users._replace(parents=rows_at[users.parents])
    if not is_plain.any():
        return rows
    plain = np.flatnonzero(is_plain)
    parents = np.concatenate((plain, rows.parents))
    order = np.argsort(parents, kind="stable")
    # The values of plain records come first, so those of user records begin after them.
    count = part.num_rows
    return rows._replace(
        is_owned=np.concatenate((np.ones(len(plain), np.bool_), rows.is_owned))[order],
        parents=parents[order],
        subs=np.concatenate((np.zeros_like(plain), rows.subs))[order],
        data=pa.concat_arrays([part.column("data"), rows.data]),
        data_at=np.concatenate((plain, rows.data_at + count))[order],
        keys=pa.concat_arrays([part.column("partitionKey"), rows.keys]),
        keys_at=np.concatenate((plain, rows.keys_at + count))[order],
    )


def _flags(values: NDArray[np.bool_]) -> pa.Array:
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def _as_arrow(values: NDArray[np.int64]) -> pa.Array:
    """The values without a copy. Not by `pa.array`, which imports pandas."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
