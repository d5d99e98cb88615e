"""Avro payloads read side by side with numpy: nothing runs per record in Python.

Each step takes one value of all payloads: where it begins in each of them, from where the one
before has ended. This is done for good payloads only, and only for schemas of records, nullable
fields and values that are no arrays or maps. Wherever a payload looks damaged, `read_together`
gives None, and fastavro reads each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Step = Callable[["Cursor"], pa.Array]

_MORE = 0x80
_MAX_VARINT = 10
_PADDING = b"\0" * 16
"""More than a varint or a double has, so that no read is out of bounds."""


class DamagedError(Exception):
    """A payload is no value of the schema, or is one that is read in another way."""


class Cursor:
    """Where the next value begins in each payload, and where the payload ends."""

    __slots__ = ("at", "bytes", "ends")

    def __init__(
        self, data: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        self.bytes = data
        self.at = at
        self.ends = ends

    def numbers(self) -> NDArray[np.int64]:
        """A zig-zag varint of each payload. Raises `DamagedError` for more than 64 bits."""
        byte = self.bytes[self.at].astype(np.uint64)
        found = byte & np.uint64(0x7F)
        self.at = self.at + 1
        rows = np.flatnonzero(byte >= _MORE)
        for place in range(1, _MAX_VARINT + 1):
            if not len(rows):
                break
            if place == _MAX_VARINT:
                raise DamagedError
            byte = self.bytes[self.at[rows]].astype(np.uint64)
            if place == _MAX_VARINT - 1 and (byte > 1).any():
                raise DamagedError
            found[rows] |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
            self.at[rows] += 1
            rows = rows[byte >= _MORE]
        sign = -(found & np.uint64(1)).astype(np.int64)
        return (found >> np.uint64(1)).view(np.int64) ^ sign

    def plain(self, width: int) -> NDArray[np.uint8]:
        """So many bytes of each payload, as rows."""
        if (self.at + width > self.ends).any():
            raise DamagedError
        found: NDArray[np.uint8] = self.bytes[self.at[:, None] + np.arange(width)]
        self.at = self.at + width
        return found

    def texts(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """A length and so many bytes of each payload, as Arrow's offsets and data."""
        lengths = self.numbers()
        starts = self.at
        # So all texts together are no longer than all payloads, whatever lengths they claim.
        if ((lengths < 0) | (lengths > self.ends - starts)).any():
            raise DamagedError
        ends = starts + lengths
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # The place of each byte: its own, moved from where its text goes to where it comes from.
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        self.at = ends
        return offsets.astype(np.int32), self.bytes[places]


def read_together(payloads: pa.Array, step: Step) -> pa.Array | None:
    """The values of payloads that are all good, else None. None of them is null."""
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[
        payloads.offset : payloads.offset + len(payloads) + 1
    ].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    held = payloads.buffers()[2]
    data = np.frombuffer(
        (b"" if held is None else held[first:last].to_pybytes()) + _PADDING, np.uint8
    )
    cursor = Cursor(data, offsets[:-1] - first, offsets[1:] - first)
    try:
        found = step(cursor)
    except (DamagedError, pa.ArrowInvalid, IndexError):
        return None
    # One that ends elsewhere has read the bytes of another one, or has bytes left.
    return found if np.array_equal(cursor.at, cursor.ends) else None


def long_step(kind: pa.DataType, low: int, high: int) -> Step:
    """`low`, `high`: the numbers that the Avro type has."""

    def step(cursor: Cursor) -> pa.Array:
        found = cursor.numbers()
        if (
            low > -(1 << 63)
            and len(found)
            and not low <= int(found.min()) <= int(found.max()) <= high
        ):
            raise DamagedError
        whole = pa.array(found.astype(np.int32) if low > -(1 << 63) else found)
        return whole if whole.type == kind else whole.view(kind)

    return step


def float_step(width: int) -> Step:
    kind = np.dtype(f"<f{width}")
    return lambda cursor: pa.array(np.ascontiguousarray(cursor.plain(width)).view(kind).reshape(-1))


def boolean_step(cursor: Cursor) -> pa.Array:
    return pa.array(cursor.plain(1).reshape(-1) != 0)


def bytes_step(kind: pa.DataType) -> Step:
    def step(cursor: Cursor) -> pa.Array:
        offsets, data = cursor.texts()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        found = pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
        if pa.types.is_string(kind):
            found.validate(full=True)  # it is UTF-8
        return found

    return step


def fixed_step(width: int) -> Step:
    def step(cursor: Cursor) -> pa.Array:
        data = np.ascontiguousarray(cursor.plain(width))
        offsets = np.arange(len(data) + 1, dtype=np.int32) * width
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(data), buffers)

    return step


def enum_step(symbols: list[str]) -> Step:
    dictionary = pa.array(symbols, pa.string())

    def step(cursor: Cursor) -> pa.Array:
        found = cursor.numbers()
        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < len(symbols):
            raise DamagedError
        return dictionary.take(pa.array(found))

    return step


def nullable_step(inner: Step, null_index: int) -> Step:
    """Of a union of null and one type, in which null has this number."""

    def step(cursor: Cursor) -> pa.Array:
        numbers = cursor.numbers()
        if ((numbers != 0) & (numbers != 1)).any():
            raise DamagedError
        rows = np.flatnonzero(numbers != null_index)
        part = Cursor(cursor.bytes, cursor.at[rows], cursor.ends[rows])
        found = inner(part)
        cursor.at[rows] = part.at
        places = np.full(len(numbers), -1, np.int64)
        places[rows] = np.arange(len(rows))
        return found.take(pa.array(places, mask=places < 0))

    return step


def record_step(members: list[tuple[str, Step]]) -> Step:
    names = [name for name, _ in members]

    def step(cursor: Cursor) -> pa.Array:
        return pa.StructArray.from_arrays([inner(cursor) for _, inner in members], names=names)

    return step
