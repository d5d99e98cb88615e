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

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import cbor2
import msgspec
import numpy as np
import pyarrow as pa

from kinesis_spout.errors import MalformedResponseError
from kinesis_spout.service.get_records_decoder import (
    ARRIVAL_TYPE,
    NO_TIME,
    PAGE_SCHEMA,
    Body,
    DecodedPage,
    RecordColumns,
    Times,
    array_of,
    malformed_explained,
    page_beside,
    page_of_rows,
    rounded_micros,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]
    Span = tuple[Positions, Positions]

_UINT, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _OTHER = 0, 2, 3, 4, 5, 6, 7
_BREAK, _DOUBLE = 0xFF, 0xFB
_INDEFINITE = -1  # in the place of a length
_WORD = 8  # bytes that are compared at a time
_MAX_KEYS = 32
# Bytes of a head, by its low five bits, and whether it is one that the scan reads: a length of
# eight bytes or of a stream is not.
_HEAD_BYTES: Final = np.array([1] * 24 + [2, 3, 5], np.int64)
_RECORDS, _EMPTY_ARRAY = b"\x67Records", b"\x80"
# Where a parser of any CBOR is as fast: numpy's calls take as long as some 120 records there, and
# the search in a page of large records takes as long as parsing them.
_FEW_RECORDS = 120
_LARGE_RECORD = 8_192  # bytes

_NUMBER, _KEY, _DATA = (_TEXT, b"SequenceNumber"), (_TEXT, b"PartitionKey"), (_BYTES, b"Data")
_ARRIVAL = b"ApproximateArrivalTimestamp"
_MAX_BODY = 2**31 - 1  # Arrow's offsets have 32 bits
_SECONDS_BELOW = 1e11


def encode_cbor(arguments: dict[str, Any]) -> bytes:
    """A request's body."""
    return cbor2.dumps(arguments)


def decode_cbor(body: bytes) -> Any:
    """One CBOR item; times are left as numbers or texts. Raises `ValueError`."""
    try:
        return cbor2.loads(body, semantic_decoders={0: _untagged, 1: _untagged})
    except (cbor2.CBORDecodeError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc


def _untagged(value: Any, _immutable: bool) -> Any:  # noqa: FBT001  # the signature is cbor2's
    return value


def decode_get_records_cbor(body: bytes) -> DecodedPage:
    """Decode the CBOR body of a GetRecords answer with status 200. Raises
    `MalformedResponseError`. Pure.
    """
    with malformed_explained(body, " as CBOR"):
        with suppress(LookupError, ValueError):  # an error of the body is one of the parser, too
            return _regular_page(body)
        return page_of_rows(msgspec.convert(decode_cbor(body), Body), _row_micros)


def _row_micros(times: Times) -> NDArray[np.int64]:
    if str in set(map(type, times)):
        raise MalformedResponseError(
            "the GetRecords response cannot be read as CBOR (an arrival time is a string)"
        )
    return _micros(np.array(times, np.float64))  # None: NaN


def _micros(moments: NDArray[np.float64]) -> NDArray[np.int64]:
    """Of milliseconds, or of seconds."""
    return rounded_micros(moments, np.where(np.abs(moments) < _SECONDS_BELOW, 1_000_000, 1_000))


def _regular_page(body: bytes) -> DecodedPage:
    """The page of a body that is regular; IndexError or ValueError for another one, and where a
    parser is as fast.
    """
    if len(body) > _MAX_BODY:
        raise ValueError("Arrow does not know the offsets of the values")
    spans, others, beside = _scan(body)
    micros = _micros(others[_ARRIVAL].astype(np.float64))
    rest: Body = msgspec.convert(decode_cbor(beside), Body)
    if rest.Records or (micros == NO_TIME).any():  # two lists of records, or a bad one
        raise ValueError("the CBOR parser has to name the fault of the body")
    # The casts raise for what is not UTF-8.
    texts = [_strings(body, spans[name]).cast(pa.string()) for name in (_NUMBER, _KEY)]
    arrays = [*texts, _strings(body, spans[_DATA]), array_of(micros, ARRIVAL_TYPE)]
    columns = RecordColumns.of(pa.RecordBatch.from_arrays(arrays, schema=PAGE_SCHEMA))
    return page_beside(rest).with_records(columns)


def _strings(body: bytes, span: Span) -> pa.Array:
    """The strings between these places, copied out of the body.

    An Arrow array of strings says where each value ends and the next one begins. So the body
    becomes an array in which every second value is what lies between two of the strings. One array
    for all columns would be shorter, but Arrow takes its values' mean size for the size of what is
    taken, and copies the long ones again.
    """
    edges = np.stack(span, axis=1).astype(np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(body)]
    values = pa.Array.from_buffers(pa.binary(), edges.size - 1, buffers)
    return values.take(array_of(np.arange(0, edges.size, 2, dtype=np.int64), pa.int64()))


# the records of a regular page, side by side -----------------------------------------------------
class _Field(NamedTuple):
    """A field of the template: the bytes before its value's length or number, and the value's kind.

    - `literal`: the key, and for numbers also the tag and the first byte of the head. Before the
      first key also the record's head.
    - `major`: bytes or text: a head and so many bytes follow. Otherwise eight bytes follow, an
      unsigned number or a double.
    """

    name: bytes
    literal: bytes
    major: int


def _scan(
    body: bytes,
) -> tuple[dict[tuple[int, bytes], Span], dict[bytes, NDArray[Any]], bytes]:
    """Parse all candidates side by side. Returns, by major type and key, where the bytes of each
    record's string begin and end; by key, the values of numbers; and the body with an empty array
    in the records' place, for a parser of any CBOR.

    Raises IndexError or ValueError where a candidate has another shape, where they leave a gap,
    and where the page is not worth it. Pure.
    """
    array_at, count, first_at = _records_array(body)
    fields, end_of_record, size = _template(body, first_at)
    if size > _LARGE_RECORD or len(body) < _FEW_RECORDS * size:
        raise ValueError("the CBOR parser is as fast for so few records")
    page = _Page(body)
    first, *others = fields
    starts = page.places_of(first.literal, first_at)[: None if count == _INDEFINITE else count]
    spans: dict[tuple[int, bytes], Span] = {}
    numbers: dict[bytes, NDArray[Any]] = {}
    at = starts + len(first.literal)
    for field in (first, *others):
        if field is not first:
            at = page.after(at, field.literal)
        if field.major in (_UINT, _OTHER):
            values = page.words[at].byteswap()
            numbers[field.name] = values.view(np.float64) if field.major == _OTHER else values
            at = at + _WORD
        else:
            span = spans[field.major, field.name] = page.strings(at, field.major)
            at = span[1]
    at = page.after(at, end_of_record)
    end = int(at[-1])
    if starts[0] != first_at or not np.array_equal(starts[1:], at[:-1]):
        raise ValueError("the CBOR body has a gap between two records")
    if count == _INDEFINITE:
        if body[end] != _BREAK:
            raise ValueError("the CBOR body has a gap after the records")
        end += 1
    elif len(starts) < count:
        raise ValueError("the array in the CBOR body has fewer records than it declares")
    return spans, numbers, body[:array_at] + _EMPTY_ARRAY + body[end:]


def _head(body: bytes, at: int) -> tuple[int, int, int]:
    """The head at a place: its major type; its number, or `_INDEFINITE`; where it ends. Raises
    IndexError beyond the body, ValueError for a reserved one.
    """
    major, number, end = body[at] >> 5, body[at] & 31, at + 1
    if number == 31:
        number = _INDEFINITE
    elif number >= 24:
        end += 1 << (number - 24)
        if number > 27 or end > len(body):
            raise ValueError(f"byte {at} of the CBOR body is not the start of an item")
        number = int.from_bytes(body[at + 1 : end], "big")
    return major, number, end


def _records_array(body: bytes) -> tuple[int, int, int]:
    """Where the array of records begins, its length, and where the first record begins. Raises
    `ValueError` for a body without records.

    What stands before the first record is the service's own. A place that is not the key after all
    leaves records in the rest, or a rest that is no page.
    """
    array_at = body.index(_RECORDS) + len(_RECORDS)
    major, count, first_at = _head(body, array_at)
    if major != _ARRAY or count == 0:
        raise ValueError("the CBOR body has no records")
    return array_at, count, first_at


def _template(body: bytes, start: int) -> tuple[list[_Field], bytes, int]:
    """The shape of the record that begins at `start`: its fields, the bytes after the last one, and
    its size.
    """
    major, count, at = _head(body, start)
    if major != _MAP:
        raise ValueError("a record in the CBOR body is not a map")
    fields: list[_Field] = []
    literal_at = start
    while body[at] != _BREAK if count == _INDEFINITE else len(fields) < count:
        major, size, name_at = _head(body, at)
        value_at = name_at + size
        name = body[name_at:value_at]
        if major != _TEXT or size == _INDEFINITE:
            raise ValueError("a key in the CBOR body is not a string")
        if len(fields) == _MAX_KEYS or any(name == field.name for field in fields):
            raise ValueError("a record in the CBOR body has a duplicate key, or too many keys")
        major, number, end = _head(body, value_at)
        if major in (_BYTES, _TEXT) and number != _INDEFINITE:
            literal_end, at = value_at, end + number
        else:
            number_at = end if (major, number) == (_TAG, 1) else value_at
            if body[number_at] not in (_UINT << 5 | 27, _DOUBLE):
                raise ValueError("a record in the CBOR body has a value of an unexpected type")
            major, literal_end, at = body[number_at] >> 5, number_at + 1, number_at + 1 + _WORD
        fields.append(_Field(name, body[literal_at:literal_end], major))
        literal_at = at
    end_of_record = bytes([_BREAK]) if count == _INDEFINITE else b""
    return fields, end_of_record, at + len(end_of_record) - start


class _Page:
    """A body as numpy sees it: as bytes, and as the words of eight bytes that begin at each place.

    Methods that take positions raise `IndexError` where these are not within the body.
    """

    def __init__(self, body: bytes) -> None:
        self._octets = np.frombuffer(body, np.uint8)
        count = max(0, len(body) - _WORD + 1)
        self.words: NDArray[np.uint64] = np.ndarray((count,), "<u8", body, strides=(1,))

    def places_of(self, text: bytes, start: int) -> Positions:
        """Where `text` occurs from `start` on."""
        octets = self._octets[start : len(self._octets) - len(text) + 1]
        places = np.flatnonzero(octets == text[0]) + start
        places = places[self._octets[places + 1] == text[1]]
        found: Positions = places[self._match(places, text)]
        return found

    def after(self, at: Positions, text: bytes) -> Positions:
        """Where `text`, which is to be at each of the places, ends."""
        if not self._match(at, text).all():
            raise ValueError("a record in the CBOR body does not have the expected layout")
        return at + len(text)

    def strings(self, at: Positions, major: int) -> Span:
        """Where the contents of the strings, whose heads are at the places, begin and end."""
        low = self._octets[at] - np.uint8(major << 5)  # another major type gives a high number
        begins = at + _HEAD_BYTES[low]  # IndexError for a head that the scan does not read
        sizes = low.astype(np.int64)
        for width in (1, 2, 4):
            longer = np.flatnonzero(low == 23 + width.bit_length())
            if len(longer):
                words = self.words[at[longer] + 1].byteswap()
                sizes[longer] = words >> np.uint64(8 * (_WORD - width))
        ends = begins + sizes
        if int(ends.max()) > len(self._octets):
            raise ValueError("a record extends beyond the end of the CBOR body")
        return begins, ends

    def _match(self, at: Positions, text: bytes) -> NDArray[np.bool_]:
        """Whether `text` is at each of the places, which are not among the body's first bytes."""
        same: NDArray[np.bool_] = np.ones(len(at), np.bool_)
        if not text:
            return same
        last = len(text) - _WORD  # it overlaps the word before, or begins before the text
        for index in (*range(0, last, _WORD), last):
            words = self.words[at + index]
            if index < 0:
                words = words >> np.uint64(-8 * index)
            part = text[max(0, index) : index + _WORD]
            same &= words == np.uint64(int.from_bytes(part, "little"))
        return same
