"""The columns of an Avro schema, and how the values that fastavro reads become theirs.

A schema is read without its logical types, and each value is converted by the schema that the rows
have: the reader's, if there is one. This is how Java's readers resolve logical types. It also keeps
fastavro from rounding a decimal that has more digits than its schema allows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scheme.ddl import SIMPLE, array_of
from scheme.errors import PayloadError, SchemeDefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Convert = Callable[[Any], Any]

OUT_OF_RANGE = "a date or time is not in the years 1 to 9999"
TOO_LARGE = "a decimal has more digits than its schema allows"
ROOT = "value"
"""The only field of a schema that is not a record."""

PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_NAMED = ("record", "enum", "fixed")
_WIDER = (("int", "long"), ("float", "double"))
_UNITS = {"millis": 1000, "micros": 1}
_ARROW_UNITS = {"millis": "ms", "micros": "us"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_BEFORE_1970 = date(1970, 1, 1).toordinal()
_MAX_PRECISION = 38


@dataclass(frozen=True, slots=True)
class AvroColumn:
    """The type of a value's column, and the function that converts what fastavro reads; None if
    that is the column's value already.

    `arrow`: the Arrow type that takes what fastavro reads, unconverted; None if none does. Its
    times may be in another unit than the column's.
    """

    type: pa.DataType
    convert: Convert | None = None
    arrow: pa.DataType | None = None


def as_record(schema: Any) -> Any:
    """The schema of a payload as a record, which has the same bytes."""
    if isinstance(schema, dict) and schema.get("type") in ("record", "error"):
        return schema
    return {"type": "record", "name": "_ks_root", "fields": [{"name": ROOT, "type": schema}]}


def without_logical_types(schema: Any) -> Any:
    """A copy of a parsed schema that fastavro reads without conversions."""
    if isinstance(schema, dict):
        left_out = ("logicalType", "__fastavro_parsed_schema", "__named_schemas")
        return {
            key: value if key in ("default", "symbols", "aliases") else without_logical_types(value)
            for key, value in schema.items()
            if key not in left_out
        }
    return [without_logical_types(each) for each in schema] if isinstance(schema, list) else schema


class _Numbered(list[Any]):
    """The symbols of an enum or the members of a union, for a reader that takes them by the number
    in a payload. Cython adds the length to a negative number, as Python does: -1 would be the last.
    With this length there is nothing there.
    """

    def __len__(self) -> int:
        return 1 << 40

    def __bool__(self) -> bool:
        return True


def refuse_negative_numbers(parsed: Any) -> None:
    """Make fastavro raise IndexError for a negative number of a symbol or member. Changes `parsed`,
    the schema of a writer.
    """
    pending, seen = [parsed], set()
    while pending:
        node = pending.pop()
        if id(node) in seen or not isinstance(node, dict | list):
            continue
        seen.add(id(node))
        inner = list(node.values() if isinstance(node, dict) else iter(node))
        pending += inner
        if isinstance(node, dict):
            for key in ("type", "items", "values", "symbols"):
                if type(node.get(key)) is list:
                    node[key] = _Numbered(node[key])


def _same(value: Any) -> Any:
    return value


def kind_of(schema: Any, names: Mapping[str, Any]) -> str:
    """The type's name: a primitive, or record, enum, fixed, array, map or union."""
    if isinstance(schema, list):
        return "union"
    name = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(name, dict | list):
        return kind_of(name, names)
    if name in names and name not in PRIMITIVES:
        return kind_of(names[name], names)
    return "record" if name == "error" else str(name)


def body_of(schema: Any, names: Mapping[str, Any]) -> Any:
    """The definition that a schema's name, or a schema in `type`, stands for."""
    if isinstance(schema, str) and schema in names:
        return names[schema]
    if isinstance(schema, dict):
        inner = schema["type"]
        if isinstance(inner, dict | list) or inner in names:
            return body_of(inner, names)
    return schema


def _entered(body: Any, path: str, inside: tuple[str, ...]) -> tuple[str, ...]:
    name = body["name"]
    if name in inside:
        raise SchemeDefinitionError(
            f"the Avro schema is recursive: {name} contains itself at {path or name!r}",
            "Spark has no recursive types; remove the recursive field from the producer's "
            "schema, or read the records with RawScheme()",
        )
    return (*inside, name)


def complete_defaults(names: Mapping[str, Any]) -> None:
    """Add to the defaults of the named types, which are not recursive, what the records within them
    leave to the defaults of their own fields. fastavro does not. Changes the types.
    """

    def completed(schema: Any, value: Any) -> Any:
        body = body_of(schema, names)
        kind = kind_of(body, names)
        if kind == "union":
            # A default of a union may be one of any of its members.
            wanted = ("array",) if isinstance(value, list) else ("record", "map")
            body = next((one for one in body if kind_of(one, names) in wanted), "null")
            return completed(body, value)
        if kind == "array" and isinstance(value, list):
            return [completed(body["items"], item) for item in value]
        if kind == "map" and isinstance(value, dict):
            return {key: completed(body["values"], item) for key, item in value.items()}
        if kind == "record" and isinstance(value, dict):
            own = {
                one["name"]: one["default"] for one in body["fields"] if "default" in one
            } | value
            fields = [one for one in body["fields"] if one["name"] in own]
            return {one["name"]: completed(one["type"], own[one["name"]]) for one in fields}
        return value

    for body in names.values():
        for field in body.get("fields", ()):
            if "default" in field:
                field["default"] = completed(field["type"], field["default"])


def bytes_at_least(
    schema: Any, names: Mapping[str, Any], path: str = "", inside: tuple[str, ...] = ()
) -> int:
    """The size of the smallest value, in bytes. Raises `SchemeDefinitionError` for a schema under
    which a few bytes may stand for any number of items, or for any number of levels. No payload of
    it can be read in bounded memory.
    """
    body = body_of(schema, names)
    match kind_of(body, names):
        case "null":
            return 0
        case "fixed":
            size = body["size"]
            if type(size) is not int or size < 0:
                raise SchemeDefinitionError(
                    f"the Avro type fixed at {path!r} has size {size!r}",
                    "set the size to at least 1 byte",
                )
            return size
        case "float":
            return 4
        case "double":
            return 8
        case "record":
            within = _entered(body, path, inside)
            return sum(
                bytes_at_least(field["type"], names, _member(path, field["name"]), within)
                for field in body["fields"]
            )
        case "array":
            if not bytes_at_least(body["items"], names, path + "[]", inside):
                raise SchemeDefinitionError(
                    f"the Avro schema has an array at {path!r} whose items take no bytes",
                    "use an item type that takes bytes, because a few bytes could otherwise "
                    "encode any number of items",
                )
        case "map":
            bytes_at_least(body["values"], names, path + "{}", inside)
        case "union":
            for member in body:
                bytes_at_least(member, names, path, inside)
    return 1


# About as many bytes as CPython 3.11 takes: for a scalar and its place in a list; for a dict, and
# for each of its members; for a list or dict with its first item; for a map's key. A scalar with a
# single byte is one of those that CPython has once, so scalars alone take half of it for each byte.
_SCALAR, _RECORD, _MEMBER, _CONTAINER, _KEY = 40, 160, 40, 100, 100


class ValueCosts:
    """Two schemas walked together, since a field with a default takes memory and has no bytes.

    `most`: the memory in Python that a value of a payload takes at most, over all items of arrays,
    values of maps and members of unions. Each of them has to pay for itself: then all of a payload
    together do. A value is what has a byte or more: also the number of a union's member and the end
    of an array.
    """

    def __init__(self, names: Mapping[str, Any], reader_names: Mapping[str, Any]) -> None:
        self._names, self._reader_names = names, reader_names
        self.most = _SCALAR // 2

    def of(self, writer: Any, reader: Any) -> tuple[int, int]:
        """The fewest values of one value, and its memory, but for what pays for itself."""
        wrote, read = body_of(writer, self._names), body_of(reader, self._reader_names)
        kinds = kind_of(wrote, self._names), kind_of(read, self._reader_names)
        if "union" in kinds:
            for member in wrote if kinds[0] == "union" else [wrote]:
                for other in read if kinds[1] == "union" else [read]:
                    if kind_of(member, self._names) == kind_of(other, self._reader_names):
                        self._pay(*self.of(member, other))
            return 1, _SCALAR
        match kinds:
            case ("record", "record"):
                return self._record(wrote, read)
            case ("array", "array"):
                self._pay(*self.of(wrote["items"], read["items"]))
                return 1, _CONTAINER
            case ("map", "map"):
                values, memory = self.of(wrote["values"], read["values"])
                self._pay(values + 2, memory + _KEY)  # a key's length and text
                return 1, _CONTAINER
        return int(kinds[0] != "null"), _SCALAR

    def _record(self, wrote: Any, read: Any) -> tuple[int, int]:
        written = {field["name"]: field["type"] for field in wrote["fields"]}
        values, memory = 0, _RECORD
        for field in read["fields"]:
            memory += _MEMBER
            known = [name for name in (field["name"], *field.get("aliases", ())) if name in written]
            if known:
                more_values, more_memory = self.of(written[known[0]], field["type"])
                values += more_values
                memory += more_memory - _SCALAR
        return values, memory

    def _pay(self, values: int, memory: int) -> None:
        if memory > _SCALAR:
            self.most = max(self.most, memory // max(values, 1))


class AvroColumns:
    """The columns of parsed schemas, whose named types are in `names`.

    `resolved`: the schema is a reader's, so fields are not in its order, numbers may be promoted,
    and defaults are as JSON has them.
    """

    def __init__(self, names: Mapping[str, Any], *, resolved: bool) -> None:
        self._names = names
        self._resolved = resolved

    def of(self, schema: Any, path: str = "", inside: tuple[str, ...] = ()) -> AvroColumn:
        """Raises `SchemeDefinitionError`, with the path of the field, for a schema that has no
        columns.
        """
        body = body_of(schema, self._names)
        kind = kind_of(body, self._names)
        match kind:
            case "record":
                return self._record(body, path, _entered(body, path, inside))
            case "array":
                items = self.of(body["items"], path + "[]", inside)
                arrow = items.arrow and array_of(items.arrow)
                return AvroColumn(array_of(items.type), _each(items.convert), arrow)
            case "map":
                values = self.of(body["values"], path + "{}", inside)
                arrow = values.arrow and pa.map_(pa.string(), values.arrow)
                mapped = pa.map_(pa.string(), values.type)
                return AvroColumn(mapped, _each_value(values.convert), arrow)
            case "union":
                return self._union(body, path, inside)
            case "null":
                raise SchemeDefinitionError(
                    f"the Avro field {path!r} has only the type null",
                    f"pass a reader_schema without the field {path}",
                )
        logical = logical_of(kind, body if isinstance(body, dict) else {})
        if logical is not None:
            return logical
        simple = PRIMITIVES[kind]
        convert = _RESOLVED.get(kind) if self._resolved else None
        # Arrow would take a default of bytes as UTF-8.
        is_bytes_default = convert is _bytes
        return AvroColumn(simple, convert, None if is_bytes_default else simple)

    def _record(self, body: Any, path: str, inside: tuple[str, ...]) -> AvroColumn:
        members = {
            field["name"]: self.of(field["type"], _member(path, field["name"]), inside)
            for field in body["fields"]
        }
        if not members:
            raise SchemeDefinitionError(
                f"the Avro record {body['name']} has no fields",
                "Spark has no empty structs; pass a reader_schema without this record",
            )
        fields = pa.struct([(name, column.type) for name, column in members.items()])
        converts = [(name, column.convert or _same) for name, column in members.items()]
        arrow: pa.DataType | None = None
        if all(column.arrow is not None for column in members.values()):
            arrow = pa.struct([(name, column.arrow) for name, column in members.items()])
        if not self._resolved and all(column.convert is None for column in members.values()):
            return AvroColumn(fields, None, arrow)
        return AvroColumn(
            fields,
            lambda record: {name: convert(record[name]) for name, convert in converts},
            arrow,
        )

    def _union(self, body: list[Any], path: str, inside: tuple[str, ...]) -> AvroColumn:
        members = [member for member in body if kind_of(member, self._names) != "null"]
        kinds = [kind_of(member, self._names) for member in members]
        if not members:
            return self.of("null", path, inside)
        widened = widened_to(kinds)
        if len(members) == 1 or widened is not None:
            inner = self.of(widened or members[0], path, inside)
            return AvroColumn(
                inner.type,
                _nullable(inner.convert, is_named=kinds[0] in _NAMED),
                inner.arrow,
            )
        if any({narrow, wide} <= set(kinds) for narrow, wide in _WIDER):
            raise SchemeDefinitionError(
                f"the Avro union at {path!r} has two number types that Python cannot distinguish",
                "pass a reader_schema that has only the wider of the two types",
            )
        columns = [self.of(member, f"{path}.member{i}", inside) for i, member in enumerate(members)]
        positions = {
            _python_key(body_of(member, self._names), kind): (index, column.convert or _same)
            for index, (member, kind, column) in enumerate(
                zip(members, kinds, columns, strict=True)
            )
        }
        return AvroColumn(
            pa.struct([(f"member{index}", column.type) for index, column in enumerate(columns)]),
            _member_of(positions, len(columns)),
        )


def widened_to(kinds: Sequence[str]) -> str | None:
    """The type that takes all numbers of a union with these types, if it has one."""
    return next((wide for narrow, wide in _WIDER if set(kinds) == {narrow, wide}), None)


def _python_key(body: Any, kind: str) -> Any:
    """What tells the members of a union apart in the values of fastavro: the class, or the name of
    a named type.
    """
    if kind in _NAMED:
        return body["name"]
    classes = {"boolean": bool, "int": int, "long": int, "float": float, "double": float}
    return classes.get(kind) or {"bytes": bytes, "string": str, "array": list, "map": dict}[kind]


def _member_of(positions: Mapping[Any, tuple[int, Convert]], count: int) -> Convert:
    names = [f"member{index}" for index in range(count)]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        # A value of a named type is a pair of its name and itself.
        key, inner = value if type(value) is tuple else (type(value), value)
        found = dict.fromkeys(names)
        index, convert_member = positions[key]
        found[names[index]] = convert_member(inner)
        return found

    return convert


def logical_of(kind: str, body: Mapping[str, Any]) -> AvroColumn | None:
    """The column of a logical type that Spark has. Avro says that a reader ignores others, and
    invalid ones.
    """
    name = str(body.get("logicalType", ""))
    if kind == "int" and name == "date":
        return AvroColumn(pa.date32(), _date, pa.date32())
    stem, _, unit = name.rpartition("-")
    if kind == "long" and unit in _UNITS and stem in ("timestamp", "local-timestamp"):
        is_local = stem != "timestamp"
        start = _EPOCH.replace(tzinfo=None) if is_local else _EPOCH
        return AvroColumn(
            SIMPLE["TIMESTAMP_NTZ" if is_local else "TIMESTAMP"],
            _time(start, _UNITS[unit]),
            pa.timestamp(_ARROW_UNITS[unit], None if is_local else "UTC"),
        )
    if kind in ("bytes", "fixed") and name == "decimal":
        precision, scale = body.get("precision", 0), body.get("scale", 0)
        if 0 <= scale <= precision and 1 <= precision <= _MAX_PRECISION:
            return AvroColumn(pa.decimal128(precision, scale), _decimal(precision, scale))
    return None


def _date(days: int) -> date:
    try:
        return date.fromordinal(days + _DAYS_BEFORE_1970)
    except (ValueError, OverflowError):
        raise PayloadError(OUT_OF_RANGE) from None


def _time(start: datetime, unit_us: int) -> Convert:
    def convert(ticks: int) -> datetime:
        try:
            return start + timedelta(microseconds=ticks * unit_us)
        except OverflowError:
            raise PayloadError(OUT_OF_RANGE) from None

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    limit = 10**precision

    def convert(unscaled: bytes | str) -> Decimal:
        number = int.from_bytes(_bytes(unscaled), "big", signed=True)
        if not -limit < number < limit:
            raise PayloadError(TOO_LARGE)
        digits = tuple(map(int, str(abs(number))))
        return Decimal((int(number < 0), digits, -scale))

    return convert


def _bytes(value: bytes | str) -> bytes:
    """Bytes; a default of the schema is text, in which each character stands for a byte."""
    return value if isinstance(value, bytes) else value.encode("iso-8859-1")


def _float32(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


_RESOLVED: Mapping[str, Convert] = {
    "float": _float32,
    "double": float,
    "bytes": _bytes,
    "fixed": _bytes,
}
"""How promoted numbers and defaults of the schema become values of their columns."""


def _nullable(convert: Convert | None, *, is_named: bool) -> Convert | None:
    if is_named:
        inner = convert or _same
        # Beside other unions, fastavro gives a pair of the name and the value.
        return lambda value: (
            None if value is None else inner(value[1] if type(value) is tuple else value)
        )
    return convert and (lambda value: None if value is None else convert(value))


def _each(convert: Convert | None) -> Convert | None:
    return convert and (lambda items: [convert(item) for item in items])


def _each_value(convert: Convert | None) -> Convert | None:
    return convert and (lambda found: {key: convert(value) for key, value in found.items()})


def _member(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
