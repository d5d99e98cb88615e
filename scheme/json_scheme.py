"""One JSON object per record, with a schema."""

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
    """One JSON object per record, as the fields of a DDL schema: `JsonScheme("id BIGINT NOT NULL, o
    STRUCT<total: DOUBLE>")`.

    The grammar is in `scheme.ddl`; a bad schema raises `SchemeDefinitionError`. Both ways of
    reading follow one set of rules:

    - A field that is missing or null is None, or malformed where the schema says NOT NULL. Names
      are case-sensitive. Fields that the schema does not name are left out, yet must be JSON.
    - A value is taken in its own JSON type, never converted from another: STRING takes strings
      only, a number in quotes is no number, 1.0 is no BIGINT. DOUBLE and FLOAT take every finite
      number and round to the nearest (a zero has no sign); what would become infinite is malformed,
      as are NaN and Infinity, quoted or not.
    - DECIMAL takes integers and plain notation without an exponent of up to 38 digits. What would
      have to be rounded is malformed.
    - DATE is `2026-01-31`, TIMESTAMP `2026-01-31T12:00:00Z` or with an offset like `+02:00`,
      TIMESTAMP_NTZ the same without either; a space may stand for the T, and up to 6 decimals may
      follow the seconds. Years are 1 to 9999. BINARY is padded base64.
    - One JSON value makes a record: text behind it is malformed, and so is an array, a scalar, null
      or nothing at all. So is JSON that repeats a key within an object, has a byte order mark, half
      a surrogate pair, or more than 100 levels.

    In Python a STRUCT is a dict with all of its fields, an ARRAY a list, a MAP a dict (in UTF-16
    order of the keys), a TIMESTAMP an aware datetime in UTC, a TIMESTAMP_NTZ a naive one. The Spark
    setting `spark.sql.variant.allowDuplicateKeys` must be left at its default, false.
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
