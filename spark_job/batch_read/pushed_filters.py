"""Filters that Spark pushes down: which shards are read, and from when to when.

Each filter is evaluated exactly or returned to Spark. Arrival times are evaluated on Arrow columns;
beside that they narrow what is fetched, with a margin, because the arrival times of a shard may be
a little out of order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HINT_MARGIN_MS = 2_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ARRIVAL = ("approximateArrivalTimestamp",)
_SHARD = ("shardId",)
_STREAM = ("streamName",)
_COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
}
_LOWER = frozenset({"equal", "greater", "greater_equal"})
_UPPER = frozenset({"equal", "less", "less_equal"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedFilters:
    """What rows must satisfy. All of it holds together.

    - `streams`, `shards`: one of these; None for any.
    - `arrivals`: comparisons of the arrival time, by the name of pyarrow's function, with
      microseconds since 1970 UTC.
    """

    streams: frozenset[str] | None = None
    shards: frozenset[str] | None = None
    arrivals: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, filters: Sequence[Filter]) -> tuple[PushedFilters, list[Filter]]:
        """The filters that are evaluated here, and those that Spark must evaluate."""
        pushed, left = cls(), []
        for given in filters:
            narrower = pushed._and(given)
            if narrower is None:
                left.append(given)
            else:
                pushed = narrower
        return pushed, left

    @property
    def from_ms(self) -> int | None:
        """No row arrived before this time (ms since 1970 UTC); None for no bound."""
        times = [micros for name, micros in self.arrivals if name in _LOWER]
        return max(times) // 1000 - HINT_MARGIN_MS if times else None

    @property
    def until_ms(self) -> int | None:
        """No row arrived at this time or later; None for no bound."""
        times = [micros for name, micros in self.arrivals if name in _UPPER]
        return min(times) // 1000 + HINT_MARGIN_MS if times else None

    def has_stream(self, name: str) -> bool:
        return self.streams is None or name in self.streams

    def has_shard(self, shard_id: str) -> bool:
        return self.shards is None or shard_id in self.shards

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose arrival time satisfies all comparisons."""
        for name, micros in self.arrivals:
            compare: Callable[..., pa.Array] = getattr(pc, name)
            rows = rows.filter(compare(rows.column(_ARRIVAL[0]), pa.scalar(micros, _TIMESTAMP)))
        return rows

    def _and(self, given: Filter) -> PushedFilters | None:
        """These filters and one more; None where it cannot be evaluated here."""
        attribute, value = getattr(given, "attribute", None), getattr(given, "value", None)
        if isinstance(given, IsNotNull):
            return self if attribute in (_SHARD, _STREAM) else None  # they are never null
        texts = _texts(given)
        if texts is not None and attribute == _SHARD:
            return replace(self, shards=texts if self.shards is None else self.shards & texts)
        if texts is not None and attribute == _STREAM:
            return replace(self, streams=texts if self.streams is None else self.streams & texts)
        name = _COMPARISONS.get(type(given))
        # A time without a zone depends on the session.
        if attribute == _ARRIVAL and name and isinstance(value, datetime) and value.tzinfo:
            arrivals = (*self.arrivals, (name, (value - _EPOCH) // _MICROSECOND))
            return replace(self, arrivals=arrivals)
        return None


def _texts(given: Filter) -> frozenset[str] | None:
    """The texts that a column must be one of; None for another kind of filter."""
    values: tuple[Any, ...] = ()
    if isinstance(given, (EqualTo, EqualNullSafe)):
        values = (given.value,)
    elif isinstance(given, In):
        values = tuple(given.value)
    return frozenset(values) if values and all(isinstance(v, str) for v in values) else None
