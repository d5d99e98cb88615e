"""Decoding of GetRecords bodies in CBOR (`application/x-amz-cbor-1.1`) into columns.

numpy finds where the values of a regular page are, without a loop over the records, and Arrow
copies them out, so nothing runs per record in Python. cbor2 alone creates objects for each record,
which takes longer than decoding the same page from JSON (benchmarks/wire_format.py measures it). It
parses what is not a regular page: pages with few records, records of different shapes, and all that
is beside the records.

Times are milliseconds since 1970, as the SDKs of AWS read them, with the tag of a time or without.
By RFC 8949 that tag has seconds, and an emulator may keep to it: numbers below 10^11 are taken for
seconds. As milliseconds they would be before 1974.

The service encodes all records of a page alike: maps with the same keys in the same order, and
values of the same kinds. So the first record gives a template, each place where its first bytes
occur again is a candidate for the start of a record, and all candidates are parsed side by side,
field by field. The result counts only if the records found follow each other without a gap up to
the end of the array. By induction it is then what a parser finds. Payloads that contain the first
bytes of a record, or a record of another shape, leave a gap: then the caller parses the page as any
CBOR.

A CBOR item (RFC 8949) begins with a head: three bits of major type, five bits that are a number
below 24, or say in how many bytes the number follows. The number is a value, or a length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import cbor2
import msgspec
import numpy as np
import pyarrow as pa

from kinesis_spout.errors import MalformedResponseError
from kinesis_spout.service.get_records_decoder import (
    ARRIVAL_TYPE,
    MAX_MICROS,
    MIN_MICROS,
    PAGE_SCHEMA,
    Body,
    DecodedPage,
    RecordColumns,
    array_of,
    decoded_page,
    malformed_explained,
    page_of_rows,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]
    Span = tuple[Positions, Positions]

_UINT, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _OTHER = 0, 2, 3, 4, 5, 6, 7
_NULL, _BREAK, _DOUBLE = 0xF6, 0xFF, 0xFB
_INDEFINITE = 31
_WORD = 8  # bytes that are compared at a time
_MAX_KEYS = 32
# Bytes of a head, by its low five bits, and whether it is one that the scan reads: a length of
# eight bytes or of a stream is not.
_HEAD_BYTES: Final = np.array([1] * 24 + [2, 3, 5], np.int64)
_LONGEST_HEAD = 26
_EMPTY_ARRAY = b"\x80"
# Where a parser of any CBOR is as fast: numpy's calls take as long as some 120 records there, and
# the search in a page of large records takes as long as parsing them.
_FEW_RECORDS = 120
_LARGE_RECORD = 8_192  # bytes

_NUMBER, _KEY, _DATA = (_TEXT, b"SequenceNumber"), (_TEXT, b"PartitionKey"), (_BYTES, b"Data")
_STRINGS = (_NUMBER, _KEY, _DATA)
_ARRIVAL = b"ApproximateArrivalTimestamp"
_MAX_BODY = 2**31 - 1  # Arrow's offsets have 32 bits
_SECONDS_BELOW = 1e11
_MAX_TIME = 2.0**52  # ms; up to there a double is exact


def encode_cbor(arguments: dict[str, Any]) -> bytes:
    """A request's body."""
    return cbor2.dumps(arguments)


def decode_cbor(body: bytes) -> Any:
    """One CBOR item; times are left as numbers or texts. Raises `ValueError`."""
    try:
        return cbor2.loads(body, semantic_decoders={0: _untagged, 1: _untagged})
    except (cbor2.CBORDecodeError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc


def decode_get_records_cbor(body: bytes, *, as_lists: bool = False) -> DecodedPage:
    """Decode the CBOR body of a GetRecords answer with status 200. Raises
    `MalformedResponseError`. Pure.

    `as_lists`: for a caller that reads record by record. The columns are lists then, else Arrow.
    """
    with malformed_explained(body, " as CBOR"):
        scanned = _scanned_records(body) if len(body) <= _MAX_BODY else None
        page = None if scanned is None else _scanned_page(body, scanned, as_lists=as_lists)
        if page is not None:
            return page
        return page_of_rows(msgspec.convert(decode_cbor(body), Body), _arrivals)


def _scanned_page(body: bytes, scanned: _ScannedRecords, *, as_lists: bool) -> DecodedPage | None:
    """None where the records have no time, or none that can be, or not the three strings."""
    moments = scanned.numbers.get(_ARRIVAL)
    if moments is None or any(name not in scanned.spans for name in _STRINGS):
        return None
    moments = moments.astype(np.float64)
    if not bool((np.abs(moments) < _MAX_TIME).all()):
        return None
    micros = _micros(moments)
    if len(micros) and not MIN_MICROS <= micros.min() <= micros.max() <= MAX_MICROS:
        return None
    rest = msgspec.convert(decode_cbor(scanned.rest), Body)
    if rest.Records:  # there were two lists of records
        return None
    arrivals = array_of(micros, ARRIVAL_TYPE)
    # The casts raise for what is not UTF-8.
    texts = [_strings(body, *scanned.spans[name]).cast(pa.string()) for name in (_NUMBER, _KEY)]
    begins, ends = scanned.spans[_DATA]
    if as_lists:
        data = [body[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        # Not by `to_pylist`, which takes twenty times as long in older versions of pyarrow.
        numbers, keys = (text.to_numpy(zero_copy_only=False).tolist() for text in texts)
        columns = RecordColumns(numbers, keys, data, arrivals)
    else:
        payloads = _strings(body, begins, ends)
        columns = RecordColumns.of(
            pa.RecordBatch.from_arrays([*texts, payloads, arrivals], schema=PAGE_SCHEMA)
        )
    begins, ends = scanned.spans[_NUMBER]
    first, last = (body[begins[index] : ends[index]].decode() for index in (0, -1))
    return decoded_page(rest, columns, scanned.records, (first, last))


def _strings(body: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> pa.Array:
    """The strings between these places, copied out of the body.

    An Arrow array of strings says where each value ends and the next one begins. So the body
    becomes an array in which every second value is what lies between two of the strings. One array
    for all columns would be shorter, but Arrow takes its values' mean size for the size of what is
    taken, and copies the long ones again.
    """
    edges: NDArray[np.int32] = np.empty((len(begins), 2), np.int32)
    edges[:, 0], edges[:, 1] = begins, ends
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(body)]
    values = pa.Array.from_buffers(pa.binary(), edges.size - 1, buffers)
    return values.take(array_of(np.arange(0, edges.size, 2, dtype=np.int64), pa.int64()))


def _arrivals(moments: list[float | str | None]) -> pa.Array:
    """The times of records that were parsed one by one."""
    if str in set(map(type, moments)):
        raise MalformedResponseError(
            "the service's answer to GetRecords cannot be read as CBOR (an arrival time is a text)"
        )
    numbers = np.array([0.0 if moment is None else float(moment) for moment in moments])
    known = np.packbits([moment is not None for moment in moments], bitorder="little")
    return array_of(_micros(numbers), ARRIVAL_TYPE, known)


def _micros(moments: NDArray[np.float64]) -> NDArray[np.int64]:
    """Milliseconds, or seconds, as microseconds: the fraction is rounded half to even. Raises
    `ValueError` for what is no time.
    """
    if not bool((np.abs(moments) < _MAX_TIME).all()):
        raise ValueError("an arrival time is not within the years that a time can have")
    unit = np.where(np.abs(moments) < _SECONDS_BELOW, 1_000_000, 1_000)
    whole = np.trunc(moments)
    fraction = np.rint((moments - whole) * unit)
    return whole.astype(np.int64) * unit + fraction.astype(np.int64)


def _untagged(value: Any, _immutable: bool) -> Any:  # noqa: FBT001  # the signature is cbor2's
    return value


# the records of a regular page, side by side -----------------------------------------------------
class _Head(NamedTuple):
    """The head of an item at a place of the body. `value` is None for one of indefinite length."""

    major: int
    value: int | None
    end: int


class _Field(NamedTuple):
    """A field of the template: the bytes before its value's length or number, and the value's kind.

    - `literal`: the key, and for numbers also the tag and the first byte of the head.
    - `major`: bytes or text: a head and so many bytes follow. Otherwise eight bytes follow, an
      unsigned number or a double.
    """

    name: bytes
    literal: bytes
    major: int


class _Template(NamedTuple):
    """The shape of a record. `start` are its first bytes, through the first field's key. `size`:
    bytes of the record that it was taken from.
    """

    start: bytes
    fields: tuple[_Field, ...]
    is_indefinite: bool
    size: int


class _ScannedRecords(NamedTuple):
    """Where the values of the records are in the body.

    - `spans`: by major type and key, where the bytes of each record's string begin and end.
    - `numbers`: by key, the values of numbers.
    - `rest`: the body with an empty array in the records' place, for a parser of any CBOR.
    """

    records: int
    spans: dict[tuple[int, bytes], Span]
    numbers: dict[bytes, NDArray[Any]]
    rest: bytes


def _scanned_records(body: bytes) -> _ScannedRecords | None:
    """The records of a body; None when it is not regular, or not worth it. Pure."""
    try:
        array_at, array = _records_array(body)
        template = _template(body, array.end)
        if template.size > _LARGE_RECORD or len(body) < _FEW_RECORDS * template.size:
            return None
        return _scan(body, array_at, array, template)
    except (IndexError, ValueError):  # the body is cut off, is no CBOR, or its records differ
        return None


def _head_at(body: bytes, at: int, *majors: int) -> _Head:
    """The head at a place. Raises IndexError beyond the body, ValueError for a reserved one, and,
    where `majors` are named, for one of another type or of indefinite length.
    """
    major, low = body[at] >> 5, body[at] & 31
    end = at + 1
    if low < 24:
        value: int | None = low
    elif low == _INDEFINITE:
        value = None
    else:
        end += 1 << (low - 24)
        if low > 27 or end > len(body):
            raise ValueError(f"byte {at} of the CBOR body is no head of an item")
        value = int.from_bytes(body[at + 1 : end], "big")
    if majors and (major not in majors or value is None):
        raise ValueError(f"byte {at} of the CBOR body begins an item of another type")
    return _Head(major, value, end)


def _text_at(body: bytes, at: int) -> tuple[bytes, int]:
    """The text at a place, and where it ends."""
    head = _head_at(body, at, _TEXT)
    end = head.end + (head.value or 0)
    return body[head.end : end], end


def _records_array(body: bytes) -> tuple[int, _Head]:
    """Where the array of records begins, and its head. Raises `ValueError` for a body that is no
    map of texts and whole numbers up to there, or without records.
    """
    outer = _head_at(body, 0)
    if outer.major != _MAP:
        raise ValueError("the body is no map")
    at = outer.end
    for _ in range(_MAX_KEYS if outer.value is None else outer.value):
        name, value_at = _text_at(body, at)
        if name == b"Records":
            array = _head_at(body, value_at)
            if array.major != _ARRAY or array.value == 0:
                break
            return value_at, array
        if body[value_at] == _NULL:
            at = value_at + 1
        else:
            value = _head_at(body, value_at, _TEXT, _UINT)
            at = value.end + (value.value or 0 if value.major == _TEXT else 0)
    raise ValueError("the body has no records")


def _template(body: bytes, start: int) -> _Template:
    """The shape of the record that begins at `start`."""
    record = _head_at(body, start)
    fields: dict[bytes, _Field] = {}
    at = record.end
    while body[at] != _BREAK if record.value is None else len(fields) < record.value:
        field, at = _field(body, at)
        if field.name in fields or len(fields) == _MAX_KEYS:
            raise ValueError("a record has a key twice, or too many")
        fields[field.name] = field
    if record.major != _MAP or not fields:
        raise ValueError("a record is no map")
    first, *_ = fields.values()
    prefix = body[start : record.end] + first.literal
    return _Template(prefix, tuple(fields.values()), record.value is None, at - start)


def _field(body: bytes, at: int) -> tuple[_Field, int]:
    """The field whose key begins at a place, and where its value ends."""
    name, value_at = _text_at(body, at)
    value = _head_at(body, value_at)
    if value.major in (_BYTES, _TEXT) and value.value is not None:
        return _Field(name, body[at:value_at], value.major), value.end + value.value
    number_at = value.end if value.major == _TAG and value.value == 1 else value_at
    if body[number_at] not in (_UINT << 5 | 27, _DOUBLE):
        raise ValueError("a record has a value of another kind")
    return _Field(name, body[at : number_at + 1], body[number_at] >> 5), number_at + 9


def _scan(body: bytes, array_at: int, array: _Head, template: _Template) -> _ScannedRecords:
    """Parse all candidates. Raises `ValueError` where one is of another shape, or where they leave
    a gap.
    """
    page = _Page(body)
    starts = page.places_of(template.start, array.end)[: array.value]
    spans: dict[tuple[int, bytes], Span] = {}
    numbers: dict[bytes, NDArray[Any]] = {}
    at = starts + len(template.start)
    for index, field in enumerate(template.fields):
        if index:
            at = page.after(at, field.literal)
        if field.major in (_UINT, _OTHER):
            values = page.eight_bytes(at)
            numbers[field.name] = values.view(np.float64) if field.major == _OTHER else values
            at = at + _WORD
        else:
            span = page.strings(at, field.major)
            spans[field.major, field.name] = span
            at = span[1]
    if template.is_indefinite:
        at = page.after(at, bytes([_BREAK]))
    end = int(at[-1])
    if starts[0] != array.end or not np.array_equal(starts[1:], at[:-1]):
        raise ValueError("there is a gap between two records")
    if array.value is None:
        if body[end] != _BREAK:
            raise ValueError("there is a gap after the records")
        end += 1
    elif len(starts) < array.value:
        raise ValueError("there are fewer records than the array has")
    rest = body[:array_at] + _EMPTY_ARRAY + body[end:]
    return _ScannedRecords(len(starts), spans, numbers, rest)


class _Page:
    """A body as numpy sees it: as bytes, and as the words of eight bytes that begin at each place.

    Methods that take positions raise `ValueError` where these are not within the body.
    """

    def __init__(self, body: bytes) -> None:
        self._size = len(body)
        self._octets = np.frombuffer(body, np.uint8)
        words = max(0, len(body) - _WORD + 1)
        self._words: NDArray[np.uint64] = np.ndarray((words,), "<u8", body, strides=(1,))

    def places_of(self, text: bytes, start: int) -> Positions:
        """Where `text` occurs from `start` on."""
        octets = self._octets[start:]
        places = np.flatnonzero(octets[: len(octets) - len(text) + 1] == text[0]) + start
        places = places[self._octets[places + 1] == text[1]]
        found: Positions = places[self._match(places, text)]
        return found

    def after(self, at: Positions, text: bytes) -> Positions:
        """Where `text`, which is to be at each of the places, ends."""
        self._check_end(int(at.max()) + len(text))
        if not self._match(at, text).all():
            raise ValueError("a record has other bytes there")
        return at + len(text)

    def eight_bytes(self, at: Positions) -> NDArray[np.uint64]:
        """The numbers, of eight bytes each, at the places."""
        self._check_end(int(at.max()) + _WORD)
        return self._words[at].byteswap()

    def strings(self, at: Positions, major: int) -> Span:
        """Where the contents of the strings, whose heads are at the places, begin and end."""
        self._check_end(int(at.max()) + 1)
        low = self._octets[at] - np.uint8(major << 5)  # another major type gives a high number
        if int(low.max()) > _LONGEST_HEAD:
            raise ValueError("a record has no such string there")
        begins = at + _HEAD_BYTES[low]
        self._check_end(int(begins.max()))
        sizes = low.astype(np.int64)
        for width in (1, 2, 4):
            longer = np.flatnonzero(low == 23 + width.bit_length())
            if len(longer):
                size = self._octets[at[longer] + 1].astype(np.int64)
                for index in range(2, width + 1):
                    size = size << 8 | self._octets[at[longer] + index]
                sizes[longer] = size
        ends = begins + sizes
        self._check_end(int(ends.max()))
        return begins, ends

    def _check_end(self, end: int) -> None:
        if end > self._size:
            raise ValueError("a record goes beyond the body")

    def _match(self, at: Positions, text: bytes) -> NDArray[np.bool_]:
        """Whether `text` is at each of the places, all within the body."""
        size = len(text)
        same: NDArray[np.bool_] = np.ones(len(at), np.bool_)
        if size < _WORD:
            for index in range(size):
                same &= self._octets[at + index] == text[index]
            return same
        for index in (*range(0, size - _WORD, _WORD), size - _WORD):  # the last one may overlap
            word = np.uint64(int.from_bytes(text[index : index + _WORD], "little"))
            same &= self._words[at + index] == word
        return same
