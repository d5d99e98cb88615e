"""The Arrow types of a DDL schema: the columns that Spark takes for it."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from scheme.ddl import parse_ddl
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


@cache
def arrow_struct(ddl: str) -> pa.StructType:
    """The struct of a schema's fields, all of them nullable. Raises `SchemeDefinitionError`."""
    return arrow_type(parse_ddl(ddl))


def arrow_type(data_type: JsonType) -> pa.DataType:
    match data_type:
        case SimpleType(name=name):
            return _SIMPLE[name]
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element=inner):
            return pa.list_(pa.field("element", arrow_type(inner)))
        case MapType(value=inner):
            return pa.map_(pa.string(), arrow_type(inner))
        case StructType(fields=fields):
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])
