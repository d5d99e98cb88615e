"""Avro payloads read side by side with numpy: nothing runs per record in Python.

Each step takes one value of all payloads: where it begins in each of them, from where the one
before has ended. Of arrays it takes the first item of each, then the second, and so on. This is
done for good payloads only. One that looks damaged is left out, and fastavro reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Step = Callable[["Cursor"], pa.Array]

_MORE = 0x80
_MAX_VARINT = 10
_TRIALS = 5  # each leaves out the payloads at which the one before has ended
_DECIMAL_BYTES = 16
_LOW = (1 << 64) - 1
_FEW_TURNS, _WORTH_ITEMS = 16, 32
"""The items of arrays are taken in so many turns anyway, and in more of them if each takes so many
items on the average.
"""
_PADDING = b"\0" * 16
"""More than a varint or a double has, so that no read is out of bounds."""


class DamagedError(Exception):
    """Some payloads are no values of the schema, or are read in another way. `payloads`: which of
    them, by their numbers; none, where that is not known.
    """

    def __init__(self, payloads: NDArray[np.int64] | None = None) -> None:
        super().__init__()
        self.payloads = np.zeros(0, np.int64) if payloads is None else payloads


class Cursor:
    """Where the next value begins in each payload, and where the payload ends. `payloads`: their
    numbers.
    """

    __slots__ = ("at", "bytes", "ends", "payloads")

    def __init__(
        self,
        data: NDArray[np.uint8],
        at: NDArray[np.int64],
        ends: NDArray[np.int64],
        payloads: NDArray[np.int64],
    ) -> None:
        self.bytes = data
        self.at = at
        self.ends = ends
        self.payloads = payloads

    def of(self, rows: NDArray[np.int64]) -> Cursor:
        """The same place in some of the payloads."""
        return Cursor(self.bytes, self.at[rows], self.ends[rows], self.payloads[rows])

    def refuse(self, damaged: NDArray[np.bool_]) -> None:
        """Raise `DamagedError` if any of the payloads is damaged."""
        if damaged.any():
            raise DamagedError(self.payloads[damaged])

    def numbers(self) -> NDArray[np.int64]:
        """A zig-zag varint of each payload. Raises `DamagedError` for more than 64 bits."""
        self.refuse(self.at >= self.ends)
        byte = self.bytes[self.at].astype(np.uint64)
        found = byte & np.uint64(0x7F)
        self.at = self.at + 1
        rows = np.flatnonzero(byte >= _MORE)
        for place in range(1, _MAX_VARINT + 1):
            if not len(rows):
                break
            if place == _MAX_VARINT:
                raise DamagedError(self.payloads[rows])
            byte = self.bytes[self.at[rows]].astype(np.uint64)
            if place == _MAX_VARINT - 1 and (byte > 1).any():
                raise DamagedError(self.payloads[rows[byte > 1]])
            found[rows] |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
            self.at[rows] += 1
            rows = rows[byte >= _MORE]
        sign = -(found & np.uint64(1)).astype(np.int64)
        return (found >> np.uint64(1)).view(np.int64) ^ sign

    def plain(self, width: int) -> NDArray[np.uint8]:
        """So many bytes of each payload, as rows."""
        self.refuse(self.at + width > self.ends)
        found: NDArray[np.uint8] = self.bytes[self.at[:, None] + np.arange(width)]
        self.at = self.at + width
        return found

    def texts(self) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """A length and so many bytes of each payload, as Arrow's offsets and data."""
        lengths = self.numbers()
        starts = self.at
        # So all texts together are no longer than all payloads, whatever lengths they claim.
        self.refuse((lengths < 0) | (lengths > self.ends - starts))
        ends = starts + lengths
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # The place of each byte: its own, moved from where its text goes to where it comes from.
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        self.at = ends
        return offsets.astype(np.int32), self.bytes[places]


def read_together(payloads: pa.Array, step: Step) -> tuple[pa.Array, NDArray[np.int64]] | None:
    """The values of payloads, and the numbers of those that have to be read alone and are left out.
    None where it is not known which ones these are, or if there are many. None of them is null.
    """
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[
        payloads.offset : payloads.offset + len(payloads) + 1
    ].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    held = payloads.buffers()[2]
    data = np.frombuffer(
        (b"" if held is None else held[first:last].to_pybytes()) + _PADDING, np.uint8
    )
    left = np.arange(len(payloads))
    everything = Cursor(data, offsets[:-1] - first, offsets[1:] - first, left)
    for _ in range(_TRIALS):
        cursor = everything.of(left)
        try:
            found = step(cursor)
            # One that ends elsewhere has read the bytes of another one, or has bytes left.
            cursor.refuse(cursor.at != cursor.ends)
        except DamagedError as exc:
            left = np.setdiff1d(left, exc.payloads)
            if not len(exc.payloads) or len(left) * 2 < len(payloads):
                return None
        except pa.ArrowInvalid:
            return None
        else:
            return found, np.setdiff1d(everything.payloads, left)
    return None


def long_step(low: int, high: int) -> Step:
    """`low`, `high`: the numbers that the Avro type has, an int or a long."""
    is_long = low == -(1 << 63)

    def step(cursor: Cursor) -> pa.Array:
        found = cursor.numbers()
        if is_long:
            return pa.array(found)
        cursor.refuse((found < low) | (found > high))
        return pa.array(found.astype(np.int32))

    return step


def cast_step(inner: Step, kind: pa.DataType) -> Step:
    """Numbers as another type of numbers, which rounds, or as dates or times."""

    def step(cursor: Cursor) -> pa.Array:
        found = inner(cursor)
        if pa.types.is_floating(kind):
            # As Python does, by way of a double.
            wide = found.to_numpy(zero_copy_only=False).astype(np.float64)
            return pa.array(wide.astype(kind.to_pandas_dtype()))
        if pa.types.is_temporal(kind) and found.type.bit_width != kind.bit_width:
            found = found.cast(pa.int64())
        return found.view(kind) if pa.types.is_temporal(kind) else found.cast(kind)

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
            try:
                found.validate(full=True)
            except pa.ArrowInvalid:
                texts = found.view(pa.binary()).to_pylist()
                cursor.refuse(~np.array(list(map(_is_utf8, texts))))
                raise
        return found

    return step


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def fixed_step(width: int) -> Step:
    def step(cursor: Cursor) -> pa.Array:
        data = np.ascontiguousarray(cursor.plain(width))
        offsets = np.arange(len(data) + 1, dtype=np.int32) * width
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(data), buffers)

    return step


def decimal_step(inner: Step, kind: pa.Decimal128Type) -> Step:
    """Of bytes: an integer of the two's complement, the highest byte first."""
    limit = 10**kind.precision
    high, low = np.int64(limit >> 64), np.uint64(limit & _LOW)
    least_high, least_low = np.int64(-limit >> 64), np.uint64(-limit & _LOW)

    def step(cursor: Cursor) -> pa.Array:
        found = inner(cursor)
        count = len(found)
        offsets = np.frombuffer(found.buffers()[1], np.int32)[: count + 1].astype(np.int64)
        data = np.concatenate([np.frombuffer(found.buffers()[2], np.uint8), np.zeros(1, np.uint8)])
        lengths = np.diff(offsets)
        cursor.refuse(lengths > _DECIMAL_BYTES)
        signs = np.where((lengths > 0) & (data[offsets[:-1]] >= 0x80), 0xFF, 0).astype(np.uint8)
        # The lowest byte is the first one here, and the sign fills what is left.
        places = np.arange(_DECIMAL_BYTES)
        own = places < lengths[:, None]
        taken = data[np.where(own, offsets[1:, None] - 1 - places, 0)]
        filled = np.where(own, taken, signs[:, None])
        words = np.ascontiguousarray(filled).view("<u8").reshape(-1, 2)
        lows, highs = words[:, 0], words[:, 1].view(np.int64)
        fits = (highs < high) | ((highs == high) & (lows < low))
        fits &= (highs > least_high) | ((highs == least_high) & (lows > least_low))
        cursor.refuse(~fits)
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(words)])

    return step


def enum_step(symbols: list[str]) -> Step:
    dictionary = pa.array(symbols, pa.string())

    def step(cursor: Cursor) -> pa.Array:
        found = cursor.numbers()
        cursor.refuse((found < 0) | (found >= len(symbols)))
        return dictionary.take(pa.array(found))

    return step


def constant_step(one: pa.Array) -> Step:
    """The only element of an array, for each payload: a default has no bytes."""
    return lambda cursor: one.take(pa.array(np.zeros(len(cursor.at), np.int64)))


def union_step(members: list[Step | None], names: list[str] | None = None) -> Step:
    """`members`: None for null. `names`: of the others in a struct, of which one is set; without
    them they have one type.
    """

    def step(cursor: Cursor) -> pa.Array:
        numbers = cursor.numbers()
        cursor.refuse((numbers < 0) | (numbers >= len(members)))
        columns: list[pa.Array] = []
        is_null = np.zeros(len(numbers), bool)
        for number, inner in enumerate(members):
            own = numbers == number
            if inner is None:
                is_null |= own
                continue
            rows = np.flatnonzero(own)
            part = cursor.of(rows)
            found = inner(part)
            cursor.at[rows] = part.at
            if len(rows) < len(numbers):
                places = np.zeros(len(numbers), np.int64)
                places[rows] = np.arange(len(rows))
                found = found.take(pa.array(places, mask=~own))
            columns.append(found)
        if names is not None:
            return pa.StructArray.from_arrays(columns, names=names, mask=pa.array(is_null))
        return columns[0] if len(columns) == 1 else pc.coalesce(*columns)

    return step


def record_step(
    members: list[tuple[str | None, Step]], defaults: Mapping[str, Step], names: list[str]
) -> Step:
    """`members`: as they are written, without a name where they are left out. `defaults`: of fields
    that are not written. `names`: of all fields, in their order.
    """

    def step(cursor: Cursor) -> pa.Array:
        found = {}
        for name, inner in members:
            column = inner(cursor)
            if name is not None:
                found[name] = column
        for name, inner in defaults.items():
            found[name] = inner(cursor)
        return pa.StructArray.from_arrays([found[name] for name in names], names=names)

    return step


def array_step(inner: Step) -> Step:
    def step(cursor: Cursor) -> pa.Array:
        offsets, items = _items(cursor, inner)
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items)

    return step


def map_step(inner: Step) -> Step:
    entry = record_step([("key", bytes_step(pa.string())), ("value", inner)], {}, ["key", "value"])

    def step(cursor: Cursor) -> pa.Array:
        offsets, entries = _items(cursor, entry)
        keys, values = entries.flatten()
        codes = keys.dictionary_encode()
        owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        own = owners * max(len(codes.dictionary), 1) + codes.indices.to_numpy()
        if len(np.unique(own)) < len(own):
            raise DamagedError  # the last value of a key counts
        return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), keys, values)

    return step


def _items(cursor: Cursor, inner: Step) -> tuple[NDArray[np.int64], pa.Array]:
    """Where the items of each payload begin, and the items of all of them."""
    lengths = np.zeros(len(cursor.at), np.int64)
    pieces = [inner(cursor.of(np.zeros(0, np.int64)))]
    owners: list[NDArray[np.int64]] = []
    ranks: list[NDArray[np.int64]] = []
    rows = np.arange(len(lengths))
    blocks = 0
    while len(rows):
        blocks += 1
        counts = _block(cursor, rows)
        rows, counts = rows[counts > 0], counts[counts > 0]
        turns = int(counts.max()) if len(counts) else 0
        # Of a few very long arrays, or of many blocks, fastavro reads each sooner.
        if max(turns, blocks) > _FEW_TURNS and turns * _WORTH_ITEMS > int(counts.sum()):
            raise DamagedError
        taking, left = rows, counts
        while len(taking):
            part = cursor.of(taking)
            pieces.append(inner(part))
            cursor.at[taking] = part.at
            owners.append(taking)
            ranks.append(lengths[taking])
            lengths[taking] += 1
            taking, left = taking[left > 1], left[left > 1] - 1
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if not owners:
        return offsets, pieces[0]
    # The place of each item behind those of the payloads before, and of its own.
    places = offsets[np.concatenate(owners)] + np.concatenate(ranks)
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return offsets, pa.concat_arrays(pieces).take(pa.array(order))


def _block(cursor: Cursor, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many items the next block of these payloads has; none at the end."""
    part = cursor.of(rows)
    counts = part.numbers()
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        of_sized = part.of(sized)
        of_sized.numbers()  # the size of the block in bytes
        part.at[sized] = of_sized.at
        counts = np.abs(counts)
    # An item has a byte or more (`scheme.avro_types.bytes_at_least`).
    part.refuse((counts < 0) | (counts > part.ends - part.at))
    cursor.at[rows] = part.at
    return counts
