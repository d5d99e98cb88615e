"""Attributes of DynamoDB read a column at a time, several times as fast as one by one.

msgspec parses attributes into structs that are made for the types of a DDL, and Arrow gets one
attribute of many items at once. This is done for what DynamoDB writes. Whatever else there is, is
an `IrregularError`, and the reader of single attributes decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from scheme.ddl import arrow_struct, members_ddl
from scheme.errors import PayloadError
from scheme.payload_scheme import IrregularError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Read = Callable[[Any], Any]
    Readers = Callable[[pa.DataType, str], Read]

_PLAIN = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"
_WHOLE = r"^-?[0-9]{1,18}$"
_MAX_CAST_SCALE = 20
"""With 18 digits before the point it has the 38 of a decimal. Arrow's cast does not see all that
overflow, and makes other numbers of them.
"""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a type: the struct that msgspec makes of one, an instance that stands for a
    missing one, and the column of several. `of_values`: the column of members of a set of them.
    `kind`: DynamoDB's name of the type.
    """

    type: Any
    missing: Any
    column: Callable[[Sequence[Any]], pa.Array]
    of_values: Callable[[Sequence[Any]], pa.Array]
    kind: str


@dataclass(frozen=True, slots=True)
class Items:
    """The named attributes of a struct, in an item or within another attribute: as `Attributes`."""

    type: Any
    missing: Any
    column: Callable[[Sequence[Any]], pa.Array]


def items_of(struct: pa.StructType, readers: Readers, *, may_lack: bool, skips: bool) -> Items:
    """`readers`: reads single attributes of a type, as `scheme.dynamodb` does. `may_lack`: NOT NULL
    is no rule. `skips`: names that the struct does not have are left out, else irregular.
    """
    members = [attributes_of(field.type, readers) for field in struct]
    made = named_struct(
        struct.names,
        [one.type for one in members],
        [one.missing for one in members],
        forbid_unknown_fields=not skips,
        frozen=True,
        gc=False,
    )
    missing = made()
    parts = [
        (attrgetter(name), one, field.nullable or may_lack)
        for name, one, field in zip(made.__struct_fields__, members, struct, strict=True)
    ]
    fields = list(arrow_struct(members_ddl(struct)))

    def column(found: Sequence[Any]) -> pa.Array:
        absent = [one is None for one in found]
        are_all = not any(absent)
        items = found if are_all else [missing if one is None else one for one in found]
        columns = []
        for (get, member, may_be_null), field in zip(parts, fields, strict=True):
            of_all = list(map(get, items))
            if all(one is member.missing for one in of_all):  # as most of them in keys
                columns.append(pa.nulls(len(of_all), field.type))
            else:
                columns.append(member.column(of_all))
            if not may_be_null and columns[-1].null_count > sum(absent):
                raise IrregularError
        mask = None if are_all else pa.array(absent)
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)

    return Items(made, missing, column)


def named_struct(
    names: Sequence[str], types: Sequence[Any], defaults: Sequence[Any], **options: Any
) -> Any:
    """A struct whose fields have these names in JSON, which need not be names in Python."""
    fields = [f"f{index}" for index in range(len(names))]
    return msgspec.defstruct(
        "Item",
        list(zip(fields, types, defaults, strict=True)),
        rename=dict(zip(fields, names, strict=True)),
        **options,
    )


def attributes_of(kind: pa.DataType, readers: Readers) -> Attributes:
    if pa.types.is_struct(kind):
        inner = items_of(kind, readers, may_lack=False, skips=False)
        return _of_kind("M", inner.type, inner.column)
    if pa.types.is_map(kind):
        values = attributes_of(kind.item_type, readers)
        return _of_kind("M", dict[str, values.type], _maps(values))  # type: ignore[name-defined]  # made here
    if pa.types.is_list(kind):
        return _lists(attributes_of(kind.value_type, readers))
    letter = "S"
    if pa.types.is_boolean(kind):
        return _of_kind("BOOL", bool, lambda found: pa.array(found, kind))
    if pa.types.is_binary(kind):
        letter = "B"
    elif pa.types.is_decimal(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        letter = "N"
    read = readers(kind, "")

    def alone(found: Sequence[Any]) -> pa.Array:
        try:
            return pa.array([None if one is None else read({letter: one}) for one in found], kind)
        except PayloadError:
            raise IrregularError from None

    if kind == pa.string():
        return _of_kind(letter, str, lambda found: pa.array(found, kind))
    if letter != "N" or (pa.types.is_decimal(kind) and kind.scale > _MAX_CAST_SCALE):
        return _of_kind(letter, str, alone)
    return _of_kind(letter, str, _numbers(kind, alone))


def _numbers(
    kind: pa.DataType, alone: Callable[[Sequence[Any]], pa.Array]
) -> Callable[[Sequence[Any]], pa.Array]:
    form = _WHOLE if pa.types.is_integer(kind) else _PLAIN

    def column(found: Sequence[Any]) -> pa.Array:
        texts = pa.array(found, pa.string())
        if not pc.all(pc.match_substring_regex(texts, form)).as_py():  # NULLs are left out
            return alone(found)
        try:
            numbers = texts.cast(kind)
        except pa.ArrowInvalid:
            raise IrregularError from None
        # Without the sign of a zero.
        return pc.add(numbers, pa.scalar(0.0, kind)) if pa.types.is_floating(kind) else numbers

    return column


def _of_kind(
    kind: str, its_type: Any, of_values: Callable[[Sequence[Any]], pa.Array]
) -> Attributes:
    """Attributes `{kind: value}`, or NULL."""
    made = msgspec.defstruct(
        f"Of{kind}",
        [(kind, its_type, None), ("NULL", bool, None)],
        forbid_unknown_fields=True,
        frozen=True,
        gc=False,
    )
    missing = made()
    value, null = attrgetter(kind), attrgetter("NULL")

    def column(found: Sequence[Any]) -> pa.Array:
        values, nulls = list(map(value, found)), list(map(null, found))
        if None in values or nulls.count(None) < len(nulls):
            for one in found:
                is_odd = (value(one) is None) == (null(one) is None) or null(one) is False
                if is_odd and one is not missing:
                    raise IrregularError
        return of_values(values)

    return Attributes(made, missing, column, of_values, kind)


def _lists(items: Attributes) -> Attributes:
    """Attributes `{"L": [...]}`, a set of values that are no attributes, or NULL."""
    set_name = f"{items.kind}S" if items.kind in ("S", "N", "B") else ""
    types: dict[str, Any] = {"L": list[items.type], "NULL": bool}  # type: ignore[name-defined]  # made here
    if set_name:
        types[set_name] = list[str]
    made = msgspec.defstruct(
        "OfL",
        [(name, its_type, None) for name, its_type in types.items()],
        forbid_unknown_fields=True,
        frozen=True,
        gc=False,
    )
    missing = made()

    def column(found: Sequence[Any]) -> pa.Array:
        has_lists = any(one.L is not None for one in found)
        lists: list[Sequence[Any] | None] = []
        for one in found:
            if one is missing:
                lists.append(None)
                continue
            members = getattr(one, set_name) if set_name else None
            given = (one.L is not None) + (members is not None) + (one.NULL is not None)
            if given != 1 or one.NULL is False:
                raise IrregularError
            if members is not None and has_lists:
                members = [items.type(**{items.kind: member}) for member in members]
            lists.append(members if one.L is None else one.L)
        elements = list(chain.from_iterable(filter(None, lists)))
        column = items.column(elements) if has_lists else items.of_values(elements)
        return pa.ListArray.from_arrays(_offsets(lists), column)

    return Attributes(made, missing, column, column, "L")


def _maps(values: Attributes) -> Callable[[Sequence[Any]], pa.Array]:
    def column(found: Sequence[Any]) -> pa.Array:
        maps = list(filter(None, found))
        keys = pa.array(list(chain.from_iterable(maps)), pa.string())
        items = values.column(list(chain.from_iterable(one.values() for one in maps)))
        return pa.MapArray.from_arrays(_offsets(found), keys, items)

    return column


def _offsets(found: Sequence[Any]) -> pa.Array:
    """Where each of these lists or maps begins, one after the other; NULL where it is None."""
    ends = accumulate((len(one or ()) for one in found), initial=0)
    begins = [None if one is None else at for one, at in zip(found, ends, strict=False)]
    return pa.array([*begins, sum(len(one or ()) for one in found)], pa.int32())
