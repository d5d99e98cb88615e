"""Finds the records of a frame that meet a condition, for `fail_where`.

One Spark job evaluates it as DataFrame expressions, and collects message ids and reasons only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it
from pyspark.sql.types import StructType

from kinesis_spout.errors import ConfigError
from spark_job.tracking.outcomes import one_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MALFORMED_FIELDS = ["value", "malformed"]
_VERDICT = "_ks_verdict"
_MET, _NULL, _MALFORMED = "t", "n", "m"


@dataclass(frozen=True, slots=True)
class FailingRows:
    """Reasons by message id: of malformed records, and of others that meet the condition."""

    malformed: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def failing_rows(df: DataFrame, predicate: Column | str | None, reason: str) -> FailingRows:
    """The records that have a row which meets `predicate`, or is malformed.

    A predicate that is NULL counts as met. A row is malformed if `malformed` is set in a
    `{value, malformed}` column. Raises `ConfigError` if the frame has no column `messageId`, or a
    failing row has NULL there.
    """
    if "messageId" not in df.columns:
        raise ConfigError(
            "the frame given to batch.fail_where has no column messageId, which names the records "
            "to fail; keep that column until there"
        )
    verdict = _verdict(df, predicate)
    if verdict is None:
        return FailingRows()
    verdicts = (
        df.select("messageId", verdict.alias(_VERDICT))
        .where(F.col(_VERDICT).isNotNull())
        .distinct()
    )
    found = FailingRows()
    for row in verdicts.collect():
        _note(found, row["messageId"], row[_VERDICT], reason)
    for message_id in found.malformed:
        found.failed.pop(message_id, None)
    return found


def malformed_columns(df: DataFrame) -> list[str]:
    """The columns that a record scheme made: structs of exactly `value` and `malformed`."""
    fields = df.schema.fields
    return [
        f.name
        for f in fields
        if isinstance(f.dataType, StructType) and f.dataType.names == _MALFORMED_FIELDS
    ]


def _verdict(df: DataFrame, predicate: Column | str | None) -> Column | None:
    reasons = [F.col(f"`{name}`")["malformed"] for name in malformed_columns(df)]
    parts = [F.when(reason.isNotNull(), F.concat(F.lit(_MALFORMED), reason)) for reason in reasons]
    if predicate is not None:
        met = F.expr(predicate) if isinstance(predicate, str) else predicate
        parts.append(F.when(met.isNull(), F.lit(_NULL)).when(met, F.lit(_MET)))
    return F.coalesce(*parts) if parts else None


def _note(found: FailingRows, message_id: str | None, verdict: str, reason: str) -> None:
    if message_id is None:
        raise ConfigError(
            "a row that failed has no messageId (it is NULL, perhaps after an outer join); keep "
            "the messageId of each record"
        )
    if verdict.startswith(_MALFORMED):
        found.malformed[message_id] = verdict[1:]
    elif verdict == _NULL:
        found.failed.setdefault(message_id, f"{one_line(reason)} (the condition is NULL)")
    else:
        found.failed[message_id] = reason
