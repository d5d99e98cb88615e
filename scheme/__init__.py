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

_FILES = {
    "avro_scheme": ("AvroScheme",),
    "cloudwatch_logs": ("CloudWatchLogsScheme",),
    "compressed": ("Compressed",),
    "dynamodb": ("DynamoDbScheme",),
    "errors": (
        "MalformedRecordError",
        "PayloadError",
        "SchemeDefinitionError",
        "SchemeError",
        "SchemeUnavailableError",
    ),
    "glue_scheme": ("GlueScheme", "SchemaRegistry", "SchemaVersion"),
    "json_scheme": ("JsonScheme",),
    "payload_scheme": ("PayloadScheme",),
    "plain_schemes": ("RawScheme", "TextScheme"),
    "protobuf_scheme": ("ProtobufScheme",),
    "record": ("KPL_MAGIC", "Record", "is_kpl_aggregate"),
    "record_scheme": ("RecordScheme", "parsed"),
}
_MODULES = {name: f"scheme.{file}" for file, names in _FILES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: what reads a shard needs `scheme.record` only."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_MODULES[name]), name)
    return value
