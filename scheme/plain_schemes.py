"""The schemes that pass a payload on as it is: its bytes, or its UTF-8 text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheme.errors import PayloadError
from scheme.record_scheme import NOT_UTF8, NativeScheme, bytes_reason_column, outcome_column

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class RawScheme(NativeScheme):
    """One field `data`: the payload, which may be empty. Only aggregates are malformed."""

    fields = ("data",)
    schema_ddl = "data BINARY"

    def read(self, payload: bytes) -> tuple[bytes]:
        return (payload,)

    def column(self, data: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # pyspark is optional; F is its documented short name

        return outcome_column(F.struct(data.alias("data")), bytes_reason_column(data))


@dataclass(frozen=True, slots=True)
class TextScheme(NativeScheme):
    """One field `text`: the whole payload as strict UTF-8. NUL and a byte order mark are kept. An
    empty payload is an empty string.
    """

    fields = ("text",)
    schema_ddl = "text STRING"

    def read(self, payload: bytes) -> tuple[str]:
        return (utf8_text(payload),)

    def column(self, data: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # pyspark is optional; F is its documented short name

        return outcome_column(F.struct(data.cast("string").alias("text")), text_reason_column(data))


def utf8_text(payload: bytes) -> str:
    """Raises `PayloadError` for bytes that are not UTF-8."""
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        # `from None`, because the UnicodeDecodeError holds the payload, which may be secret.
        raise PayloadError(NOT_UTF8) from None


def text_reason_column(data: Column) -> Column:
    """The reason why a payload is not text, as a native column: the one that `TextScheme` has, or
    null.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # pyspark is optional; F is its documented short name

    # Spark's cast from BINARY to STRING keeps bytes that are not UTF-8, so they are checked apart.
    return F.coalesce(
        bytes_reason_column(data), F.when(~F.is_valid_utf8(data.cast("string")), F.lit(NOT_UTF8))
    )
