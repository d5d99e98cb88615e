"""The contract of a scheme: one decoding of a record's bytes, as a Python function and as native
Spark columns.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from scheme.errors import MalformedRecordError, PayloadError
from scheme.record import KPL_CHECKSUM_BYTES, KPL_MAGIC, is_kpl_aggregate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from scheme.record import Record

KPL_AGGREGATE = "the record is a KPL aggregate that was not unpacked"
NO_DATA = "the record has no data"
NOT_UTF8 = "not valid UTF-8"


@runtime_checkable
class RecordScheme(Protocol):
    """Decodes the bytes of a record into fields, with the same result in Python and in Spark.

    A record that cannot be decoded is malformed, with a reason. It never becomes a record of nulls:
    `decode` raises an error; in the column, `malformed` is set and `value` is null. An aggregate of
    the Kinesis Producer Library is malformed for every scheme. Reasons are fixed sentences without
    a byte of the payload, which may be secret.

    A scheme is immutable. It may be shared between threads, and pickled. `PayloadScheme` is a base
    class that needs only one method of yours.

    If a scheme's attribute `many` is true, a record gives any number of rows (0, 1 or more).
    `fields` and `schema_ddl` then describe a row, and `decode` returns a tuple of rows, each a
    tuple. `column` is an array with `{value, malformed}` for each row; for a malformed record, it
    has one element, with the reason. Outcomes belong to records, not rows: a record without rows is
    acked. If a single row is damaged, the whole record is malformed, because its dead letter
    contains the whole payload: a redrive would repeat rows that had been passed on.
    """

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that `decode` returns, in the same order."""

    @property
    @abstractmethod
    def schema_ddl(self) -> str:
        """The type of the column's `value` as Spark DDL: `name TYPE, ...`."""

    @abstractmethod
    def decode(self, record: Record) -> tuple[Any, ...]:
        """Return the record's fields. Raises `MalformedRecordError`, so that a malformed record is
        never mistaken for data.
        """

    @abstractmethod
    def column(self, data: Column) -> Column:
        """The native struct column `{value: STRUCT<schema_ddl>, malformed: STRING}` of a binary
        column.

        In each row, exactly one of the two is null. Needs pyspark and an active session. If Spark
        has expressions for the scheme, no Python runs per row; a `PayloadScheme` costs one Python
        call per Arrow batch.
        """


class NativeScheme:
    """The Python half of a scheme that has a Spark expression for its column: of `read`, which is
    that of `PayloadScheme`, and gets no aggregate.
    """

    __slots__ = ()

    def read(self, payload: bytes) -> tuple[Any, ...]:
        raise NotImplementedError

    def decode(self, record: Record) -> tuple[Any, ...]:
        reason = bytes_reason(record.data)
        if reason is None:
            try:
                return self.read(record.data)
            except PayloadError as exc:
                reason = exc.reason
        raise MalformedRecordError(reason, message_id=record.message_id) from None


def parsed(
    df: DataFrame, scheme: RecordScheme, *, data: str = "data", into: str = "parsed"
) -> DataFrame:
    """Return the DataFrame with the additional column `into`: the scheme's column for the binary
    column `data`. Also works on streaming DataFrames.

    If a record gives several rows, the frame has one row for each of them, with the record's
    columns; a malformed record has one row, and a record without rows has none.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # pyspark is optional; F is its documented short name

    rows = df.withColumn(into, scheme.column(df[data]))
    return rows.withColumn(into, F.explode(into)) if gives_many(scheme) else rows


def gives_many(scheme: RecordScheme) -> bool:
    """Whether a record gives rows instead of one row. A scheme need not have the attribute."""
    return bool(getattr(scheme, "many", False))


def outcome_ddl(scheme: RecordScheme) -> str:
    """The type of the scheme's column as Spark DDL."""
    outcome = f"STRUCT<value: STRUCT<{scheme.schema_ddl}>, malformed: STRING>"
    return f"ARRAY<{outcome}>" if gives_many(scheme) else outcome


def bytes_reason(data: bytes) -> str | None:
    """The reason why these bytes are malformed under every scheme, or None."""
    return KPL_AGGREGATE if is_kpl_aggregate(data) else None


def bytes_reason_column(data: Column) -> Column:
    """`bytes_reason` as a native column. SQL NULL, which Kinesis never delivers, is malformed as
    well.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # pyspark is optional; F is its documented short name

    head_bytes = len(KPL_MAGIC)
    envelope_bytes = head_bytes + KPL_CHECKSUM_BYTES
    length = F.octet_length(data)
    message = F.substring(data, F.lit(head_bytes + 1), length - envelope_bytes)
    checksum = F.substring(data, length - (KPL_CHECKSUM_BYTES - 1), F.lit(KPL_CHECKSUM_BYTES))
    looks_like_one = (F.substring(data, 1, head_bytes) == F.lit(KPL_MAGIC)) & (
        length > envelope_bytes
    )
    return F.when(data.isNull(), F.lit(NO_DATA)).when(
        looks_like_one, F.when(F.unhex(F.md5(message)) == checksum, F.lit(KPL_AGGREGATE))
    )


def outcome_column(value: Column, malformed: Column) -> Column:
    """The struct that `RecordScheme.column` returns: the value only in rows without a reason."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # pyspark is optional; F is its documented short name

    return F.struct(F.when(malformed.isNull(), value).alias("value"), malformed.alias("malformed"))
