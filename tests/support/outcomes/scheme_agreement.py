"""Runs payloads through both halves of a scheme, Python and Spark, and compares the results value
by value.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from scheme import MalformedRecordError, Record
from scheme.record_scheme import gives_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from scheme import RecordScheme


def record_of(data: bytes) -> Record:
    return Record(
        stream_name="orders",
        shard_id="shardId-000000000000",
        sequence_number="49590338271490256608559692538361571095921575989136588898",
        partition_key="key",
        data=data,
        approximate_arrival_ms=1_600_000_000_000,
    )


def decoded(scheme: RecordScheme, data: bytes) -> tuple[Any, str | None]:
    """The result in Python, in the form of Spark's column: `(value, malformed)`."""
    try:
        return scheme.decode(record_of(data)), None
    except MalformedRecordError as exc:
        return None, exc.reason


def columns(
    spark: SparkSession, scheme: RecordScheme, payloads: Sequence[bytes]
) -> list[tuple[Any, str | None]]:
    """The results of Spark, in the payloads' order, in the form of `decoded`."""
    rows = [(index, bytearray(payload)) for index, payload in enumerate(payloads)]
    frame = spark.createDataFrame(rows, "i INT, data BINARY")
    frame = frame.withColumn("parsed", scheme.column(frame["data"]))
    # Through Arrow: collect() converts TIMESTAMPs to local times, and fails for the first and the
    # last day of Python's range.
    found = sorted(frame.select("i", "parsed").toArrow().to_pylist(), key=lambda row: int(row["i"]))
    return [plain_outcome(scheme, row["parsed"]) for row in found]


def plain_outcome(scheme: RecordScheme, element: Any) -> tuple[Any, str | None]:
    """An element of a scheme's column, as Arrow gives it, in the form of `decoded`."""
    if not gives_many(scheme):
        value = element["value"]
        return None if value is None else plain_row(value.values()), element["malformed"]
    reasons = [row["malformed"] for row in element if row["malformed"] is not None]
    if reasons:
        assert [row["value"] for row in element] == [None], "a malformed record has one row"
        return None, reasons[0]
    return tuple(plain_row(row["value"].values()) for row in element), None


def disagreements(
    scheme: RecordScheme, payloads: Sequence[bytes], found: Sequence[tuple[Any, str | None]]
) -> list[str]:
    """One line for each payload on which the two halves differ, in a value, a value's class or a
    reason. `found`: the `columns` of the payloads.
    """
    lines = []
    for payload, on_spark in zip(payloads, found, strict=True):
        value, malformed = decoded(scheme, payload)
        if value is not None:
            rows = gives_many(scheme)
            value = tuple(map(plain_row, value)) if rows else plain_row(value)
        python_side = (value, malformed)
        if repr(python_side) != repr(on_spark):
            lines.append(
                f"{payload[:200]!r} ({len(payload)} bytes): Python {python_side!r:.400}, Spark "
                f"{on_spark!r:.400}"
            )
    return lines


def plain_row(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(_plain(value) for value in values)


def _plain(value: Any) -> Any:
    """Normalizes what Arrow and Python write differently: maps as lists of pairs, zones by name,
    DECIMALs with zeros.
    """
    if isinstance(value, dict):
        return [(name, _plain(inner)) for name, inner in value.items()]
    if isinstance(value, list):
        return [
            (item[0], _plain(item[1])) if isinstance(item, tuple) else _plain(item)
            for item in value
        ]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value.normalize() if isinstance(value, Decimal) else value
