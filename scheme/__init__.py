"""Schemes: how the bytes of a Kinesis record become fields. A leaf package: it imports no other
package of this project.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheme.avro_scheme import AvroScheme
    from scheme.cloudwatch_logs import CloudWatchLogsScheme
    from scheme.compressed import Compressed
    from scheme.dynamodb import DynamoDbScheme
    from scheme.errors import (
        MalformedRecordError,
        PayloadError,
        SchemeDefinitionError,
        SchemeError,
        SchemeUnavailableError,
    )
    from scheme.glue_scheme import GlueScheme, SchemaRegistry, SchemaVersion
    from scheme.json_scheme import JsonScheme
    from scheme.payload_scheme import PayloadScheme
    from scheme.plain_schemes import RawScheme, TextScheme
    from scheme.protobuf_scheme import ProtobufScheme
    from scheme.record import KPL_MAGIC, Record, is_kpl_aggregate
    from scheme.record_scheme import RecordScheme, parsed

__all__ = [
    "KPL_MAGIC",
    "AvroScheme",
    "CloudWatchLogsScheme",
    "Compressed",
    "DynamoDbScheme",
    "GlueScheme",
    "JsonScheme",
    "MalformedRecordError",
    "PayloadError",
    "PayloadScheme",
    "ProtobufScheme",
    "RawScheme",
    "Record",
    "RecordScheme",
    "SchemaRegistry",
    "SchemaVersion",
    "SchemeDefinitionError",
    "SchemeError",
    "SchemeUnavailableError",
    "TextScheme",
    "is_kpl_aggregate",
    "parsed",
]

_MODULES = {
    "KPL_MAGIC": "scheme.record",
    "AvroScheme": "scheme.avro_scheme",
    "CloudWatchLogsScheme": "scheme.cloudwatch_logs",
    "Compressed": "scheme.compressed",
    "DynamoDbScheme": "scheme.dynamodb",
    "GlueScheme": "scheme.glue_scheme",
    "JsonScheme": "scheme.json_scheme",
    "MalformedRecordError": "scheme.errors",
    "PayloadError": "scheme.errors",
    "PayloadScheme": "scheme.payload_scheme",
    "ProtobufScheme": "scheme.protobuf_scheme",
    "RawScheme": "scheme.plain_schemes",
    "Record": "scheme.record",
    "RecordScheme": "scheme.record_scheme",
    "SchemaRegistry": "scheme.glue_scheme",
    "SchemaVersion": "scheme.glue_scheme",
    "SchemeDefinitionError": "scheme.errors",
    "SchemeError": "scheme.errors",
    "SchemeUnavailableError": "scheme.errors",
    "TextScheme": "scheme.plain_schemes",
    "is_kpl_aggregate": "scheme.record",
    "parsed": "scheme.record_scheme",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: what reads a shard needs `scheme.record` only."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_MODULES[name]), name)
    return value
