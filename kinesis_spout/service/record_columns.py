"""The records of a page, column by column: as the lists that they were decoded into, or
as Arrow.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from kinesis_spout.service.payload import payload_bytes

ARRIVAL_TYPE = pa.timestamp("us", tz="UTC")
PAGE_SCHEMA = pa.schema(
    [
        pa.field("sequenceNumber", pa.string(), nullable=False),
        pa.field("partitionKey", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("approximateArrivalTimestamp", ARRIVAL_TYPE),
    ]
)
_MS = pa.timestamp("ms", tz="UTC")
_OBJECT_BYTES = 256  # what Python needs for the texts, the bytes and the numbers of a record, besides what is in them


class RecordLists(NamedTuple):
    """Sequence numbers, partition keys, payloads, arrival times (ms since 1970 UTC; 0 where the
    service did not tell).
    """

    numbers: list[str]
    keys: list[Any]
    data: list[Any]
    arrivals: list[int]

    def part(self, first: int, end: int) -> RecordLists:
        return RecordLists(
            self.numbers[first:end],
            self.keys[first:end],
            self.data[first:end],
            self.arrivals[first:end],
        )


NO_LISTS = RecordLists([], [], [], [])


class RecordColumns:
    """Decoding gives lists. Who takes the records one by one has them so at once; `to_arrow` is for
    who passes them on in one.

    `nbytes`: about what it takes in memory. The records never change, the form does: for one thread
    at a time.
    """

    __slots__ = ("_batch", "_data", "_keys", "_numbers", "arrivals", "nbytes", "payload_bytes")

    def __init__(
        self, numbers: list[str], keys: list[Any], data: list[Any], arrivals: pa.Array
    ) -> None:
        self._numbers = numbers
        self._keys = keys
        self._data = data
        self._batch: pa.RecordBatch | None = None
        self.arrivals = arrivals
        self.payload_bytes = _length(data)
        self.nbytes = self.payload_bytes + _length(keys) + _OBJECT_BYTES * len(numbers)

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> RecordColumns:
        """Of the columns of `PAGE_SCHEMA`."""
        columns = cls([], [], [], batch.column("approximateArrivalTimestamp"))
        columns.payload_bytes = payload_bytes([batch])
        columns._hold(batch)
        return columns

    def to_arrow(self) -> pa.RecordBatch:
        """The columns of `PAGE_SCHEMA`. Made when it is first asked for; the lists are let go then,
        as they take more memory.
        """
        if self._batch is None:
            columns = [
                pa.array(self._numbers, pa.string()),
                pa.array(self._keys, pa.string()),
                pa.array(self._data, pa.binary()),
            ]
            return self._hold(
                pa.RecordBatch.from_arrays([*columns, self.arrivals], schema=PAGE_SCHEMA)
            )
        return self._batch

    def lists(self) -> RecordLists:
        """The lists themselves: not to be changed."""
        arrivals = self.arrivals.cast(_MS, safe=False).cast(pa.int64()).fill_null(0).to_pylist()
        if self._batch is None:
            return RecordLists(self._numbers, self._keys, self._data, arrivals)
        numbers, keys, data = (
            self._batch.column(name).to_pylist() for name in PAGE_SCHEMA.names[:3]
        )
        return RecordLists(numbers, keys, data, arrivals)

    def up_to(self, count: int) -> RecordColumns:
        """The first so many."""
        numbers, keys, data, _ = self.lists().part(0, count)
        return RecordColumns(numbers, keys, data, self.arrivals[:count])

    def any_begins_with(self, prefix: bytes) -> bool:
        """Whether a payload does. At the speed of a loop in C."""
        data = self._data if self._batch is None else self.lists().data
        return prefix in map(itemgetter(slice(len(prefix))), filter(None, data))

    def _hold(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._batch = batch
        self._numbers, self._keys, self._data = [], [], []
        self.nbytes = batch.nbytes
        return batch


def _length(values: list[Any]) -> int:
    return sum(map(len, filter(None, values)))


# Of nulls: to make arrays of Python's values, pyarrow imports pandas, which takes a third of a
# second in every process.
NO_RECORDS = RecordColumns.of(
    pa.RecordBatch.from_arrays(
        [pa.nulls(0, field.type) for field in PAGE_SCHEMA], schema=PAGE_SCHEMA
    )
)
