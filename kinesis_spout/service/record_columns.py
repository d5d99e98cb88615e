"""The records of a page, column by column: as Python lists or as Arrow; and their payload bytes."""

from __future__ import annotations

from array import array
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

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
_LONG_PAYLOAD = 512  # bytes; for many shorter values `pa.array` is faster
_MANY = 1_000
_OBJECT_BYTES = 256  # per record: the overhead of Python's str, bytes and int objects


class RecordLists(NamedTuple):
    """Sequence numbers, partition keys, payloads, and arrival times (ms since 1970 UTC; 0 where
    the service gave none).
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
    """Records in one of two forms. Decoding creates lists, for callers that read record by record;
    `to_arrow` converts them, for callers that pass a page on as a whole.

    The records never change, but their form does: one thread at a time.
    """

    __slots__ = (
        "_batch",
        "_data",
        "_keys",
        "_nbytes",
        "_numbers",
        "_payload_bytes",
        "_read_bytes",
        "arrivals",
    )

    def __init__(
        self, numbers: list[str], keys: list[Any], data: list[Any], arrivals: pa.Array
    ) -> None:
        self._numbers = numbers
        self._keys = keys
        self._data = data
        self._batch: pa.RecordBatch | None = None
        self._payload_bytes: int | None = None
        self._read_bytes: int | None = None
        self._nbytes: int | None = None
        self.arrivals = arrivals

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> RecordColumns:
        """From a batch with the columns of `PAGE_SCHEMA`."""
        columns = cls([], [], [], batch.column("approximateArrivalTimestamp"))
        columns._hold(batch)
        return columns

    # Sizes are counted when they are first asked for: lists have to be walked, Arrow knows.

    @property
    def payload_bytes(self) -> int:
        """Length of the data of all records."""
        if self._payload_bytes is None:
            self._payload_bytes = (
                _length(self._data) if self._batch is None else _payload_bytes(self._batch)
            )
        return self._payload_bytes

    @property
    def read_bytes(self) -> int:
        """What counts towards the service's limits of a shard: data and partition keys. A key of a
        list counts its characters.
        """
        if self._read_bytes is None:
            self._read_bytes = self.payload_bytes + (
                _length(self._keys)
                if self._batch is None
                else _bytes_of(self._batch.column("partitionKey"))
            )
        return self._read_bytes

    @property
    def nbytes(self) -> int:
        """Memory, approximately, in the present form."""
        if self._nbytes is None:
            self._nbytes = (
                self.read_bytes + _OBJECT_BYTES * len(self._numbers)
                if self._batch is None
                else int(self._batch.nbytes)
            )
        return self._nbytes

    def to_arrow(self) -> pa.RecordBatch:
        """The columns of `PAGE_SCHEMA`. Converted by the first call, which drops the lists: they
        need more memory.
        """
        if self._batch is None:
            columns = [
                _as_arrow(self._numbers, pa.string()),
                _as_arrow(self._keys, pa.string()),
                _as_arrow(self._data, pa.binary()),
            ]
            return self._hold(
                pa.RecordBatch.from_arrays([*columns, self.arrivals], schema=PAGE_SCHEMA)
            )
        return self._batch

    def lists(self) -> RecordLists:
        """The lists themselves: callers must not change them."""
        arrivals = _milliseconds(self.arrivals)
        if self._batch is None:
            return RecordLists(self._numbers, self._keys, self._data, arrivals)
        numbers, keys, data = (
            self._batch.column(name).to_pylist() for name in PAGE_SCHEMA.names[:3]
        )
        return RecordLists(numbers, keys, data, arrivals)

    def up_to(self, count: int) -> RecordColumns:
        """The first `count` records, in the same form: Arrow is sliced, not copied."""
        if self._batch is not None:
            return RecordColumns.of(self._batch.slice(0, count))
        return RecordColumns(
            self._numbers[:count], self._keys[:count], self._data[:count], self.arrivals[:count]
        )

    def after(self, count: int) -> RecordColumns:
        """All but the first `count` records, in the same form: Arrow is sliced, not copied."""
        if self._batch is not None:
            return RecordColumns.of(self._batch.slice(count))
        return RecordColumns(
            self._numbers[count:], self._keys[count:], self._data[count:], self.arrivals[count:]
        )

    def first_number(self) -> str:
        """The sequence number of the first record, in either form."""
        if self._batch is None:
            return self._numbers[0]
        number: str = self._batch.column("sequenceNumber")[0].as_py()
        return number

    def last_number(self) -> str:
        """The sequence number of the last record, in either form."""
        if self._batch is None:
            return self._numbers[-1]
        number: str = self._batch.column("sequenceNumber")[-1].as_py()
        return number

    def last_arrival_ms(self) -> int | None:
        """Arrival of the last record, ms since 1970; None where the service gave none."""
        micros = self.arrivals[-1].value
        return None if micros is None else micros // 1_000

    def any_begins_with(self, prefix: bytes) -> bool:
        """Whether any payload begins with `prefix`. The loop runs in C."""
        if self._batch is not None:
            return bool(pc.any(pc.starts_with(self._batch.column("data"), prefix)).as_py())
        return prefix in map(itemgetter(slice(len(prefix))), filter(None, self._data))

    def _hold(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._batch = batch
        self._numbers, self._keys, self._data = [], [], []
        self._nbytes = None
        return batch


# Arrays of nulls: for arrays of Python values pyarrow imports pandas, which costs every process a
# third of a second.
NO_RECORDS = RecordColumns.of(
    pa.RecordBatch.from_arrays(
        [pa.nulls(0, field.type) for field in PAGE_SCHEMA], schema=PAGE_SCHEMA
    )
)


def payload_bytes(pages: Iterable[pa.RecordBatch]) -> int:
    """Length of the data of all records."""
    return sum(_payload_bytes(page) for page in pages)


def fitting_records(records: pa.RecordBatch, room_bytes: int, *, at_least: int) -> int:
    """How many of the first records have at most `room_bytes` of payload together."""
    if _payload_bytes(records) <= room_bytes:
        return int(records.num_rows)
    running = pc.cumulative_sum(pc.cast(pc.binary_length(records.column("data")), pa.int64()))
    return max(
        at_least, int(pc.sum(pc.cast(pc.less_equal(running, room_bytes), pa.int64())).as_py() or 0)
    )


def _payload_bytes(records: pa.RecordBatch) -> int:
    return _bytes_of(records.column("data"))


def _bytes_of(values: pa.Array) -> int:
    if not len(values):
        return 0
    # Arrow keeps where each value begins and ends: 32-bit offsets, and a null has no length.
    ends = memoryview(values.buffers()[1]).cast("i")
    return int(ends[values.offset + len(values)] - ends[values.offset])


def _as_arrow(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Texts or payloads as Arrow. `pa.array` imports pandas, and copies long payloads again
    wherever the memory that it has is used up. So only many short values go there.
    """
    if len(values) >= _MANY and len(values[0] or b"") < _LONG_PAYLOAD:
        return pa.array(values, kind)
    found = [value.encode() if isinstance(value, str) else value for value in values]
    known = None
    if None in found:
        known = pa.py_buffer(np.packbits([value is not None for value in found], bitorder="little"))
        found = [value or b"" for value in found]
    ends = array("i", accumulate(map(len, found), initial=0))
    buffers = [known, pa.py_buffer(ends), pa.py_buffer(b"".join(found))]
    return pa.Array.from_buffers(kind, len(found), buffers)


def _milliseconds(arrivals: pa.Array) -> list[int]:
    """Not by `to_pylist`, which takes twenty times as long in older versions of pyarrow."""
    values = arrivals.cast(_MS, safe=False).cast(pa.int64())
    if values.null_count:  # `fill_null` imports pandas
        values = values.fill_null(0)
    if not len(values):
        return []
    numbers = memoryview(values.buffers()[1]).cast("q")
    return numbers[values.offset : values.offset + len(values)].tolist()


def _length(values: list[Any]) -> int:
    return sum(map(len, filter(None, values)))
