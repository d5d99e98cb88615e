"""The Arrow types of a DDL schema: the columns that Spark takes for it."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from scheme.ddl import parse_ddl
from scheme.json_rules import FIRST_TIME_US, LAST_TIME_US
from scheme.json_type import ArrayType, DecimalType, JsonType, MapType, SimpleType, StructType

_SIMPLE = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}


_DAY_US = 86_400_000_000


@cache
def arrow_struct(ddl: str) -> pa.StructType:
    """The struct of a schema's fields, all of them nullable. Raises `SchemeDefinitionError`."""
    return arrow_type(parse_ddl(ddl, any_keys=True))


def arrow_type(data_type: JsonType) -> pa.DataType:
    match data_type:
        case SimpleType(name=name):
            return _SIMPLE[name]
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element=inner):
            return pa.list_(pa.field("element", arrow_type(inner)))
        case MapType(value=inner, key=key):
            return pa.map_(arrow_type(key), arrow_type(inner))
        case StructType(fields=fields):
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])


def has_python_times(array: pa.Array) -> bool:
    """Whether each date and time in the array, also within its elements, is in the years 1 to 9999,
    which is the range of Python's. Times are in microseconds.
    """
    if pa.types.is_struct(array.type):
        return all(map(has_python_times, array.flatten()))
    if pa.types.is_map(array.type):
        return has_python_times(array.items)
    if pa.types.is_list(array.type):
        return has_python_times(array.flatten())
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
