"""Decoding of GetRecords bodies into columns.

msgspec parses the JSON and the base64 in one pass into typed structs, and the columns are taken
from these. botocore's own parser creates dicts and datetimes instead, which costs more than all the
rest of reading (benchmarks/decode.py measures it). The values are those that botocore gives for the
same body. botocore also accepts bodies that the service never sends (base64 with foreign
characters, a record without a sequence number): these raise here.
"""

from __future__ import annotations

from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.errors import MalformedResponseError, UnreadableRecordError
from state.errors import InvalidSequenceNumberError
from state.plan import ChildShard
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

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
_MANY_VALUES = 1_000
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

    def __init__(
        self, numbers: list[str], keys: list[Any], data: list[Any], arrivals: pa.Array
    ) -> None:
        self._lists = (numbers, keys, data)
        self._batch: pa.RecordBatch | None = None
        self.arrivals = arrivals

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> RecordColumns:
        """From a batch with the columns of `PAGE_SCHEMA`."""
        columns = cls([], [], [], batch.column("approximateArrivalTimestamp"))
        columns._batch = batch
        return columns

    @cached_property
    def payload_bytes(self) -> int:
        """Length of the data of all records. Lists have to be walked; Arrow knows it."""
        return _length(self._lists[2]) if self._batch is None else _payload_bytes(self._batch)

    @cached_property
    def read_bytes(self) -> int:
        """What counts towards the service's limits of a shard: data and partition keys. A key of a
        list counts its characters.
        """
        if self._batch is None:
            return self.payload_bytes + _length(self._lists[1])
        return self.payload_bytes + _bytes_of(self._batch.column("partitionKey"))

    @property
    def nbytes(self) -> int:
        """Memory, approximately, in the present form."""
        if self._batch is None:
            return self.read_bytes + _OBJECT_BYTES * len(self._lists[0])
        return int(self._batch.nbytes)

    def to_arrow(self) -> pa.RecordBatch:
        """The columns of `PAGE_SCHEMA`. Converted by the first call, which drops the lists: they
        need more memory.
        """
        if self._batch is None:
            kinds = (pa.string(), pa.string(), pa.binary())
            columns = [*map(_as_arrow, self._lists, kinds), self.arrivals]
            self._batch = pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA)
            self._lists = ([], [], [])
        return self._batch

    def lists(self) -> RecordLists:
        """The lists themselves: callers must not change them."""
        if self._batch is None:
            return RecordLists(*self._lists, _milliseconds(self.arrivals))
        numbers, keys, data = (
            self._batch.column(name).to_pylist() for name in PAGE_SCHEMA.names[:3]
        )
        return RecordLists(numbers, keys, data, _milliseconds(self.arrivals))

    def part(self, first: int, end: int | None = None) -> RecordColumns:
        """The records from `first` up to `end`, in the same form: Arrow is sliced, not copied."""
        if self._batch is not None:
            return RecordColumns.of(self._batch[first:end])
        numbers, keys, data = (values[first:end] for values in self._lists)
        return RecordColumns(numbers, keys, data, self.arrivals[first:end])

    def number_at(self, index: int) -> str:
        """The sequence number of a record, in either form; -1 is the last one."""
        if self._batch is None:
            return self._lists[0][index]
        number: str = self._batch.column("sequenceNumber")[index].as_py()
        return number

    def last_arrival_ms(self) -> int | None:
        """Arrival of the last record, ms since 1970; None where the service gave none."""
        micros = self.arrivals[-1].value
        return None if micros is None else micros // 1_000

    def any_begins_with(self, prefix: bytes) -> bool:
        """Whether any payload begins with `prefix`. The loop runs in C."""
        if self._batch is not None:
            return bool(pc.any(pc.starts_with(self._batch.column("data"), prefix)).as_py())
        return prefix in map(itemgetter(slice(len(prefix))), filter(None, self._lists[2]))


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
    if len(values) >= _MANY_VALUES and len(values[0] or b"") < _LONG_PAYLOAD:
        return pa.array(values, kind)
    found = [value.encode() if isinstance(value, str) else value for value in values]
    known = None
    if None in found:
        known = pa.py_buffer(np.packbits([value is not None for value in found], bitorder="little"))
        found = [value or b"" for value in found]
    ends = array("i", accumulate(map(len, found), initial=0))
    buffers = [known, pa.py_buffer(ends), pa.py_buffer(b"".join(found))]
    return pa.Array.from_buffers(kind, len(found), buffers)


def array_of(
    values: NDArray[np.int64], kind: pa.DataType, known: NDArray[np.uint8] | None = None
) -> pa.Array:
    """The values without a copy, and null where the bit of `known` is 0. Not by `pa.array`, which
    imports pandas: half a second of CPU and 36 MB in each process.
    """
    bits = None if known is None else pa.py_buffer(known)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedPage:
    """One GetRecords answer: its records, in the service's order, and what it says beside them. By
    default it has no records, and says nothing.

    - `first`, `last`: the records' sequence numbers; None without records.
    - `last_arrival_ms`: arrival of the last record, ms since 1970.
    - `millis_behind_latest`: None when the answer has none.
    - `next_iterator`: None at the end of the shard, which may come together with records, and in a
      malformed answer.
    - `service_time_ms`: the service's clock when it answered (ms since 1970, to the second); None
      if the answer has no date.
    - `answered_s`: the client's clock then (monotonic): when the answer's first bytes came, before
      the page was received and decoded. The decoder knows neither.
    """

    columns: RecordColumns = NO_RECORDS
    count: int = 0
    first: SequenceNumber | None = None
    last: SequenceNumber | None = None
    last_arrival_ms: int | None = None
    millis_behind_latest: int | None = None
    next_iterator: str | None = None
    child_shards: tuple[ChildShard, ...] = ()
    service_time_ms: int | None = None
    answered_s: float = 0.0

    @property
    def records(self) -> pa.RecordBatch:
        """The records as Arrow: see `RecordColumns.to_arrow`."""
        return self.columns.to_arrow()


# gc=False: the structs hold only strings, bytes and numbers, so they cannot be part of a cycle and
# the garbage collector need not visit them.
class Record(msgspec.Struct, gc=False):
    SequenceNumber: str
    Data: bytes | None = None
    PartitionKey: str | None = None
    ApproximateArrivalTimestamp: float | str | None = None


class _ChildShard(msgspec.Struct):
    ShardId: str
    ParentShards: list[str] | None = None


class Body(msgspec.Struct):
    """The answer of GetRecords, in JSON or in CBOR."""

    # Required: else a proxy's {"message": ...} would look like an empty page at the shard's end.
    Records: list[Record]
    NextShardIterator: str | None = None
    MillisBehindLatest: int | None = None
    ChildShards: list[_ChildShard] | None = None


class _EventBody(Body):
    """The payload of an event of SubscribeToShard. It has no iterator."""

    ContinuationSequenceNumber: str | None = None


_DECODER = msgspec.json.Decoder(Body)
_EVENT_DECODER = msgspec.json.Decoder(_EventBody)
# The years 1 to 9999, which Python and Spark have, in microseconds since 1970.
MIN_MICROS, MAX_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
_MANY_TIMES = 200  # for fewer records, calling Arrow's functions takes longer than a loop over them


def decode_get_records(body: bytes) -> DecodedPage:
    """Decode the body of a GetRecords answer with status 200. Raises `MalformedResponseError`.
    Pure.
    """
    with malformed_explained(body):
        return page_of_rows(_DECODER.decode(body), _arrivals)


def decode_event(payload: bytes) -> tuple[DecodedPage, SequenceNumber | None]:
    """Decode an event of SubscribeToShard: the page, and the number after which the next
    subscription continues, None at the end of the shard. Raises `MalformedResponseError`. Pure.
    """
    with malformed_explained(payload, what="event of SubscribeToShard"):
        body = _EVENT_DECODER.decode(payload)
        number = body.ContinuationSequenceNumber
        continuation = None if number is None else SequenceNumber.parse(number)
        return page_of_rows(body, _arrivals), continuation


@contextmanager
def malformed_explained(
    body: bytes, encoding: str = "", *, what: str = "answer to GetRecords"
) -> Iterator[None]:
    """Translate the errors of a body that is no answer into `MalformedResponseError`, and that of a
    record in it into `UnreadableRecordError`.
    """
    try:
        yield
    except _ArrivalTimeError as exc:
        text = f"the service's {what} cannot be read{encoding}"
        raise UnreadableRecordError(text, exc.index, exc.number, str(exc)) from None
    except (
        msgspec.MsgspecError,
        pa.ArrowException,
        InvalidSequenceNumberError,
        ValueError,
        OverflowError,
    ) as exc:
        raise MalformedResponseError(
            f"the service's {what} cannot be read{encoding} ({_short_text(exc)}, {len(body)} bytes)"
        ) from exc


def page_of_rows(
    body: Body, arrivals: Callable[[list[float | str | None]], pa.Array]
) -> DecodedPage:
    """The page of a parsed body. `arrivals` reads the times of its encoding."""
    rows = body.Records
    if not rows:
        return decoded_page(body, NO_RECORDS, 0)  # most answers at the tip have no records
    columns = RecordColumns(
        [row.SequenceNumber for row in rows],
        [row.PartitionKey for row in rows],
        [row.Data for row in rows],
        _read_times(rows, arrivals),
    )
    ends = (rows[0].SequenceNumber, rows[-1].SequenceNumber)
    return decoded_page(body, columns, len(rows), ends)


class _ArrivalTimeError(ValueError):
    """The record with this index and this sequence number has an arrival time that cannot be."""

    def __init__(self, index: int, number: str, time: float | str | None) -> None:
        super().__init__(f"has the arrival time {str(time)[:60]!r}, not one in the years 1 to 9999")
        self.index, self.number = index, number


def _read_times(
    rows: Sequence[Record], arrivals: Callable[[list[float | str | None]], pa.Array]
) -> pa.Array:
    """Raises `_ArrivalTimeError` for the first record whose time cannot be."""
    try:
        times = arrivals([row.ApproximateArrivalTimestamp for row in rows])
        ends = pc.min_max(times.cast(pa.int64())).as_py()
        if ends["min"] is None or MIN_MICROS <= ends["min"] <= ends["max"] <= MAX_MICROS:
            return times
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        pass  # the records tell one by one which it is
    if len(rows) == 1:
        raise _ArrivalTimeError(0, rows[0].SequenceNumber, rows[0].ApproximateArrivalTimestamp)
    parts = []
    for index, row in enumerate(rows):
        try:
            parts.append(_read_times([row], arrivals))
        except _ArrivalTimeError as exc:
            exc.index = index
            raise
    return pa.concat_arrays(parts)


def decoded_page(
    body: Body, columns: RecordColumns, count: int, ends: tuple[str, str] | None = None
) -> DecodedPage:
    """A page with `columns` and what `body` says beside the records. `ends` are the first and the
    last sequence number.
    """
    return DecodedPage(
        columns=columns,
        count=count,
        first=SequenceNumber.parse(ends[0]) if ends else None,
        last=SequenceNumber.parse(ends[1]) if ends else None,
        last_arrival_ms=columns.last_arrival_ms() if ends else None,
        millis_behind_latest=body.MillisBehindLatest,
        next_iterator=body.NextShardIterator,
        child_shards=tuple(
            ChildShard(shard_id=c.ShardId, parents=tuple(c.ParentShards or ()))
            for c in body.ChildShards or ()
        ),
    )


def _arrivals(values: list[float | str | None]) -> pa.Array:
    """Seconds since 1970 as microseconds, rounded as `datetime.fromtimestamp` does: the fraction is
    rounded half to even.
    """
    if len(values) < _MANY_TIMES and str not in map(type, values):
        moments = [value if value is None else _micros(float(value)) for value in values]
        return pa.array(moments, ARRIVAL_TYPE)
    try:
        seconds = pa.array(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # texts
        return pa.array([_moment(value) for value in values], ARRIVAL_TYPE)
    whole = pc.trunc(seconds)
    micros = pc.round(pc.multiply(pc.subtract(seconds, whole), 1e6), round_mode="half_to_even")
    total = pc.add_checked(
        pc.multiply_checked(pc.cast(whole, pa.int64()), 1_000_000), pc.cast(micros, pa.int64())
    )
    return pc.cast(total, ARRIVAL_TYPE)


def _micros(seconds: float) -> int:
    whole = int(seconds)
    return whole * 1_000_000 + round((seconds - whole) * 1e6)


def _moment(value: float | str | None) -> datetime | None:
    """A time that is given as text, parsed as botocore does: a number, ISO 8601 or an HTTP date."""
    if value is None:
        return None
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        moment = parsedate_to_datetime(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _short_text(exc: Exception) -> str:
    """The first line of an error, for a sentence."""
    return str(exc).splitlines()[0][:200] if str(exc) else type(exc).__name__
