"""Schemes: how the bytes of a Kinesis record become fields. A leaf package: it imports no other
package of this project.
"""

from scheme.errors import MalformedRecordError, SchemeDefinitionError, SchemeError
from scheme.json_scheme import JsonScheme
from scheme.raw_scheme import RawScheme
from scheme.record import KPL_MAGIC, Record, is_kpl_aggregate
from scheme.record_scheme import RecordScheme, parsed
from scheme.text_scheme import TextScheme

__all__ = [
    "KPL_MAGIC",
    "JsonScheme",
    "MalformedRecordError",
    "RawScheme",
    "Record",
    "RecordScheme",
    "SchemeDefinitionError",
    "SchemeError",
    "TextScheme",
    "is_kpl_aggregate",
    "parsed",
]
