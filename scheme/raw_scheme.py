"""The scheme that passes the bytes through unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheme.errors import MalformedRecordError
from scheme.record_scheme import bytes_reason, bytes_reason_column, outcome_column

if TYPE_CHECKING:
    from pyspark.sql import Column

    from scheme.record import Record


@dataclass(frozen=True, slots=True)
class RawScheme:
    """One field `data`: the payload, which may be empty. Only aggregates are malformed."""

    @property
    def fields(self) -> tuple[str, ...]:
        return ("data",)

    @property
    def schema_ddl(self) -> str:
        return "data BINARY"

    def decode(self, record: Record) -> tuple[bytes]:
        reason = bytes_reason(record.data)
        if reason is not None:
            raise MalformedRecordError(reason, message_id=record.message_id)
        return (record.data,)

    def column(self, data: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # pyspark is optional; F is its documented short name

        return outcome_column(F.struct(data.alias("data")), bytes_reason_column(data))
