"""Fits a parsed JSON value to a schema, in Python. `JsonScheme` has the rules, and
`scheme.json_columns` does the same in Spark.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from scheme.json_rules import (
    MAX_EXACT_DIGITS,
    NOT_AN_OBJECT,
    TEXT_FORMS,
    decimal_form,
    mismatch,
    missing,
)
from scheme.json_text import Fraction
from scheme.json_type import (
    INTEGER_BITS,
    ArrayType,
    DecimalType,
    JsonType,
    MapType,
    SimpleType,
    StructType,
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
