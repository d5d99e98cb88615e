"""What Arrow does to a value without an error."""

from __future__ import annotations

import math
import numbers
from datetime import datetime, time
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable


_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127


def is_changed(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Whether Arrow makes another value of one of these, which it has taken for the type.

    It cuts off what a number has after the point, makes a number infinite that is too large for a
    FLOAT, cuts off the time of a `datetime` for a DATE, takes a number for a time in its own unit
    and a text for an array of its characters, and the values of Spark's `Row` by their places.
    """
    if pa.types.is_integer(kind):
        found = list(values)
        return bool(set(map(type, found)) - {int, NoneType}) and any(
            value is not None and value != int(value) for value in found
        )
    if pa.types.is_float32(kind):
        return any(one is not None and _LARGEST_FLOAT < abs(one) < math.inf for one in values)
    if pa.types.is_temporal(kind):
        found = list(values)
        return any(issubclass(one, numbers.Number) for one in set(map(type, found))) or (
            pa.types.is_date(kind)
            and any(isinstance(value, datetime) and value.time() != time() for value in found)
        )
    if not pa.types.is_nested(kind):
        return False
    present = [value for value in values if value is not None]
    if pa.types.is_list(kind):
        has_text = any(isinstance(value, str) for value in present)
        return has_text or is_changed(chain.from_iterable(present), kind.value_type)
    if pa.types.is_map(kind):
        entries = (value.items() if isinstance(value, dict) else value for value in present)
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return is_changed(chain.from_iterable(entries), entry)
    names = kind.names
    if any(list(getattr(value, "__fields__", names)) != names for value in present):
        return True
    members = [
        dict(zip(names, value, strict=True) if isinstance(value, tuple) else value)
        for value in present
    ]
    return any(is_changed([one.get(field.name) for one in members], field.type) for field in kind)
