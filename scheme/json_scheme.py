"""The scheme that decodes one JSON object per record by a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheme.ddl import parse_ddl
from scheme.errors import MalformedRecordError
from scheme.json_rules import NOT_JSON
from scheme.json_text import NotJsonError, read_json
from scheme.json_values import MismatchError, fit_record
from scheme.text_scheme import text_reason_column, utf8_text

if TYPE_CHECKING:
    from pyspark.sql import Column

    from scheme.record import Record


class JsonScheme:
    """One JSON object per record, with the fields of a DDL schema: `JsonScheme("id BIGINT NOT NULL,
    o STRUCT<total: DOUBLE>")`.

    `scheme.ddl` has the grammar; a bad schema raises `SchemeDefinitionError`. The rules are the
    same in Python and in Spark:

    - Missing and null: the field is None. If the schema says NOT NULL, the record is malformed.
    - Names: case-sensitive. A field that the schema does not name is left out, but its value must
      be valid JSON.
    - Types: a value must have the JSON type of its field. Nothing is converted: a STRING must be a
      string, a number in quotes is not a number, 1.0 is not a BIGINT.
    - DOUBLE and FLOAT: any finite number, rounded to the nearest; zeros have no sign. A number that
      would become infinite is malformed, and so are NaN and Infinity, quoted or not.
    - DECIMAL: integers, and plain notation without an exponent, of up to 38 digits. A number that
      would have to be rounded is malformed.
    - DATE: `2026-01-31`. TIMESTAMP: `2026-01-31T12:00:00Z`, or an offset like `+02:00` instead of
      the Z. TIMESTAMP_NTZ: the same without Z or offset. A space may replace the T, and up to 9
      decimals may follow the seconds. The first 6 are kept: a time is cut to its microsecond. Years
      are 1 to 9999.
    - BINARY: padded base64.
    - The payload is one JSON object. Malformed are text after it, an array, a scalar, null, and an
      empty payload; and JSON with a duplicate key in an object, a byte order mark, a lone
      surrogate, or more than 100 levels.

    In Python, a STRUCT is a dict with all of its fields, an ARRAY a list, a MAP a dict in UTF-16
    order of its keys, a TIMESTAMP an aware datetime in UTC, a TIMESTAMP_NTZ a naive datetime. The
    Spark setting `spark.sql.variant.allowDuplicateKeys` must keep its default, false.
    """

    __slots__ = ("_schema",)

    def __init__(self, ddl: str) -> None:
        self._schema = parse_ddl(ddl)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._schema.fields)

    @property
    def schema_ddl(self) -> str:
        return self._schema.members

    def decode(self, record: Record) -> tuple[Any, ...]:
        text = utf8_text(record)
        try:
            return fit_record(read_json(text), self._schema)
        except NotJsonError:
            raise MalformedRecordError(NOT_JSON, message_id=record.message_id) from None
        except MismatchError as exc:
            raise MalformedRecordError(exc.reason, message_id=record.message_id) from None

    def column(self, data: Column) -> Column:
        from scheme.json_columns import json_column  # noqa: PLC0415  # that module needs pyspark, which is optional

        return json_column(data.cast("string"), text_reason_column(data), self._schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonScheme) and self._schema == other._schema

    def __hash__(self) -> int:
        return hash(self._schema)

    def __repr__(self) -> str:
        return f"JsonScheme({self.schema_ddl!r})"
