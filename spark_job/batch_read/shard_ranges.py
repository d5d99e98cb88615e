"""The range of each shard that a batch read reads. Pure.

A position lies between two records, or before the first one or after the last. The read delivers
the records between its two positions. So ranges that share a position have no record in common, and
lose none: `AT:<seq>` lies right before the record, `AFTER:<seq>` right after it, and a time before
the first record that arrived then or later.

Filters that Spark pushes down narrow the ranges. Each filter is evaluated exactly or returned to
Spark. Arrival times are evaluated on Arrow columns; beside that they narrow what is fetched, with a
margin, because the arrival times of a shard may be a little out of order.
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

from kinesis_spout.errors import ConfigError
from kinesis_spout.shards.start_position import check_listed
from state.position import Position, PositionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_spout.service.shard_info import HashRange, ShardInfo
    from spark_job.batch_read.batch_settings import BatchSettings
    from state.position import StartingPosition
    from state.sequence_number import SequenceNumber


# A record may be seen by readers a little after the time that it carries.
TIP_MARGIN_MS = 2_000
DATE_HEADER_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPin:
    """The stream at `load()`. It is the same for all actions of a frame.

    - `created_ms`: tells a stream of the same name that was created later.
    - `latest_ms`: what LATEST means: nothing that was put before `load()` arrived at this service
      time or later.
    """

    created_ms: int
    latest_ms: int

    @classmethod
    def at(cls, service_time_ms: int, created_ms: int) -> LoadPin:
        """`service_time_ms`: the service's clock at `load()`, cut to the second."""
        return cls(created_ms=created_ms, latest_ms=service_time_ms + DATE_HEADER_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRange:
    """What is read of one shard: from `start` up to a record that arrived at `until_ms` or later,
    or to `end`, whichever comes first. Times are the service's, in ms since 1970 UTC.

    - `hash_range`: the shard's own hash keys; None where they are not known, or it has none.
    - `covered_ms`: records that arrived from this time on must not have expired; None where the
      start names no time.
    """

    shard_id: str
    start: Position
    until_ms: int
    end: Position | None = None
    covered_ms: int | None = None
    ending_sequence: SequenceNumber | None = None
    hash_range: HashRange | None = None


def shard_ranges(
    settings: BatchSettings,
    listed: Sequence[ShardInfo],
    pin: LoadPin,
    filters: PushedFilters,
    *,
    service_time_ms: int,
) -> list[ShardRange]:
    """The ranges that may hold rows, in the order of the listing. `service_time_ms`: now, cut to
    the second.

    Raises `ConfigError` for a shard that is named and not listed, for a start after its end, and
    for an end in the future.
    """
    start, end = settings.starting_position, settings.ending_position
    ids = [shard.shard_id for shard in listed]
    wanted = ids if settings.shard_ids is None else settings.shard_ids
    check_listed("shardIds", wanted, ids)
    chosen = [shard for shard in listed if shard.shard_id in wanted]
    for option, position in (("startingPosition", start), ("endingPosition", end)):
        named = dict(position.shards)
        check_listed(option, named, ids)
        default = position.default
        unnamed = [shard for shard in chosen if shard.shard_id not in named]
        if default.position and default.position.sequence and len(unnamed) > 1:
            raise ConfigError(
                f"option {option} is {default.text!r} for several shards, but a sequence number "
                "belongs to a single shard",
                "set shardIds to this shard, or set the position of each shard as JSON",
            )
    ranges = [
        _range(
            shard,
            dict(start.shards).get(shard.shard_id, start.default),
            dict(end.shards).get(shard.shard_id, end.default),
            pin,
        )
        for shard in chosen
    ]
    for each in ranges:
        if each.until_ms > service_time_ms + DATE_HEADER_MS:
            raise ConfigError(
                f"option endingPosition names {Position.at_timestamp(each.until_ms)}, which is in "
                "the future",
                "use LATEST for a batch read, or spark.readStream to read records that have not "
                "arrived yet",
            )
    if not filters.admits("streamName", settings.stream.name):
        return []
    narrowed = [_narrowed(each, filters) for each in ranges]
    return [
        each
        for each in narrowed
        if filters.admits("shardId", each.shard_id)
        and (each.start.timestamp_ms is None or each.start.timestamp_ms < each.until_ms)
    ]


def settled_in_s(ranges: Sequence[ShardRange], service_time_ms: int) -> float:
    """Seconds until the tips of the shards show all that the ranges hold, at a service time that is
    cut to the second.
    """
    until_ms = max((each.until_ms for each in ranges), default=0)
    return max(0, until_ms + TIP_MARGIN_MS - service_time_ms) / 1000


def grouped(ranges: Sequence[ShardRange], max_tasks: int) -> list[tuple[ShardRange, ...]]:
    """The ranges of each task: one for each shard, or shares of about the same size."""
    tasks = min(max_tasks, len(ranges))
    return [tuple(ranges[task::tasks]) for task in range(tasks)]


# private ------------------------------------------------------------------------------------------
def _range(
    shard: ShardInfo, start: StartingPosition, end: StartingPosition, pin: LoadPin
) -> ShardRange:
    begins, ends = start.pin(pin.latest_ms), end.pin(pin.latest_ms)
    if not _is_before(begins, ends):
        raise ConfigError(
            f"the read of shard {shard.shard_id} would end at {end.text}, which is before its "
            f"start at {start.text}",
            "use an endingPosition that is at or after startingPosition",
        )
    begins_ms = begins.timestamp_ms
    return ShardRange(
        shard_id=shard.shard_id,
        start=begins,
        # An end that names a record is no later than the stream at load(), as the others are.
        until_ms=pin.latest_ms if ends.timestamp_ms is None else ends.timestamp_ms,
        end=None if ends.sequence is None else ends,
        # Nothing of a stream can have expired from before it was created.
        covered_ms=None if begins_ms is None else max(begins_ms, pin.created_ms),
        ending_sequence=shard.last_sequence,
        hash_range=shard.hash_key_range,
    )


def _is_before(start: Position, end: Position) -> bool:
    """False only where it is known that the start is after the end."""
    if start.timestamp_ms is not None and end.timestamp_ms is not None:
        return start.timestamp_ms <= end.timestamp_ms
    if start.sequence is None or end.sequence is None:
        return True
    return (start.sequence, start.kind is PositionKind.AFTER) <= (
        end.sequence,
        end.kind is PositionKind.AFTER,
    )


def _narrowed(whole: ShardRange, filters: PushedFilters) -> ShardRange:
    """The part of a range that may hold rows of these filters."""
    start, covered_ms = whole.start, whole.covered_ms
    if filters.from_ms is not None and start.sequence is None:
        from_ms = max(filters.from_ms, start.timestamp_ms or 0, 0)
        start = Position.at_timestamp(from_ms)
        covered_ms = None if covered_ms is None else max(covered_ms, from_ms)
    until_ms = whole.until_ms if filters.until_ms is None else min(whole.until_ms, filters.until_ms)
    return replace(whole, start=start, until_ms=until_ms, covered_ms=covered_ms)


HINT_MARGIN_MS = 2_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ARRIVAL = "approximateArrivalTimestamp"
_NAMES = (("shardId",), ("streamName",))
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

    - `names`: a column (`shardId` or `streamName`), and the texts of which it must be one.
    - `arrivals`: comparisons of the arrival time, by the name of pyarrow's function, with
      microseconds since 1970 UTC.
    """

    names: tuple[tuple[str, frozenset[str]], ...] = ()
    arrivals: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, filters: Sequence[Filter]) -> tuple[PushedFilters, list[Filter]]:
        """The filters that are evaluated here, and those that Spark must evaluate."""
        names: list[tuple[str, frozenset[str]]] = []
        arrivals: list[tuple[str, int]] = []
        left: list[Filter] = []
        for given in filters:
            column, value = getattr(given, "attribute", None), getattr(given, "value", None)
            texts: Any = value if isinstance(given, In) else (value,)
            if column in _NAMES and isinstance(given, IsNotNull):
                continue  # they are never null
            if (
                column in _NAMES
                and isinstance(given, (EqualTo, EqualNullSafe, In))
                and texts
                and all(isinstance(text, str) for text in texts)
            ):
                names.append((column[0], frozenset(texts)))
            # A time without a zone depends on the session.
            elif (
                column == (_ARRIVAL,)
                and type(given) in _COMPARISONS
                and isinstance(value, datetime)
                and value.tzinfo
            ):
                micros = (value - _EPOCH) // _MICROSECOND
                arrivals.append((_COMPARISONS[type(given)], micros))
            else:
                left.append(given)
        return cls(names=tuple(names), arrivals=tuple(arrivals)), left

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

    def admits(self, column: str, text: str) -> bool:
        """Whether rows with this text in the column may satisfy them."""
        return all(text in texts for name, texts in self.names if name == column)

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose arrival time satisfies all comparisons."""
        for name, micros in self.arrivals:
            compare: Callable[..., pa.Array] = getattr(pc, name)
            rows = rows.filter(compare(rows.column(_ARRIVAL), pa.scalar(micros, _TIMESTAMP)))
        return rows
