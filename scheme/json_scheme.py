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
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from scheme.ddl import (
    INTEGER_BITS,
    ArrayType,
    DecimalType,
    JsonType,
    MapType,
    SimpleType,
    StructType,
    parse_ddl,
)
from scheme.errors import MalformedRecordError
from scheme.json_rules import (
    JACKSON_MAX_NAME_CHARS,
    JACKSON_MAX_NUMBER_DIGITS,
    MAX_DEPTH,
    MAX_EXACT_DIGITS,
    NOT_AN_OBJECT,
    NOT_JSON,
    TEXT_FORMS,
    decimal_form,
    mismatch,
    missing,
)
from scheme.plain_schemes import text_reason_column, utf8_text

if TYPE_CHECKING:
    from pyspark.sql import Column

    from scheme.record import Record


class JsonScheme:
    """One JSON object per record, with the fields of a DDL schema: `JsonScheme("id BIGINT NOT NULL,
    o STRUCT<total: DOUBLE>")`.

    `scheme.ddl` has the grammar; a bad schema raises `SchemeDefinitionError`. The rules are the
    same in Python and in Spark:

    - Missing and null: the field is None. If the schema says NOT NULL, the record is malformed.
    - Names: case-sensitive. A field that the schema does not name is left out, but its value must
      be valid JSON.
    - Types: a value must have the JSON type of its field. Nothing is converted: a STRING must be a
      string, a number in quotes is not a number, 1.0 is not a BIGINT.
    - DOUBLE and FLOAT: any finite number, rounded to the nearest; zeros have no sign. A number that
      would become infinite is malformed, and so are NaN and Infinity, quoted or not.
    - DECIMAL: integers, and plain notation without an exponent, of up to 38 digits. A number that
      would have to be rounded is malformed.
    - DATE: `2026-01-31`. TIMESTAMP: `2026-01-31T12:00:00Z`, or an offset like `+02:00` instead of
      the Z. TIMESTAMP_NTZ: the same without Z or offset. A space may replace the T, and up to 9
      decimals may follow the seconds. The first 6 are kept: a time is cut to its microsecond. Years
      are 1 to 9999.
    - BINARY: padded base64.
    - The payload is one JSON object. Malformed are text after it, an array, a scalar, null, and an
      empty payload; and JSON with a duplicate key in an object, a byte order mark, a lone
      surrogate, or more than 100 levels.

    In Python, a STRUCT is a dict with all of its fields, an ARRAY a list, a MAP a dict in UTF-16
    order of its keys, a TIMESTAMP an aware datetime in UTC, a TIMESTAMP_NTZ a naive datetime. The
    Spark setting `spark.sql.variant.allowDuplicateKeys` must keep its default, false.
    """

    __slots__ = ("_schema",)

    def __init__(self, ddl: str) -> None:
        self._schema = parse_ddl(ddl)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._schema.fields)

    @property
    def schema_ddl(self) -> str:
        return self._schema.members

    def decode(self, record: Record) -> tuple[Any, ...]:
        text = utf8_text(record)
        try:
            return fit_record(read_json(text), self._schema)
        except NotJsonError:
            raise MalformedRecordError(NOT_JSON, message_id=record.message_id) from None
        except MismatchError as exc:
            raise MalformedRecordError(exc.reason, message_id=record.message_id) from None

    def column(self, data: Column) -> Column:
        from scheme.json_columns import json_column  # noqa: PLC0415  # that module needs pyspark, which is optional

        return json_column(data.cast("string"), text_reason_column(data), self._schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonScheme) and self._schema == other._schema

    def __hash__(self) -> int:
        return hash(self._schema)

    def __repr__(self) -> str:
        return f"JsonScheme({self.schema_ddl!r})"


_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class NotJsonError(ValueError):
    """The text is not JSON, or JSON that is refused here."""


class Fraction(str):
    """The text of a number that has a point or an exponent. Its class distinguishes it from a
    string.
    """

    __slots__ = ()


def read_json(text: str) -> Any:
    """One JSON text, read as strictly as Spark's VARIANT does: dict, list, str, bool, None, int, or
    `Fraction`. Raises `NotJsonError`, which does not have the text in it.

    Some texts that a JSON parser may accept (RFC 8259) are refused, because Python or Spark would
    lose or change a part of them silently: a duplicate key in an object, a lone surrogate, NaN and
    Infinity, more than 100 levels, and numbers of more than 1000 digits.
    """
    if _deeper_than_allowed(text):
        raise NotJsonError
    try:
        value = _DECODER.decode(text)
        # Only an escape can bring in a lone surrogate; encoding the value then fails.
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, UnicodeEncodeError):
        raise NotJsonError from None
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
    if len(members) != len(pairs) or any(len(name) > JACKSON_MAX_NAME_CHARS for name in members):
        raise NotJsonError
    return members


def _integer(token: str) -> int:
    if (
        len(token) > JACKSON_MAX_NUMBER_DIGITS
        and len(token.lstrip("-")) > JACKSON_MAX_NUMBER_DIGITS
    ):
        raise NotJsonError
    return int(token)


def _fraction(token: str) -> Fraction:
    if len(token) > JACKSON_MAX_NUMBER_DIGITS and _digits(token) > JACKSON_MAX_NUMBER_DIGITS:
        raise NotJsonError
    return Fraction(token)


def _digits(token: str) -> int:
    # Jackson does not count a leading zero before the point.
    return sum(char.isdigit() for char in token) - token.lstrip("-").startswith("0")


def _constant(_token: str) -> None:
    raise NotJsonError


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_fraction,
    parse_constant=_constant,
    strict=True,
)


_TEXT_FORMS = {name: re.compile(form, re.ASCII) for name, form in TEXT_FORMS.items()}
_BIGINT = range(-(1 << 63), 1 << 63)


class MismatchError(ValueError):
    """The value does not fit; `reason` is a fixed sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def fit_record(value: Any, schema: StructType) -> tuple[Any, ...]:
    """The fields of the root object, in the schema's order. Raises `MismatchError` for the first
    field that does not fit.
    """
    if not isinstance(value, dict):
        raise MismatchError(NOT_AN_OBJECT)
    return tuple(_members(value, schema, "").values())


def _members(value: dict[str, Any], schema: StructType, path: str) -> dict[str, Any]:
    return {
        field.name: _fit(
            value.get(field.name), field.type, path + field.name, required=field.required
        )
        for field in schema.fields
    }


def _fit(value: Any, data_type: JsonType, path: str, *, required: bool = False) -> Any:
    if value is None:
        if required:
            raise MismatchError(missing(path))
        return None
    match data_type:
        case StructType() if isinstance(value, dict):
            return _members(value, data_type, path + ".")
        case MapType(value=inner) if isinstance(value, dict):
            # In the order in which a VARIANT keeps its keys, so that Python and Spark report the
            # same first mismatch.
            return {key: _fit(value[key], inner, path + "{}") for key in sorted(value, key=_utf16)}
        case ArrayType(element=inner) if isinstance(value, list):
            return [_fit(item, inner, path + "[]") for item in value]
        case SimpleType() | DecimalType():
            fitted = _scalar(value, data_type)
            if fitted is not None:
                return fitted
    raise MismatchError(mismatch(path, data_type.ddl))


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _scalar(value: Any, data_type: SimpleType | DecimalType) -> Any:
    """The value in the type, or None if it does not fit."""
    if isinstance(data_type, DecimalType):
        return _decimal(value, data_type)
    if data_type.name == "BOOLEAN":
        return value if isinstance(value, bool) else None
    if bits := INTEGER_BITS.get(data_type.name):
        return value if type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1 else None
    if data_type.name in ("FLOAT", "DOUBLE"):
        return _floating(value, single=data_type.name == "FLOAT")
    return text_value(value, data_type.name) if type(value) is str else None


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


def _decimal(value: Any, data_type: DecimalType) -> Decimal | None:
    number = _exact(value)
    if (
        number is None
        or re.fullmatch(decimal_form(data_type.scale), f"{number:f}", re.ASCII) is None
    ):
        return None
    # Not abs(): it rounds to the context's 28 digits.
    if number.copy_abs() >= 10 ** (data_type.precision - data_type.scale):
        return None
    sign, digits, exponent = number.as_tuple()
    shift = data_type.scale + int(exponent)
    kept = digits + (0,) * shift if shift >= 0 else digits[:shift] or (0,)
    return Decimal((sign if any(kept) else 0, kept, -data_type.scale))


def _floating(value: Any, *, single: bool) -> float | None:
    if type(value) is not int and not isinstance(value, Fraction):
        return None
    try:
        number = float(value) + 0.0  # a zero without its sign, as in a VARIANT
        if single:
            number = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


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
