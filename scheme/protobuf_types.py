"""The columns of a Protobuf message, and how a parsed message becomes their values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor as Kind

from scheme.errors import PayloadError, SchemeDefinitionError
from scheme.json_type import (
    ArrayType,
    DecimalType,
    Field,
    JsonType,
    MapType,
    SimpleType,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[Any], Any]

OUT_OF_RANGE = "a Timestamp is not in the years 1 to 9999"
TOO_DEEP = "a recursive message has more levels than recursion_depth"

_SIMPLE = {
    Kind.CPPTYPE_INT32: "INT",
    Kind.CPPTYPE_INT64: "BIGINT",
    Kind.CPPTYPE_UINT32: "BIGINT",
    Kind.CPPTYPE_DOUBLE: "DOUBLE",
    Kind.CPPTYPE_FLOAT: "FLOAT",
    Kind.CPPTYPE_BOOL: "BOOLEAN",
    Kind.CPPTYPE_ENUM: "STRING",
}
_UINT64 = DecimalType(20, 0)
"""The smallest type that holds each unsigned number of 64 bits, exactly."""
_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ProtobufColumn:
    """The type of a value's column, and the function that converts what protobuf has parsed."""

    type: JsonType
    convert: Convert


def columns_of(message: Any, recursion_depth: int) -> ProtobufColumn:
    """The struct of a message's descriptor. A message within itself is followed so many times.

    Raises `SchemeDefinitionError`, with the path of the field, for a message that has no columns.
    """
    found = _Columns(recursion_depth).message(message, message.full_name, ())
    if found is None:
        raise SchemeDefinitionError(
            f"the Protobuf message {message.full_name} has no fields",
            "Spark has no empty structs; read the records with RawScheme()",
        )
    return found


class _Columns:
    def __init__(self, recursion_depth: int) -> None:
        self._recursion_depth = recursion_depth

    def message(self, message: Any, path: str, inside: tuple[str, ...]) -> ProtobufColumn | None:
        """None for a message without fields, which Spark's own functions leave out as well."""
        if message.full_name == _TIMESTAMP:
            return ProtobufColumn(SimpleType("TIMESTAMP"), _timestamp)
        within = (*inside, message.full_name)
        members: list[tuple[str, JsonType, Convert]] = []
        deepest: list[Convert] = []
        for field in message.fields:
            name = field.name
            inner = _message_of(field)
            if inner is not None and within.count(inner.full_name) > self._recursion_depth:
                if not self._recursion_depth:
                    raise SchemeDefinitionError(
                        f"the Protobuf message {inner.full_name} contains itself at {path}.{name}",
                        "Spark has no recursive types; give recursion_depth, the number of levels "
                        "that the records have at most",
                    )
                deepest.append(_absent(field))
                continue
            column = self._field(field, f"{path}.{name}", within)
            if column is not None:
                members.append((name, column.type, column.convert))
        if not members:
            return None
        fields = tuple(Field(name, type_, required=False) for name, type_, _ in members)
        converts = [(name, convert) for name, _, convert in members]

        def convert(parsed: Any) -> dict[str, Any]:
            for check in deepest:
                check(parsed)
            return {name: convert_field(parsed) for name, convert_field in converts}

        return ProtobufColumn(StructType(fields), convert)

    def _field(self, field: Any, path: str, inside: tuple[str, ...]) -> ProtobufColumn | None:
        """The column of a field, whose `convert` takes the message."""
        name = field.name
        entry = field.message_type if field.is_repeated else None
        if entry is not None and entry.GetOptions().map_entry:
            return self._map(field, entry, path, inside)
        value = self._value(field, path, inside)
        if value is None:
            return None
        convert = value.convert
        if field.is_repeated:
            return ProtobufColumn(
                ArrayType(value.type),
                lambda parsed: [convert(one) for one in getattr(parsed, name)],
            )
        if field.has_presence:
            return ProtobufColumn(
                value.type,
                lambda parsed: convert(getattr(parsed, name)) if parsed.HasField(name) else None,
            )
        return ProtobufColumn(value.type, lambda parsed: convert(getattr(parsed, name)))

    def _map(
        self, field: Any, entry: Any, path: str, inside: tuple[str, ...]
    ) -> ProtobufColumn | None:
        name = field.name
        key = self._value(entry.fields_by_name["key"], path, inside)
        value = self._value(entry.fields_by_name["value"], path, inside)
        if key is None or value is None:
            return None
        convert_key, convert_value = key.convert, value.convert
        return ProtobufColumn(
            MapType(value.type, key.type),
            # In the order of the keys, as a map of Protobuf has none.
            lambda parsed: {
                convert_key(one): convert_value(inner)
                for one, inner in sorted(getattr(parsed, name).items(), key=_key_of)
            },
        )

    def _value(self, field: Any, path: str, inside: tuple[str, ...]) -> ProtobufColumn | None:
        """The column of a field's value, or of one of its values."""
        kind = field.cpp_type
        if kind == Kind.CPPTYPE_MESSAGE:
            return self.message(field.message_type, path, inside)
        if kind == Kind.CPPTYPE_UINT64:
            return ProtobufColumn(_UINT64, _decimal)
        if kind == Kind.CPPTYPE_STRING:
            is_text = field.type == Kind.TYPE_STRING
            return ProtobufColumn(SimpleType("STRING" if is_text else "BINARY"), _same)
        convert = _symbol(field.enum_type) if kind == Kind.CPPTYPE_ENUM else _same
        return ProtobufColumn(SimpleType(_SIMPLE[kind]), convert)


def _key_of(item: tuple[Any, Any]) -> Any:
    return item[0]


def _message_of(field: Any) -> Any:
    """The message that a field has, or that the values of its map have; or None."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return message.fields_by_name["value"].message_type
    return message


def _absent(field: Any) -> Convert:
    name, is_repeated = field.name, field.is_repeated

    def check(parsed: Any) -> None:
        if len(getattr(parsed, name)) if is_repeated else parsed.HasField(name):
            raise PayloadError(TOO_DEEP)

    return check


def _same(value: Any) -> Any:
    return value


def _decimal(value: int) -> Decimal:
    return Decimal(value)


def _symbol(enum: Any) -> Convert:
    names = {number: value.name for number, value in enum.values_by_number.items()}
    # An open enum may have a number that this version of the schema does not name.
    return lambda number: names.get(number) or str(number)


def _timestamp(parsed: Any) -> datetime:
    try:
        if not 0 <= parsed.nanos < _SECOND_NS:
            raise PayloadError(OUT_OF_RANGE)
        # Cut to the microsecond, which is all that Spark and Python hold.
        return _EPOCH + timedelta(seconds=parsed.seconds, microseconds=parsed.nanos // 1000)
    except OverflowError:
        raise PayloadError(OUT_OF_RANGE) from None
