"""The records in the CBOR body of a GetRecords answer, found by numpy without a loop over them.

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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]
    Span = tuple[Positions, Positions]

UINT, BYTES, TEXT, ARRAY, MAP, TAG, OTHER = 0, 2, 3, 4, 5, 6, 7
NULL, BREAK, DOUBLE = 0xF6, 0xFF, 0xFB
INDEFINITE = 31
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


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an item at a place of the body. `value` is None for one of indefinite length."""

    major: int
    value: int | None
    end: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the template: the bytes before its value's length or number, and the value's kind.

    - `literal`: the key, and for numbers also the tag and the first byte of the head.
    - `major`: BYTES or TEXT: a head and so many bytes follow. UINT or OTHER: eight bytes follow, an
      unsigned number or a double.
    """

    name: bytes
    literal: bytes
    major: int


@dataclass(frozen=True, slots=True)
class Template:
    """The shape of a record. `start` are its first bytes, through the first field's key. `size`:
    bytes of the record that it was taken from.
    """

    start: bytes
    fields: tuple[Field, ...]
    is_indefinite: bool
    size: int


@dataclass(frozen=True, slots=True)
class ScannedRecords:
    """Where the values of the records are in the body.

    - `spans`: by major type and key, where the bytes of each record's string begin and end.
    - `numbers`: by key, the values of numbers.
    - `rest`: the body with an empty array in the records' place, for a parser of any CBOR.
    """

    count: int
    spans: dict[tuple[int, bytes], Span]
    numbers: dict[bytes, NDArray[Any]]
    rest: bytes


def scan_records(body: bytes) -> ScannedRecords | None:
    """The records of a body; None when it is not regular, or not worth it. Pure."""
    try:
        found = _records_array(body)
        template = None if found is None else _template(body, found[1].end)
    except (IndexError, ValueError):  # the body is cut off, or is no CBOR
        return None
    if found is None or template is None or found[1].value == 0:
        return None
    if template.size > _LARGE_RECORD or len(body) < _FEW_RECORDS * template.size:
        return None
    return _scan(body, *found, template)


def head_at(body: bytes, at: int) -> Head:
    """The head at a place. Raises IndexError beyond the body, ValueError for a reserved one."""
    major, low = body[at] >> 5, body[at] & 31
    if low < 24:
        return Head(major, low, at + 1)
    if low == INDEFINITE:
        return Head(major, None, at + 1)
    if low > 27:
        raise ValueError(f"byte {at} of the CBOR body is no head of an item")
    end = at + 1 + (1 << (low - 24))
    if end > len(body):
        raise IndexError(at)
    return Head(major, int.from_bytes(body[at + 1 : end], "big"), end)


def _records_array(body: bytes) -> tuple[int, Head] | None:
    """Where the array of records begins, and its head. None for a body that is no map of texts and
    whole numbers up to there.
    """
    outer = head_at(body, 0)
    at = outer.end
    if outer.major != MAP:
        return None
    for _ in range(_MAX_KEYS if outer.value is None else outer.value):
        key = head_at(body, at)
        if key.major != TEXT or key.value is None:
            return None
        value_at = key.end + key.value
        value = head_at(body, value_at)
        if body[key.end : value_at] == b"Records":
            return (value_at, value) if value.major == ARRAY else None
        if value.major == TEXT and value.value is not None:
            at = value.end + value.value
        elif value.major == UINT or body[value_at] == NULL:
            at = value.end
        else:
            return None
    return None


def _template(body: bytes, start: int) -> Template | None:
    """The shape of the record that begins at `start`."""
    record = head_at(body, start)
    if record.major != MAP:
        return None
    fields: dict[bytes, Field] = {}
    at = record.end
    while body[at] != BREAK if record.value is None else len(fields) < record.value:
        found = _field(body, at)
        if found is None or found[0].name in fields or len(fields) == _MAX_KEYS:
            return None
        field, at = found
        fields[field.name] = field
    if not fields:
        return None
    first, *_ = fields.values()
    prefix = body[start : record.end] + first.literal
    return Template(prefix, tuple(fields.values()), record.value is None, at - start)


def _field(body: bytes, at: int) -> tuple[Field, int] | None:
    """The field whose key begins at a place, and where its value ends."""
    key = head_at(body, at)
    if key.major != TEXT or key.value is None:
        return None
    value_at = key.end + key.value
    name = body[key.end : value_at]
    value = head_at(body, value_at)
    if value.major in (BYTES, TEXT) and value.value is not None:
        return Field(name, body[at:value_at], value.major), value.end + value.value
    number_at = value.end if value.major == TAG and value.value == 1 else value_at
    if body[number_at] in (UINT << 5 | 27, DOUBLE):
        return Field(name, body[at : number_at + 1], body[number_at] >> 5), number_at + 9
    return None


def _scan(body: bytes, array_at: int, array: Head, template: Template) -> ScannedRecords | None:
    page = _Page(body)
    starts = page.places_of(template.start, array.end)
    if array.value is not None:
        if len(starts) < array.value:
            return None
        starts = starts[: array.value]
    parsed = _fields(page, starts, template)
    if parsed is None:
        return None
    spans, numbers, ends = parsed
    end = int(ends[-1])
    if starts[0] != array.end or not np.array_equal(starts[1:], ends[:-1]):
        return None
    if array.value is None:
        if body[end : end + 1] != bytes([BREAK]):
            return None
        end += 1
    rest = body[:array_at] + _EMPTY_ARRAY + body[end:]
    return ScannedRecords(len(starts), spans, numbers, rest)


def _fields(
    page: _Page, starts: Positions, template: Template
) -> tuple[dict[tuple[int, bytes], Span], dict[bytes, NDArray[Any]], Positions] | None:
    """The values of all candidates, and where each candidate ends; None where one is of another
    shape.
    """
    spans: dict[tuple[int, bytes], Span] = {}
    numbers: dict[bytes, NDArray[Any]] = {}
    at = starts + (len(template.start) - len(template.fields[0].literal))
    for index, field in enumerate(template.fields):
        if index and not page.all_have(at, field.literal):
            return None
        at = at + len(field.literal)
        if field.major in (UINT, OTHER):
            values = page.eight_bytes(at)
            if values is None:
                return None
            numbers[field.name] = values.view(np.float64) if field.major == OTHER else values
            at = at + 8
            continue
        span = page.strings(at, field.major)
        if span is None:
            return None
        spans[field.major, field.name] = span
        at = span[1]
    if template.is_indefinite:
        if not page.all_have(at, bytes([BREAK])):
            return None
        at = at + 1
    return spans, numbers, at


class _Page:
    """A body as numpy sees it: as bytes, and as the words of eight bytes that begin at each place.

    Methods that take positions check that these are within the body.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
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

    def all_have(self, at: Positions, text: bytes) -> bool:
        """Whether `text` is at each of the places."""
        if int(at.max()) + len(text) > len(self._body):
            return False
        return bool(self._match(at, text).all())

    def eight_bytes(self, at: Positions) -> NDArray[np.uint64] | None:
        """The numbers, of eight bytes each, at the places."""
        if int(at.max()) + _WORD > len(self._body):
            return None
        return self._words[at].byteswap()

    def strings(self, at: Positions, major: int) -> Span | None:
        """Where the contents of the strings, whose heads are at the places, begin and end."""
        if int(at.max()) >= len(self._body):
            return None
        low = self._octets[at] - np.uint8(major << 5)  # another major type gives a high number
        if int(low.max()) > _LONGEST_HEAD:
            return None
        begins = at + _HEAD_BYTES[low]
        if int(begins.max()) > len(self._body):
            return None
        sizes = low.astype(np.int64)
        for width in (1, 2, 4):
            longer = np.flatnonzero(low == 23 + width.bit_length())
            if len(longer):
                sizes[longer] = self._number(at[longer] + 1, width)
        ends = begins + sizes
        return None if int(ends.max()) > len(self._body) else (begins, ends)

    def _number(self, at: Positions, width: int) -> Positions:
        value = self._octets[at].astype(np.int64)
        for index in range(1, width):
            value = value << 8 | self._octets[at + index]
        return value

    def _match(self, at: Positions, text: bytes) -> NDArray[np.bool_]:
        """Whether `text` is at each of the places, all within the body."""
        size = len(text)
        same: NDArray[np.bool_]
        if size < _WORD:
            same = self._octets[at] == text[0]
            for index in range(1, size):
                same &= self._octets[at + index] == text[index]
            return same
        same = np.ones(len(at), np.bool_)
        for index in (*range(0, size - _WORD, _WORD), size - _WORD):  # the last one may overlap
            word = np.uint64(int.from_bytes(text[index : index + _WORD], "little"))
            same &= self._words[at + index] == word
        return same
