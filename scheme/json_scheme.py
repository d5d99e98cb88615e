"""The scheme that decodes one JSON object per record by a schema. Here in Python;
`scheme.json_columns` does the same in Spark.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scheme.ddl import ddl_of, members_ddl, parse_ddl
from scheme.errors import PayloadError
from scheme.json_rules import (
    JACKSON_MAX_NAME_CHARS,
    JACKSON_MAX_NUMBER_DIGITS,
    MAX_DEPTH,
    MAX_EXACT_DIGITS,
    NOT_AN_OBJECT,
    NOT_JSON,
    TEXT_FORMS,
    mismatch,
    missing,
)
from scheme.plain_schemes import text_reason_column, utf8_text
from scheme.record_scheme import NativeScheme

if TYPE_CHECKING:
    from pyspark.sql import Column

Read = Callable[[Any], Any]
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_TEXT_FORMS = {name: re.compile(form, re.ASCII) for name, form in TEXT_FORMS.items()}
_BIGINT = range(-(1 << 63), 1 << 63)


class JsonScheme(NativeScheme):
    """One JSON object per record, with the fields of a DDL schema: `JsonScheme("id BIGINT NOT NULL,
    o STRUCT<total: DOUBLE>")`.

    `scheme.ddl` describes the grammar; a bad schema raises `SchemeDefinitionError`. The rules are
    the same in Python and in Spark:

    - A missing or null field is None. If the schema says NOT NULL, the record is malformed.
    - Names are case-sensitive. A field that the schema does not name is left out, but its value
      must be valid JSON.
    - A value must have its field's JSON type. Nothing is converted: a STRING must be a string, a
      number in quotes is not a number, 1.0 is not a BIGINT.
    - DOUBLE and FLOAT: any finite number, rounded to the nearest; zeros have no sign. NaN, Infinity
      (quoted or not) and a number that would become infinite are malformed.
    - DECIMAL: integers, and plain notation without an exponent, of up to 38 digits. A number that
      would have to be rounded is malformed.
    - DATE: `2026-01-31`. TIMESTAMP: `2026-01-31T12:00:00Z`, or an offset such as `+02:00` instead
      of the Z. TIMESTAMP_NTZ: the same without Z or offset. A space may replace the T, and up to 9
      decimals may follow the seconds. The first 6 are kept. Years are 1 to 9999.
    - BINARY: padded base64.
    - The payload is one JSON object. A record is malformed if its payload is empty, an array, a
      scalar or null, or has text after the object, a duplicate key in an object, a byte order mark,
      a lone surrogate, or more than 100 levels.

    In Python, a STRUCT is a dict with all its fields, an ARRAY a list, a MAP a dict in the UTF-16
    order of its keys, a TIMESTAMP an aware datetime in UTC, and a TIMESTAMP_NTZ a naive datetime.
    The Spark setting `spark.sql.variant.allowDuplicateKeys` must keep its default, false.
    """

    __slots__ = ("_ddl", "_read_object", "_schema")

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._schema = parse_ddl(ddl)
        self._read_object = struct_reader(self._schema, "", _reader)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self._schema.names)

    @property
    def schema_ddl(self) -> str:
        return members_ddl(self._schema)

    def read(self, payload: bytes) -> tuple[Any, ...]:
        value = read_json(utf8_text(payload))
        if not isinstance(value, dict):
            raise PayloadError(NOT_AN_OBJECT)
        return tuple(self._read_object(value).values())

    def column(self, data: Column) -> Column:
        from scheme.json_columns import json_column  # noqa: PLC0415  # that module needs pyspark, which is optional

        return json_column(data.cast("string"), text_reason_column(data), self._schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonScheme) and self._schema == other._schema

    def __hash__(self) -> int:
        return hash(self._schema)

    def __repr__(self) -> str:
        return f"JsonScheme({self.schema_ddl!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return JsonScheme, (self._ddl,)


class Fraction(str):
    """The text of a number that has a point or an exponent. Its class distinguishes it from a
    string.
    """

    __slots__ = ()


def read_json(text: str) -> Any:
    """One JSON text, read as strictly as Spark's VARIANT does: dict, list, str, bool, None, int, or
    `Fraction`. Raises `PayloadError`.

    Some texts that a JSON parser may accept (RFC 8259) are refused, because Python or Spark would
    lose or change a part of them silently: a duplicate key in an object, a lone surrogate, NaN and
    Infinity, more than 100 levels, and numbers of more than 1000 digits.
    """
    if _deeper_than_allowed(text):
        raise PayloadError(NOT_JSON)
    try:
        value = _DECODER.decode(text)
        # Only an escape can bring in a lone surrogate; encoding the value then fails.
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        raise PayloadError(NOT_JSON) from None
    return value


def _deeper_than_allowed(text: str) -> bool:
    """Before parsing, because Python's parser would run out of stack."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    for char in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if char in "[{" else -1
        deepest = max(deepest, depth)
    return deepest > MAX_DEPTH


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    longest = max(map(len, members), default=0)
    if len(members) != len(pairs) or longest > JACKSON_MAX_NAME_CHARS:
        raise ValueError
    return members


def _integer(token: str) -> int:
    if len(token.lstrip("-")) > JACKSON_MAX_NUMBER_DIGITS:
        raise ValueError
    return int(token)


def _fraction(token: str) -> Fraction:
    if len(token) > JACKSON_MAX_NUMBER_DIGITS:
        # Jackson does not count a leading zero before the point.
        digits = sum(char.isdigit() for char in token) - token.lstrip("-").startswith("0")
        if digits > JACKSON_MAX_NUMBER_DIGITS:
            raise ValueError
    return Fraction(token)


def _constant(_token: str) -> None:
    raise ValueError


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_fraction,
    parse_constant=_constant,
    strict=True,
)


# Values in the types of a DDL. The functions are made once for each DDL: a look at the type for
# each value would take half of the time.
def struct_reader(
    schema: pa.StructType,
    prefix: str,
    reader: Callable[[pa.DataType, str], Read],
    *,
    may_lack: bool = False,
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that reads the fields of an object, in the schema's order, each with the function
    that `reader` makes of its type and path. It raises `PayloadError` for a missing one that is NOT
    NULL, unless `may_lack`.
    """
    fields = [
        (
            field.name,
            reader(field.type, prefix + field.name),
            None if field.nullable or may_lack else missing(prefix + field.name),
        )
        for field in schema
    ]

    def members(found: dict[str, Any]) -> dict[str, Any]:
        read = {}
        for name, read_field, lacks in fields:
            member = found.get(name)
            value = read[name] = None if member is None else read_field(member)
            if value is None and lacks is not None:
                raise PayloadError(lacks)
        return read

    return members


def _reader(data_type: pa.DataType, path: str) -> Read:
    """A function that makes a value of the type of a parsed one, and None of None. It raises
    `PayloadError` for another that does not fit.
    """
    wrong = mismatch(path, ddl_of(data_type))
    kind: type | None = None
    fit: Read
    if pa.types.is_struct(data_type):
        kind, fit = dict, struct_reader(data_type, path + ".", _reader)
    elif pa.types.is_map(data_type):
        kind, fit = dict, _map_reader(_reader(data_type.item_type, path + "{}"))
    elif pa.types.is_list(data_type):
        element = _reader(data_type.value_type, path + "[]")
        kind, fit = list, lambda items: [element(item) for item in items]
    else:
        fit = _scalar_reader(data_type)

    def read(value: Any) -> Any:
        if value is None:
            return None
        fitted = fit(value) if kind is None or type(value) is kind else None
        if fitted is None:
            raise PayloadError(wrong)
        return fitted

    return read


def _map_reader(member: Read) -> Read:
    # In the order in which a VARIANT keeps its keys, so that Python and Spark report the same first
    # mismatch.
    return lambda found: {
        key: member(found[key]) for key in sorted(found, key=lambda key: key.encode("utf-16-be"))
    }


def _scalar_reader(data_type: pa.DataType) -> Read:
    """A function that gives the value in the type, or None if it does not fit."""
    if pa.types.is_decimal(data_type):
        fit = exact_decimal(data_type.precision, data_type.scale)
        return lambda value: None if (number := _exact(value)) is None else fit(number)
    if pa.types.is_boolean(data_type):
        return lambda value: value if isinstance(value, bool) else None
    if pa.types.is_integer(data_type):
        limit = 1 << data_type.bit_width - 1
        return lambda value: value if type(value) is int and -limit <= value < limit else None
    if pa.types.is_floating(data_type):
        is_single = data_type.bit_width == 32
        return lambda value: (
            as_floating(value, single=is_single)
            if type(value) is int or isinstance(value, Fraction)
            else None
        )
    name = ddl_of(data_type)
    return lambda value: text_value(value, name) if type(value) is str else None


def _exact(value: Any) -> Decimal | None:
    """The number, if a VARIANT keeps it exactly: an integer, or plain notation of at most 38 digits
    and 38 decimals. Else None.
    """
    if type(value) is int:
        return Decimal(value) if value in _BIGINT or abs(value) < 10**MAX_EXACT_DIGITS else None
    if not isinstance(value, Fraction) or "e" in value.lower():
        return None
    number = Decimal(value)
    _sign, digits, exponent = number.as_tuple()
    return (
        number if len(digits) <= MAX_EXACT_DIGITS and -int(exponent) <= MAX_EXACT_DIGITS else None
    )


def as_floating(number: int | str | Decimal, *, single: bool) -> float | None:
    """The nearest number, a zero without its sign, as in a VARIANT; None for an infinite one."""
    try:
        rounded = float(number) + 0.0
        if single:
            rounded = struct.unpack("f", struct.pack("f", rounded))[0]
    except OverflowError:
        return None
    return rounded if math.isfinite(rounded) else None


def exact_decimal(precision: int, scale: int) -> Callable[[Decimal], Decimal | None]:
    """A function that gives a number the scale of a type; None if that rounds it, or if it has too
    many digits.
    """
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    unit = Decimal((0, (1,), -scale))

    def fit(number: Decimal) -> Decimal | None:
        try:
            fitted = number.quantize(unit, context=exact)
        except (Inexact, InvalidOperation):
            return None
        return fitted or fitted.copy_abs()  # a zero has no sign

    return fit


def text_value(value: str, name: str) -> str | bytes | date | datetime | None:
    """The value of a type that JSON writes as a string, or None if the text is not in its form."""
    if name == "STRING":
        return value
    if not _TEXT_FORMS[name].fullmatch(value):
        return None
    try:
        if name == "BINARY":
            return base64.b64decode(value, validate=True) if len(value) % 4 == 0 else None
        if name == "DATE":
            return date.fromisoformat(value)
        moment = datetime.fromisoformat(value)
        return moment if name == "TIMESTAMP_NTZ" else moment.astimezone(UTC)
    except (ValueError, binascii.Error, OverflowError):
        return None
