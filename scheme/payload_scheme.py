"""The base of schemes for formats that Spark has no expressions for: one method reads a payload,
and both halves of the contract (`scheme.record_scheme`) come from it.

The columns are made by one Python call per Arrow batch. Its memory has a bound: a batch is handed
on in parts of `PART_BYTES` of payload, unpacked, however much hostile payloads unpack to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator  # noqa: TC003  # PySpark evaluates the hints of `outcomes`
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import eq
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from scheme.arrow_values import is_changed
from scheme.ddl import arrow_struct
from scheme.errors import MalformedRecordError, PayloadError, SchemeUnavailableError
from scheme.record import KPL_MAGIC, Record
from scheme.record_scheme import NO_DATA, NativeScheme, bytes_reason, gives_many, outcome_ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column

    from scheme.record_scheme import RecordScheme

PART_BYTES = 1024 * 1024
PART_RECORDS = 200
"""Few values are alive at a time: Python's garbage collector looks through all of them again and
again, which took a third of the time with 10,000.
"""
_FEW = 16
"""Payloads that are read alone if one of them has to be."""
DOES_NOT_FIT = "a value does not fit the type of its field"


class Values(Protocol):
    """What `PayloadScheme.read` returns: a tuple or a list, mostly."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class PayloadScheme(ABC):
    """A `RecordScheme` whose subclasses define only `schema_ddl` and `read`.

    A subclass must be immutable, such as a frozen dataclass, and picklable, because it is sent to
    the executors. `schema_ddl` may be a plain class attribute. It follows the grammar of
    `scheme.ddl`; NOT NULL is not checked.
    """

    @property
    @abstractmethod
    def schema_ddl(self) -> str:
        """The fields of a row as Spark DDL: `name TYPE, ...`."""

    @abstractmethod
    def read(self, payload: bytes) -> Values:
        """Return the payload's row: a tuple with the values of all fields. If `many` is true,
        return its rows: a list of such tuples, or another iterable with a length. It may be empty.

        Each value must have the Python class for its field's type (`JsonScheme` lists them), so
        that Python and Spark return the same: int for BIGINT, never a whole float. None is NULL. A
        value that Arrow does not accept makes the record malformed.

        Raise `PayloadError`, with a fixed reason, for bytes that cannot be decoded. Raise
        `SchemeUnavailableError` if something besides the bytes cannot be reached, so that the
        record is redelivered. Any other exception also makes the record malformed, because the
        bytes would raise it again; the reason then contains the exception's class.
        """

    def unpacked(self, payload: bytes) -> bytes:
        """Return the bytes that `read` gets. Raises what `read` raises. A scheme that decompresses
        does so here, because the size of the result bounds a batch's memory.
        """
        return payload

    def columns(self, values: Sequence[Any]) -> list[pa.Array]:
        """Return the columns of all rows of these values of `read`. A subclass may have a faster
        way. Raises what Arrow raises for a value that does not fit.
        """
        rows = [row for value in values for row in value] if self.many else values
        types = [field.type for field in arrow_struct(self.schema_ddl)]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
        found = [pa.array(list(one), kind) for one, kind in zip(columns, types, strict=True)]
        if not self.values_fit and any(map(is_changed, columns, types)):
            raise ValueError
        return found

    @property
    def many(self) -> bool:
        """Whether a record gives any number of rows (0, 1 or more) instead of exactly one."""
        return False

    @property
    def values_fit(self) -> bool:
        """Whether `read` itself makes sure that each value fits its type. This saves `decode` the
        check, which takes a tenth of a millisecond.
        """
        return False

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field.name for field in arrow_struct(self.schema_ddl))

    def decode(self, record: Record) -> tuple[Any, ...]:
        """See `RecordScheme.decode`. Also raises `SchemeUnavailableError`."""
        value, reason, _ = self._outcome(record.data)
        if reason is None and not self.values_fit:
            try:
                self._outcomes([value], [None])
            except UNFIT:
                reason = DOES_NOT_FIT
        if reason is not None:
            raise MalformedRecordError(reason, message_id=record.message_id) from None
        return tuple(value)

    def column(self, data: Column) -> Column:
        """See `RecordScheme.column`. Python runs once per Arrow batch."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # pyspark is optional; F is its documented short name

        # PySpark reads the hints. In the form of iterators it takes arrays of any lengths.
        def outcomes(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
            return chain.from_iterable(map(self.outcomes, batches))

        arrow_udf: Callable[..., Callable[[Column], Column]]
        arrow_udf = F.arrow_udf  # type: ignore[attr-defined]  # PySpark's hints have no name for it
        return arrow_udf(outcomes, outcome_ddl(self))(data)

    def outcomes(self, payloads: pa.Array) -> Iterator[pa.Array]:
        """The outcomes of a binary array, in order, in arrays that together have its length. Each
        element is as in `column`.
        """
        values: list[Any] = []
        reasons: list[str | None] = []
        size = 0
        for payload in payloads:
            value, reason, unpacked_bytes = self._outcome(payload.as_py())
            values.append(value)
            reasons.append(reason)
            size += unpacked_bytes
            if size >= PART_BYTES or len(values) == PART_RECORDS:
                yield from self._parts(values, reasons)
                values, reasons, size = [], [], 0
        if values:
            yield from self._parts(values, reasons)

    def _outcome(self, payload: bytes | None) -> tuple[Any, str | None, int]:
        """The value or the reason of a payload, and its size in bytes, unpacked."""
        reason = NO_DATA if payload is None else bytes_reason(payload)
        if payload is None or reason is not None:
            return None, reason, 0
        try:
            unpacked = self.unpacked(payload)
            return self.read(unpacked), None, len(unpacked)
        except PayloadError as exc:
            return None, exc.reason, 0
        except (SchemeUnavailableError, MemoryError):
            raise
        except Exception as exc:  # noqa: BLE001  # hostile bytes may raise anything, and never end a worker
            return None, f"the scheme raised {type(exc).__name__}", 0

    def _parts(self, values: list[Any], reasons: list[str | None]) -> Iterator[pa.Array]:
        """The outcomes as an array; as several, where one value spoils the conversion of all, so
        that only its own record is malformed, or where one array cannot hold all of the text.
        """
        try:
            found = self._outcomes(values, reasons)
        except UNFIT:
            if len(values) == 1:
                yield self._outcomes([None], [DOES_NOT_FIT])
                return
            middle = len(values) // 2
            yield from self._parts(values[:middle], reasons[:middle])
            yield from self._parts(values[middle:], reasons[middle:])
        else:
            yield found

    def _outcomes(self, values: Sequence[Any], reasons: Sequence[str | None]) -> pa.Array:
        """Values and reasons, one of which is None in each element, as an array."""
        good = [value for value, reason in zip(values, reasons, strict=True) if reason is None]
        rows = pa.StructArray.from_arrays(
            self.columns(good), fields=list(arrow_struct(self.schema_ddl))
        )
        counts = [
            len(value) if self.many and reason is None else 1
            for value, reason in zip(values, reasons, strict=True)
        ]
        row_reasons = pa.nulls(len(rows), pa.string())
        if len(good) < len(values):
            # A malformed record has a row without a value, between those of its neighbours.
            places: list[int | None] = []
            texts: list[str | None] = []
            at = 0
            for count, reason in zip(counts, reasons, strict=True):
                texts += [reason] * count
                if reason is None:
                    places += range(at, at + count)
                    at += count
                else:
                    places.append(None)
            rows = rows.take(pa.array(places, pa.int64()))
            row_reasons = pa.array(texts, pa.string())
        both = pa.StructArray.from_arrays([rows, row_reasons], names=["value", "malformed"])
        if not self.many:
            return both
        offsets = pa.array(accumulate(counts, initial=0), pa.int32())
        return pa.ListArray.from_arrays(offsets, both)


def runs_of(payloads: pa.Array, records: int) -> Iterator[pa.Array]:
    """The payloads in slices of so many at most, whose values may be in memory together."""
    # Of payloads of any size, so many on the average; what is still too large has its own way.
    fitting = PART_BYTES * len(payloads) // max(payloads.nbytes, 1)
    length = max(1, min(records, fitting // 2))
    for start in range(0, len(payloads), length):
        yield payloads.slice(start, length)


class IrregularError(Exception):
    """A value that has to be looked at alone."""


def outcomes_together(
    scheme: PayloadScheme,
    payloads: pa.Array,
    decode: Callable[[bytes], Any],
    column: Callable[[list[Any]], pa.Array],
    *,
    refused: tuple[type[Exception], ...],
) -> Iterator[pa.Array]:
    """The outcomes of some payloads, whose values are made a column at a time: `decode` reads a
    payload, or raises one of `refused`; `column` makes the values of what it returns, or raises
    `IrregularError`. What they raise it for is read by `scheme` alone.
    """
    outcomes = None
    if payloads.nbytes <= PART_BYTES:
        with suppress(IrregularError):
            outcomes = _outcomes_of(scheme, payloads, decode, column, refused)
    if outcomes is not None:
        yield outcomes
    elif len(payloads) <= _FEW:
        yield from PayloadScheme.outcomes(scheme, payloads)
    else:
        middle = len(payloads) // 2
        for half in (payloads.slice(0, middle), payloads.slice(middle)):
            yield from outcomes_together(scheme, half, decode, column, refused=refused)


def _outcomes_of(
    scheme: PayloadScheme,
    payloads: pa.Array,
    decode: Callable[[bytes], Any],
    column: Callable[[list[Any]], pa.Array],
    refused: tuple[type[Exception], ...],
) -> pa.Array:
    found: list[Any] = []
    others: list[int] = []
    for place, payload in enumerate(payloads.to_pylist()):
        if payload is None or (payload.startswith(KPL_MAGIC) and bytes_reason(payload)):
            others.append(place)
            continue
        try:
            found.append(decode(payload))
        except refused:
            others.append(place)
    values = column(found)
    reasons = pa.nulls(len(values), pa.string())
    outcomes = pa.StructArray.from_arrays([values, reasons], names=["value", "malformed"])
    if not others:
        return outcomes
    alone = PayloadScheme.outcomes(scheme, payloads.take(pa.array(others)))
    return merged(outcomes, others, alone)


def outcomes_within(
    scheme: PayloadScheme,
    payloads: pa.Array,
    within: Callable[[bytes], tuple[PayloadScheme, bytes] | None],
    *,
    records: int,
) -> Iterator[pa.Array]:
    """The outcomes of payloads of which another scheme reads a part: `within` gives both, and
    raises `PayloadError` or gives None for a payload that `scheme` reads alone. `records`: so many
    are read together at most, and `PART_BYTES` of their parts.
    """
    for run in runs_of(payloads, records):
        data: dict[PayloadScheme, list[bytes]] = {}
        places: dict[PayloadScheme, list[int]] = {}
        others: list[int] = []
        start = size = 0
        for place, payload in enumerate(one.as_py() for one in run):
            try:
                is_alone = payload is None or bytes_reason(payload) is not None
                found = None if is_alone else within(payload)
            except PayloadError:
                found = None
            if found is None:
                others.append(place - start)
            else:
                inner, part = found
                data.setdefault(inner, []).append(part)
                places.setdefault(inner, []).append(place - start)
                size += len(part)
            if size >= PART_BYTES or place + 1 == len(run):
                parts = [
                    part
                    for inner, own in data.items()
                    for part in inner.outcomes(pa.array(own, pa.binary()))
                ]
                alone = run.slice(start, place + 1 - start).take(pa.array(others, pa.int64()))
                parts += PayloadScheme.outcomes(scheme, alone)
                yield ordered(parts, [*chain.from_iterable(places.values()), *others])
                data, places, others, start, size = {}, {}, [], place + 1, 0


def merged(found: pa.Array, others: Sequence[int], alone: Iterable[pa.Array]) -> pa.Array:
    """Outcomes in the order of their payloads, of which those at the places `others` are in `alone`
    and the rest in `found`.
    """
    rest = set(others)
    places = (place for place in range(len(found) + len(rest)) if place not in rest)
    return ordered([found, *alone], [*places, *others])


def ordered(parts: Sequence[pa.Array], places: Sequence[int]) -> pa.Array:
    """The elements of all parts, each at its place."""
    together = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    if all(map(eq, places, range(len(places)))):
        return together
    order = sorted(range(len(places)), key=places.__getitem__)
    return together.take(pa.array(order, pa.int64()))


UNFIT = (TypeError, ValueError, OverflowError, pa.ArrowCapacityError)
"""What Arrow raises for a value that is not of its type (a lone surrogate is a ValueError), or that
is too long. Not ArrowMemoryError: that is no fault of a record.
"""


@dataclass(frozen=True, slots=True)
class WrappingScheme(PayloadScheme):
    """A scheme that gives the rows of `inner`, by its Python half."""

    inner: RecordScheme

    @property
    def schema_ddl(self) -> str:
        return self.inner.schema_ddl

    @property
    def many(self) -> bool:
        return gives_many(self.inner)

    def read(self, payload: bytes) -> Values:
        return read_of(self.inner, payload)


def read_of(inner: RecordScheme, payload: bytes) -> Values:
    """What a scheme within another one makes of its part of a payload, as `PayloadScheme.read`. The
    payload is no aggregate.
    """
    if isinstance(inner, PayloadScheme | NativeScheme):
        return inner.read(payload)
    record = Record(
        stream_name="",
        shard_id="",
        sequence_number="0",
        partition_key=None,
        data=payload,
        approximate_arrival_ms=0,
    )
    try:
        return inner.decode(record)
    except MalformedRecordError as exc:
        raise PayloadError(exc.reason) from None
