"""Sink that writes dead letters through a Spark writer.

File formats get a directory per plan. A delta table gets its rows of the plan replaced. To any
other format rows are appended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

FILE_FORMATS = frozenset({"parquet", "orc", "avro", "json"})
PLAN_COLUMN = "plan"
_NO_BYTES = frozenset({"csv", "text", "xml"})
_RESERVED = frozenset({"mode", "partitionby", "replacewhere", "txnappid", "txnversion"})
_FORMAT = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_PLAN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_SECRET = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)
_USER_INFO = re.compile(r"//[^/@\s]*@")
_SHORTEST_SECRET = 4
# Spark's own default cuts times to milliseconds.
_JSON_DEFAULTS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}


@dataclass(frozen=True, slots=True, repr=False)
class WriterSink:
    """Format, path and options of a Spark writer."""

    format: str
    path: str | None
    options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, format: object, path: object, options: Mapping[str, object]) -> WriterSink:  # noqa: A002  # Spark's name for it
        """Check the arguments. Raises `ConfigError`."""
        if not isinstance(format, str) or not _FORMAT.fullmatch(format):
            raise ConfigError(
                f"DeadLetter: {format!r} is not a format of a Spark writer",
                "give one like parquet, json, delta or jdbc",
            )
        if format.lower() in _NO_BYTES:
            raise ConfigError(
                f"DeadLetter: format {format} cannot contain dead letters",
                "use parquet, orc, avro or json, which can contain the bytes of a payload",
            )
        if path is not None and (not isinstance(path, str) or not path.strip()):
            raise ConfigError(
                "DeadLetter: path is empty or not a text",
                "give a directory, like s3a://bucket/dead or /data/dead",
            )
        if path is None and format.lower() in FILE_FORMATS:
            raise ConfigError(
                f"DeadLetter: format {format} needs a path",
                "give the directory for the dead letters",
            )
        for name, value in options.items():
            if name.lower() in _RESERVED:
                raise ConfigError(
                    f"DeadLetter: option {name} cannot be given: DeadLetter sets it itself "
                    "to replace or append letters",
                    "leave it out",
                )
            if not isinstance(value, str | int | float):
                raise ConfigError(
                    f"DeadLetter: option {name} is of type {type(value).__name__}",
                    "give a text or a number",
                )
        return cls(format, path, tuple((name, _text(value)) for name, value in options.items()))

    def __str__(self) -> str:
        """The place, for messages. Option values may be secrets, and are left out."""
        at = "" if self.path is None else f" at {_USER_INFO.sub('//***@', self.path)}"
        return f"{self.format}{at}"

    def __repr__(self) -> str:
        shown = "".join(f", {name}='***'" for name, _ in self.options)
        return f"WriterSink({str(self)!r}{shown})"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        if not _PLAN_ID.fullmatch(plan_id):  # it becomes part of a path, or of a condition
            raise ValueError(f"{plan_id!r} is not a plan id")
        kind = self.format.lower()
        if kind == "delta":
            letters = letters.withColumn(PLAN_COLUMN, F.lit(plan_id))
        defaults = _JSON_DEFAULTS if kind == "json" else {}
        writer = letters.write.format(self.format).options(**defaults).options(**dict(self.options))
        if kind in FILE_FORMATS and self.path is not None:
            place = self.path.rstrip("/") or "/"
            writer.mode("overwrite").save(f"{place}/{PLAN_COLUMN}={plan_id}")
        elif kind == "delta":
            # Not by delta's transaction id: it would skip a repeated plan, which may have other
            # letters than the first time.
            replaced = f"{PLAN_COLUMN} = '{plan_id}'"
            writer.mode("overwrite").partitionBy(PLAN_COLUMN).option("replaceWhere", replaced).save(
                self.path
            )
        else:
            writer.mode("append").save(self.path)

    def without_secrets(self, text: str) -> str:
        text = _USER_INFO.sub("//***@", text)
        for name, value in self.options:
            if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "***")
        return text


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
