"""Which steps read the payloads of a schema side by side (`scheme.avro_numbers`): one for each
type, and one for each pair of types where a reader's schema resolves a writer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scheme.avro_numbers import (
    array_step,
    boolean_step,
    bytes_step,
    cast_step,
    constant_step,
    decimal_step,
    enum_step,
    fixed_step,
    float_step,
    long_step,
    map_step,
    record_step,
    union_step,
)
from scheme.avro_types import PRIMITIVES, AvroColumns, body_of, kind_of, logical_of, widened_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheme.avro_numbers import Step

_PROMOTED = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
}
_WHOLE = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}


class Unsupported(Exception):  # noqa: N818  # it is no error: fastavro reads such payloads
    """A schema whose payloads are not read side by side."""


class AvroSteps:
    """The steps of two parsed schemas, whose named types are in these mappings. They are the same
    if there is no reader's schema.
    """

    def __init__(self, names: Mapping[str, Any], reader_names: Mapping[str, Any]) -> None:
        self._names, self._reader_names = names, reader_names
        self._resolves = names is not reader_names
        self._columns = AvroColumns(reader_names, resolved=True)

    def of(self, writer: Any, reader: Any) -> Step:
        """Raises `Unsupported`."""
        wrote, read = body_of(writer, self._names), body_of(reader, self._reader_names)
        kinds = kind_of(wrote, self._names), kind_of(read, self._reader_names)
        if "union" in kinds:
            return self._union(wrote, read, kinds)
        match kinds:
            case ("record", "record"):
                self._same_name(wrote, read)
                return self._record(wrote, read)
            case ("array", "array"):
                return array_step(self.of(wrote["items"], read["items"]))
            case ("map", "map"):
                return map_step(self.of(wrote["values"], read["values"]))
            case ("enum", "enum"):
                self._same_name(wrote, read)
                if not {*wrote["symbols"]} <= {*read["symbols"]}:
                    raise Unsupported
                return enum_step(wrote["symbols"])
            case ("fixed", "fixed") if wrote["size"] != read["size"]:
                raise Unsupported
        return self._scalar(wrote, read, *kinds)

    def _scalar(self, wrote: Any, read: Any, wrote_kind: str, kind: str) -> Step:
        if wrote_kind != kind and (wrote_kind, kind) not in _PROMOTED:
            raise Unsupported
        logical = logical_of(kind, read if isinstance(read, dict) else {})
        if wrote_kind in _WHOLE:
            whole = long_step(*_WHOLE[wrote_kind])
            target = PRIMITIVES[kind] if logical is None else logical.arrow
            return whole if target == PRIMITIVES[wrote_kind] else cast_step(whole, target)
        match wrote_kind:
            case "float" | "double":
                step = float_step(4 if wrote_kind == "float" else 8)
                return step if wrote_kind == kind else cast_step(step, pa.float64())
            case "boolean":
                return boolean_step
            case "string":
                return bytes_step(pa.string())
            case "bytes":
                plain = bytes_step(pa.binary())
            case "fixed":
                self._same_name(wrote, read)
                plain = fixed_step(wrote["size"])
            case _:
                raise Unsupported
        return plain if logical is None else decimal_step(plain, logical.type)

    def _record(self, wrote: Any, read: Any) -> Step:
        written = {field["name"] for field in wrote["fields"]}
        wanted = {field["name"]: field for field in read["fields"]}
        if any(field.get("aliases") for field in read["fields"]) and self._resolves:
            raise Unsupported
        steps = [
            (field["name"], self.of(field["type"], wanted[field["name"]]["type"]))
            if field["name"] in wanted
            else (None, AvroSteps(self._names, self._names).of(field["type"], field["type"]))
            for field in wrote["fields"]
        ]
        defaults = {
            name: self._default(field) for name, field in wanted.items() if name not in written
        }
        return record_step(steps, defaults, list(wanted))

    def _default(self, field: Any) -> Step:
        if "default" not in field:
            raise Unsupported
        column = self._columns.of(field["type"])
        value = field["default"]
        try:
            one = pa.array([column.convert(value) if column.convert else value], column.type)
        except Exception:  # noqa: BLE001  # a default that does not fit makes records malformed
            raise Unsupported from None
        return constant_step(one)

    def _union(self, wrote: Any, read: Any, kinds: tuple[str, str]) -> Step:
        """Of unions that are the same, and of a type or null that is read as one or null."""
        members = [member for member in read if kind_of(member, self._reader_names) != "null"]
        own = [kind_of(member, self._names) for member in wrote] if kinds[0] == "union" else []
        if kinds == ("union", "union") and not self._resolves:
            return self._same_union(wrote, own)
        others = [member for member, kind in zip(wrote, own, strict=False) if kind != "null"]
        if kinds[1] != "union" or len(members) != 1 or len(read) != 2 or len(others) > 1:
            raise Unsupported
        if kinds[0] != "union":
            return self.of(wrote, members[0])
        if len(others) != 1:
            raise Unsupported
        inner = self.of(others[0], members[0])
        return union_step([None if kind == "null" else inner for kind in own])

    def _same_union(self, body: Any, kinds: list[str]) -> Step:
        others = [
            (member, kind) for member, kind in zip(body, kinds, strict=True) if kind != "null"
        ]
        wide = widened_to([kind for _, kind in others])
        if len(others) == 1 or wide is None:
            steps = [
                None if kind == "null" else self.of(member, member)
                for member, kind in zip(body, kinds, strict=True)
            ]
        else:
            steps = [
                None if kind == "null" else cast_step(self.of(kind, kind), PRIMITIVES[wide])
                for kind in kinds
            ]
        if len(others) == 1 or wide is not None:
            return union_step(steps)
        unnamed = [kind for _, kind in others if kind not in ("record", "enum", "fixed")]
        if len(set(unnamed)) < len(unnamed):
            raise Unsupported
        return union_step(steps, [f"member{index}" for index in range(len(others))])

    def _same_name(self, wrote: Any, read: Any) -> None:
        if wrote["name"] != read["name"]:
            raise Unsupported
