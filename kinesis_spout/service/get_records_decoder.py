"""Decoding of GetRecords bodies into columns.

msgspec parses the JSON and the base64 in one pass into typed structs, and the columns are taken
from these. botocore's own parser creates dicts and datetimes instead, which costs more than all the
rest of reading (benchmarks/decode.py measures it). The values are those that botocore gives for the
same body. botocore also accepts bodies that the service never sends (base64 with foreign
characters, a record without a sequence number): these raise here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

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
        return _length(self._lists[2]) if self._batch is None else payload_bytes([self._batch])

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
    return sum(_bytes_of(page.column("data")) for page in pages)


def fitting_records(records: pa.RecordBatch, room_bytes: int, *, at_least: int) -> int:
    """How many of the first records have at most `room_bytes` of payload together; `at_least` so
    many, where there are records.
    """
    if not records.num_rows:
        return 0
    edges = _edges(records.column("data"))
    return max(at_least, bisect_right(edges, edges[0] + room_bytes) - 1)


def _bytes_of(values: pa.Array) -> int:
    edges = _edges(values)
    return edges[-1] - edges[0]


def _edges(values: pa.Array) -> Sequence[int]:
    """Where each value begins, and where the last one ends. Arrow keeps that: in 32 bits, and a
    null has no length.
    """
    if not len(values):
        return (0,)
    edges = memoryview(values.buffers()[1]).cast("i")
    return edges[values.offset : values.offset + len(values) + 1]


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
    """One GetRecords answer or event of SubscribeToShard: its records, in the service's order, and
    what it says beside them. By default it has no records, and says nothing.

    - `first`, `last`: the records' sequence numbers; None without records.
    - `last_arrival_ms`: arrival of the last record, ms since 1970.
    - `millis_behind_latest`: None when the answer has none.
    - `next_iterator`: None at the end of the shard, which may come together with records, and in a
      malformed answer.
    - `continuation`: the number after which the next subscription continues; None at the end of the
      shard, which may come together with records. It is at or above the last record's number, and
      need not be that of a record. An answer has none.
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
    continuation: SequenceNumber | None = None
    service_time_ms: int | None = None
    answered_s: float = 0.0

    @property
    def records(self) -> pa.RecordBatch:
        """The records as Arrow: see `RecordColumns.to_arrow`."""
        return self.columns.to_arrow()

    def with_records(self, columns: RecordColumns) -> Self:
        """The page with these records in the place of its own."""
        count = len(columns.arrivals)
        return replace(
            self,
            columns=columns,
            count=count,
            first=SequenceNumber.parse(columns.number_at(0)) if count else None,
            last=SequenceNumber.parse(columns.number_at(-1)) if count else None,
            last_arrival_ms=columns.last_arrival_ms() if count else None,
        )


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
    """The answer of GetRecords, in JSON or in CBOR, or the payload of an event of SubscribeToShard,
    which has the last of these members in the place of the iterator.
    """

    # Required: else a proxy's {"message": ...} would look like an empty page at the shard's end.
    Records: list[Record]
    NextShardIterator: str | None = None
    MillisBehindLatest: int | None = None
    ChildShards: list[_ChildShard] | None = None
    ContinuationSequenceNumber: str | None = None


_DECODER = msgspec.json.Decoder(Body)
# The years 1 to 9999, which Python and Spark have, in microseconds since 1970.
_MIN_MICROS, _MAX_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
NO_TIME = _MAX_MICROS + 1
Times = list[float | str | None]
ANSWER, EVENT = "GetRecords response", "SubscribeToShard event"


def decode_get_records(body: bytes, *, what: str = ANSWER) -> DecodedPage:
    """Decode the body of a GetRecords answer with status 200, or the payload of an event. `what`:
    which of them, for errors. Raises `MalformedResponseError`. Pure.
    """
    with malformed_explained(body, what=what):
        return page_of_rows(_DECODER.decode(body), _micros)


@contextmanager
def malformed_explained(body: bytes, encoding: str = "", *, what: str = ANSWER) -> Iterator[None]:
    """Translate the errors of a body that is no answer into `MalformedResponseError`, and that of a
    record in it into `UnreadableRecordError`.
    """
    text = f"the {what} cannot be read{encoding}"
    try:
        yield
    except _ArrivalTimeError as exc:
        raise UnreadableRecordError(text, exc.index, exc.number, str(exc)) from None
    except (
        msgspec.MsgspecError,
        pa.ArrowException,
        InvalidSequenceNumberError,
        ValueError,
        OverflowError,
    ) as exc:
        first_line = str(exc).splitlines()[0][:200] if str(exc) else type(exc).__name__
        raise MalformedResponseError(f"{text} ({first_line}, {len(body)} bytes)") from exc


class _ArrivalTimeError(ValueError):
    """The record with this index and this sequence number has an arrival time that cannot be."""

    def __init__(self, index: int, number: str, time: float | str | None) -> None:
        super().__init__(
            f"has the arrival time {str(time)[:60]!r}, which is outside the years 1 to 9999"
        )
        self.index, self.number = index, number


def page_of_rows(body: Body, micros_of: Callable[[Times], NDArray[np.int64]]) -> DecodedPage:
    """The page of a parsed body. `micros_of` reads the times of its encoding: microseconds since
    1970, `NO_TIME` for what is none.
    """
    rows = body.Records
    if not rows:
        return page_beside(body)  # most answers at the tip have no records
    times = [row.ApproximateArrivalTimestamp for row in rows]
    micros = micros_of(times)
    known = None
    if (micros == NO_TIME).any():
        given = np.array([time is not None for time in times])
        wrong = np.flatnonzero(given & (micros == NO_TIME)).tolist()
        if wrong:
            raise _ArrivalTimeError(wrong[0], rows[wrong[0]].SequenceNumber, times[wrong[0]])
        known = np.packbits(given, bitorder="little")
    columns = RecordColumns(
        [row.SequenceNumber for row in rows],
        [row.PartitionKey for row in rows],
        [row.Data for row in rows],
        array_of(micros, ARRIVAL_TYPE, known),
    )
    return page_beside(body).with_records(columns)


def page_beside(body: Body) -> DecodedPage:
    """A page with what the body says beside its records, and without these."""
    continuation = body.ContinuationSequenceNumber
    return DecodedPage(
        millis_behind_latest=body.MillisBehindLatest,
        next_iterator=body.NextShardIterator,
        child_shards=tuple(
            ChildShard(shard_id=c.ShardId, parents=tuple(c.ParentShards or ()))
            for c in body.ChildShards or ()
        ),
        continuation=None if continuation is None else SequenceNumber.parse(continuation),
    )


def rounded_micros(
    moments: NDArray[np.float64], per_unit: int | NDArray[np.int64]
) -> NDArray[np.int64]:
    """Times since 1970 as microseconds, the fraction rounded half to even, as
    `datetime.fromtimestamp` does. `NO_TIME` for what is none of the years 1 to 9999, and for NaN.
    """
    is_time = np.abs(moments) < 2.0**62 / per_unit  # others would not fit into 64 bits
    moments = np.where(is_time, moments, 0.0)
    whole = np.trunc(moments)
    fraction = np.rint((moments - whole) * per_unit)
    micros = whole.astype(np.int64) * per_unit + fraction.astype(np.int64)
    return np.where(is_time & (micros >= _MIN_MICROS) & (micros <= _MAX_MICROS), micros, NO_TIME)


def _micros(times: Times) -> NDArray[np.int64]:
    try:
        seconds = np.array(times, np.float64)  # None: NaN
    except ValueError:  # texts, as emulators write
        seconds = np.array([_seconds(time) for time in times])
    return rounded_micros(seconds, 1_000_000)


def _seconds(time: float | str | None) -> float:
    """A time, parsed as botocore does: a number, ISO 8601 or an HTTP date. NaN for none."""
    if not isinstance(time, str):
        return float("nan") if time is None else time
    with suppress(ValueError):
        return float(time)
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError):
            moment = parse(time)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return float("nan")
