"""The scheme that decodes one Avro value per record, without a container file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from scheme.avro_numbers import read_together
from scheme.avro_steps import AvroSteps, Unsupported
from scheme.avro_types import (
    AvroColumns,
    ValueCosts,
    as_record,
    bytes_at_least,
    complete_defaults,
    refuse_negative_numbers,
    without_logical_types,
)
from scheme.ddl import arrow_struct, members_ddl
from scheme.errors import PayloadError, SchemeDefinitionError
from scheme.json_rules import FIRST_TIME_US, LAST_TIME_US
from scheme.payload_scheme import PART_BYTES, UNFIT, PayloadScheme, merged, runs_of
from scheme.record import KPL_MAGIC
from scheme.record_scheme import bytes_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from scheme.avro_numbers import Step

NOT_AVRO = "the bytes are not a single value of the Avro schema"
NOT_RESOLVED = "the writer's Avro schema does not resolve to the reader's"
TOO_MANY_VALUES = "the items within the Avro value take more than 256 MiB of memory"
_MAX_VALUE_BYTES = 256 * 1024 * 1024
_MAX_SCHEMAS = 256
_DAY_US = 86_400_000_000
SIDE_BY_SIDE = 8192
"""Payloads that are read together: numpy costs so much for each step, however many take it."""
_RUN = 512
"""Payloads whose values are in memory together. Python's garbage collector walks over all values
that are, so more of them cost more for each.
"""


@dataclass(frozen=True)
class AvroScheme(PayloadScheme):
    """One value of `schema` per record, in Avro's binary encoding. `schema` is the writer's schema,
    as JSON text or as a dict. An Avro record gives a column for each field; another type gives a
    single column `value`.

    `reader_schema`: the schema of the rows, by Avro's rules for schema resolution: fields that only
    the reader has get their defaults, fields that only the writer has are left out, and numbers are
    promoted.

    The types are those of Spark's `from_avro`. An enum is a STRING, and a fixed is BINARY. A union
    of null and one type is a nullable column, a union of int and long a BIGINT, a union of float
    and double a DOUBLE, and any other union a STRUCT of `member0`, `member1` and so on. date,
    decimal, and timestamps and local timestamps in milliseconds or microseconds are native; other
    logical types are ignored.

    A record is malformed if bytes follow the value, or if the items of its arrays and maps would
    take more than about 256 MiB of memory (one byte can encode an item of hundreds). A schema that
    is invalid or recursive, or has an array of items without bytes, raises `SchemeDefinitionError`.
    Needs fastavro, from the extra `avro`.
    """

    schema: str
    reader_schema: str | None = None

    def __init__(self, schema: Any, reader_schema: Any = None) -> None:
        object.__setattr__(self, "schema", _text(schema))
        object.__setattr__(
            self, "reader_schema", None if reader_schema is None else _text(reader_schema)
        )
        arrow_struct(self.schema_ddl)

    @property
    def schema_ddl(self) -> str:
        return avro_reader(self.schema, self.reader_schema).ddl

    def read(self, payload: bytes) -> tuple[Any, ...]:
        reader = avro_reader(self.schema, self.reader_schema)
        return reader.row(reader.value(payload))

    def outcomes(self, payloads: pa.Array) -> Iterator[pa.Array]:
        """See `PayloadScheme.outcomes`. Payloads are read side by side if their schema allows that
        and most of them are good. Otherwise, their values go from fastavro to Arrow without a
        conversion in Python, or one by one if a value does not fit.
        """
        reader = avro_reader(self.schema, self.reader_schema)
        for many in runs_of(payloads, SIDE_BY_SIDE):
            found = reader.together(many)
            if found is not None:
                yield self._completed(*found, many)
                continue
            for run in runs_of(many, _RUN):
                found = reader.together(run)
                fast = reader.columns(run) if found is None else self._completed(*found, run)
                if fast is None:
                    yield from super().outcomes(run)
                else:
                    yield fast

    def _completed(
        self, found: pa.Array, others: NDArray[np.int64], payloads: pa.Array
    ) -> pa.Array:
        """The outcomes of all payloads, of which `found` has those that are not `others`."""
        if not len(others):
            return found
        alone = PayloadScheme.outcomes(self, payloads.take(pa.array(others)))
        return merged(found, others.tolist(), alone)


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Reads payloads that were written by one schema.

    `parsed` and `parsed_reader`: the two schemas as fastavro takes them. `max_values`: how many
    values a payload may have. `row`: the values of the fields, from what fastavro reads. `arrow`:
    as of `AvroColumn`. `step`: reads payloads side by side, if the schema allows it.
    """

    ddl: str
    parsed: Any
    parsed_reader: Any
    max_values: int
    row: Callable[[Any], tuple[Any, ...]]
    arrow: pa.StructType | None
    step: Step | None
    schemaless_reader: Callable[..., Any]
    unresolved: type[Exception]
    options: dict[str, bool]

    def columns(self, payloads: pa.Array) -> pa.Array | None:
        """The outcomes of these payloads, or None where an element has to be looked at alone: it
        is null or an aggregate, or has a value that its type does not take; or all are too large to
        be in memory together.
        """
        if self.arrow is None or payloads.nbytes > PART_BYTES:
            return None
        values: list[Any] = []
        reasons: list[str | None] = []
        for payload in payloads.to_pylist():
            if payload is None or bytes_reason(payload) is not None:
                return None
            try:
                values.append(self.value(payload))
                reasons.append(None)
            except PayloadError as exc:
                values.append(None)
                reasons.append(exc.reason)
        try:
            found = pa.array(values, self.arrow)
        except UNFIT:
            return None
        return self._with_reasons(found, pa.array(reasons, pa.string()))

    def together(self, payloads: pa.Array) -> tuple[pa.Array, NDArray[np.int64]] | None:
        """The outcomes of good payloads, without Python for each of them, and the places of the
        others; None where these are too many or not known, or where the schema does not allow it.
        """
        if self.step is None or payloads.null_count or payloads.type != pa.binary():
            return None
        if pc.any(pc.starts_with(payloads, KPL_MAGIC)).as_py():
            return None
        longest = pc.max(pc.binary_length(payloads)).as_py()
        if longest is None or longest > self.max_values:
            return None  # it may have too many values
        read = read_together(payloads, self.step)
        if read is None:
            return None
        found = self._with_reasons(read[0], pa.nulls(len(read[0]), pa.string()))
        return None if found is None else (found, read[1])

    def _with_reasons(self, found: pa.Array, reasons: pa.Array) -> pa.Array | None:
        try:
            values = found.cast(arrow_struct(self.ddl))
        except UNFIT:
            return None
        if not _has_python_times(values):
            return None
        return pa.StructArray.from_arrays([values, reasons], names=["value", "malformed"])

    def value(self, payload: bytes) -> Any:
        """What fastavro reads."""
        # fastavro takes what a skipped field or a string still finds of its bytes. With one byte
        # more than there are, whatever reads beyond the end is at another place than the end.
        # A value has a byte or more, so most payloads are too short for too many.
        is_short = len(payload) <= self.max_values
        padded = payload + b"\0"
        source = BytesIO(padded) if is_short else _CountedValues(padded, self.max_values)
        try:
            value = self.schemaless_reader(source, self.parsed, self.parsed_reader, **self.options)
        except self.unresolved:
            raise PayloadError(NOT_RESOLVED) from None
        except (MemoryError, PayloadError):
            raise
        except Exception:  # noqa: BLE001  # it raises EOFError, IndexError, KeyError, UnicodeDecodeError and others
            raise PayloadError(NOT_AVRO) from None
        if source.tell() != len(payload):
            raise PayloadError(NOT_AVRO)
        return value


class _CountedValues(BytesIO):
    """A payload from which fastavro reads so many values at most. It reads a number byte by byte,
    all of which but the last have their high bit set, and anything else as a whole.
    """

    def __init__(self, payload: bytes, limit: int) -> None:
        super().__init__(payload)
        self._left = limit

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if size != 1 or found < b"\x80":
            self._left -= 1
            if self._left < 0:
                raise PayloadError(TOO_MANY_VALUES)
        return found


def _has_python_times(array: pa.Array) -> bool:
    """Whether each date and time in the array, also within its elements, is in the years 1 to 9999,
    which is the range of Python's. Times are in microseconds.
    """
    if pa.types.is_struct(array.type):
        return all(map(_has_python_times, array.flatten()))
    if pa.types.is_map(array.type):
        return _has_python_times(array.items)
    if pa.types.is_list(array.type):
        return _has_python_times(array.flatten())
    if pa.types.is_date32(array.type):
        first, last = FIRST_TIME_US // _DAY_US, LAST_TIME_US // _DAY_US
        numbers = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        first, last = FIRST_TIME_US, LAST_TIME_US
        numbers = array.cast(pa.int64())
    else:
        return True
    bounds = pc.min_max(numbers).as_py()
    return bounds["min"] is None or first <= bounds["min"] <= bounds["max"] <= last


def _text(schema: Any) -> str:
    if not isinstance(schema, str):
        return json.dumps(schema)
    # The name of a primitive type may stand without quotes.
    return schema if schema.lstrip()[:1] in ("{", "[", '"') else json.dumps(schema)


@lru_cache(maxsize=_MAX_SCHEMAS)
def avro_reader(schema: str, reader_schema: str | None) -> AvroReader:
    """The reader of two schemas, as JSON text. Raises `SchemeDefinitionError`."""
    try:
        fastavro = import_module("fastavro")
    except ImportError:
        raise SchemeDefinitionError(
            "AvroScheme needs the package fastavro, which is not installed",
            "install kinesis-spout with its pip extra avro on the driver and on the executors",
        ) from None
    parsed, names = _parsed(fastavro, schema)
    bytes_at_least(parsed, names)  # raises
    resolved = reader_schema is not None
    rows, row_names = _parsed(fastavro, reader_schema) if resolved else (parsed, names)
    root = AvroColumns(row_names, resolved=resolved).of(rows)
    if resolved:
        complete_defaults(row_names)
    costs = ValueCosts(names, row_names)
    costs.of(parsed, rows)
    fields = root.type.names
    picked = itemgetter(*fields) if len(fields) > 1 else lambda record: (record[fields[0]],)
    convert = root.convert
    step: Step | None
    try:
        step = AvroSteps(names, row_names).of(parsed, rows)
    except Unsupported:
        step = None
    read_as = fastavro.parse_schema(without_logical_types(parsed))
    refuse_negative_numbers(read_as)
    return AvroReader(
        ddl=members_ddl(root.type),
        parsed=read_as,
        parsed_reader=fastavro.parse_schema(without_logical_types(rows)) if resolved else None,
        max_values=_MAX_VALUE_BYTES // costs.most,
        row=picked if convert is None else lambda value: picked(convert(value)),
        arrow=root.arrow,
        step=step,
        schemaless_reader=fastavro.schemaless_reader,
        unresolved=fastavro.read.SchemaResolutionError,
        # Names tell the members of a union apart; to find them costs time, so only where needed.
        options={} if root.arrow is not None else {"return_named_type": True},
    )


def _parsed(fastavro: Any, schema: str | None) -> tuple[Any, dict[str, Any]]:
    names: dict[str, Any] = {}
    try:
        return fastavro.parse_schema(as_record(json.loads(schema or "")), names), names
    except Exception as exc:  # noqa: BLE001  # it raises KeyError and others for what is not in a schema
        raise SchemeDefinitionError(
            f"the Avro schema is not valid: {type(exc).__name__}: {exc}"
        ) from None
