"""The rows of a page with aggregates, as Arrow columns: nothing runs per user record in Python."""

from __future__ import annotations

from dataclasses import dataclass
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
    from kinesis_spout.aggregation.record_scan import Numbers
    from kinesis_spout.aggregation.user_records import OpenAggregate, UserRecords

_SUB_FIELD = pa.field(SUB_SEQUENCE_NUMBER, pa.int64(), nullable=False)
_OWNED_FIELD = pa.field(IS_OWNED, pa.bool_(), nullable=False)
# What is unpacked at a time. A key of 1 KiB may be that of each row, so this bounds memory.
MAX_ROWS = 65_536
_FROM_AGGREGATE = ("data", "partitionKey")


@dataclass(frozen=True, slots=True)
class UnpackedRows:
    """Rows of a part of a page. Row i has value `data_at[i]` of `data`, `keys_at[i]` of `keys`, and
    of the other columns what record `parents[i]` has. `is_owned[i]`: whether it belongs to the
    shard.
    """

    records: pa.RecordBatch
    parents: Numbers
    subs: Numbers
    data: pa.Array
    data_at: Numbers
    keys: pa.Array
    keys_at: Numbers
    left_out: int
    is_owned: NDArray[np.bool_]

    def batches(self, *, with_owned: bool) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(self.parents), MAX_ROWS):
            yield self._batch(slice(first, first + MAX_ROWS), with_owned=with_owned)

    def _batch(self, part: slice, *, with_owned: bool) -> pa.RecordBatch:
        schema = self.records.schema
        parents = _as_arrow(self.parents[part])
        columns = {
            name: self.records.column(name).take(parents)
            for name in schema.names
            if name not in _FROM_AGGREGATE
        }
        columns["data"] = self.data.take(_as_arrow(self.data_at[part]))
        columns["partitionKey"] = self.keys.take(_as_arrow(self.keys_at[part]))
        arrays = [*(columns[name] for name in schema.names), _as_arrow(self.subs[part])]
        schema = schema.append(_SUB_FIELD)
        if with_owned:
            arrays.append(_flags(self.is_owned[part]))
            schema = schema.append(_OWNED_FIELD)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def unpacked_rows(
    records: pa.RecordBatch, hash_range: Callable[[], HashRange | None], *, keep_others: bool
) -> Iterator[UnpackedRows]:
    """The rows of a page, part by part: a part ends when its aggregates have `MAX_ROWS` records.
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
            yield _rows(records.slice(first, index + 1 - first), at, users)
            first, at, opened, rows = index + 1, [], [], 0
    if first < records.num_rows:
        owned = hash_range() if opened else None
        users = user_records(opened, owned, keep_others=keep_others)
        yield _rows(records.slice(first), at, users)


def _candidates(records: pa.RecordBatch) -> Iterator[tuple[int, memoryview]]:
    """The records that begin with the magic number: their indices and payloads, not copied."""
    data = records.column("data")
    _, offsets, values = data.buffers()
    edges = memoryview(offsets).cast("i")[data.offset : data.offset + len(data) + 1]
    payloads = memoryview(values).cast("B")
    for index in pc.indices_nonzero(pc.starts_with(data, KPL_MAGIC)).to_pylist():
        yield index, payloads[edges[index] : edges[index + 1]]


def _rows(records: pa.RecordBatch, at: list[int], users: UserRecords) -> UnpackedRows:
    """The rows of records of which those with the indices `at` are aggregates."""
    rows_at = np.array(at, np.int64)
    is_plain = np.ones(records.num_rows, np.bool_)
    is_plain[rows_at[users.is_aggregate]] = False
    parents = rows_at[users.aggregates]
    if not is_plain.any():
        return UnpackedRows(
            records,
            parents,
            users.subs,
            users.data,
            users.data_at,
            users.keys,
            users.keys_at,
            users.left_out,
            users.is_owned,
        )
    plain = np.flatnonzero(is_plain)
    order = np.argsort(np.concatenate((plain, parents)), kind="stable")
    count = records.num_rows
    return UnpackedRows(
        records,
        np.concatenate((plain, parents))[order],
        np.concatenate((np.zeros_like(plain), users.subs))[order],
        pa.concat_arrays([records.column("data"), users.data]),
        np.concatenate((plain, users.data_at + count))[order],
        pa.concat_arrays([records.column("partitionKey"), users.keys]),
        np.concatenate((plain, users.keys_at + count))[order],
        users.left_out,
        np.concatenate((np.ones(len(plain), np.bool_), users.is_owned))[order],
    )


def _flags(values: NDArray[np.bool_]) -> pa.Array:
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def _as_arrow(values: NDArray[np.int64]) -> pa.Array:
    """The values without a copy. Not by `pa.array`, which imports pandas."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
