"""`spark.read.format("kinesis")`: the reader that Spark runs, and its tasks.

Spark makes a reader at the planning of each action, in a process of its own, and sends it to the
executors. What all actions of a frame share is the pin of `load()`. A task reads the ranges of some
shards, several shards at the same time.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import ConfigError
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.page import ExpiryDetector
from kinesis_spout.reading.read_ahead import BufferedGetter, ByteBudget, RoundRobinReader
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import MAX_RECORDS_PER_CALL
from kinesis_spout.service.surroundings import for_executors
from kinesis_spout.shards.data_loss import ACCEPT_LOSS, report_loss
from kinesis_spout.shards.lineage import open_range_holes
from kinesis_spout.shards.start_position import refusal_of
from spark_job.batch_read.batch_settings import BatchSettings
from spark_job.batch_read.shard_ranges import (
    LoadPin,
    PushedFilters,
    grouped,
    settled_in_s,
    shard_ranges,
)
from spark_job.data_source import selected_columns, with_scheme
from spark_job.rows import COLUMNS, ShardRows
from state.position import Position, PositionKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.page import Page
    from kinesis_spout.service.shard_info import ShardInfo
    from spark_job.batch_read.shard_ranges import ShardRange


log = logging.getLogger("kinesis_spout")
# New shards may be listed late.
_LISTINGS = 5
_LIST_AGAIN_S = 1.0
_CLOCK = SystemClock()
MAX_CONCURRENT = 8
HELD_BYTES = 32 * 1024 * 1024
HELD_RECORDS = 3 * MAX_RECORDS_PER_CALL
FIRST_PAGE_BYTES = 1024 * 1024
STEP_S = 0.2


@dataclass
class RangesPartition(InputPartition):
    """One task, as Spark sends it to an executor."""

    ranges: Sequence[ShardRange]
    retention_ms: int


class KinesisBatchReader(DataSourceReader):
    """One action's reader. `partitions` runs in a planning process, `read` on executors."""

    def __init__(self, settings: BatchSettings, pin: LoadPin, columns: Sequence[str]) -> None:
        self._settings = settings
        self._pin = pin
        self._columns = columns
        self._filters = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """The tasks. Calls the service, and blocks until the shards show the whole range: a few
        seconds at most, right after `load()`. Raises `KinesisError`.
        """
        settings = self._settings
        with closing(KinesisClient(settings.aws, settings.stream)) as client:
            summary = client.describe()
            if summary.created_ms != self._pin.created_ms:
                raise ConfigError(
                    f"stream {settings.stream.name} was deleted and created again after load()",
                    "call spark.read.load() again",
                )
            now_ms = summary.now_ms(_CLOCK.now_ms())
            ranges = shard_ranges(
                settings,
                complete_listing(client, _CLOCK),
                self._pin,
                self._filters,
                service_time_ms=now_ms,
            )
            bounds = [("startingPosition", each.shard_id, each.start) for each in ranges]
            bounds += [("endingPosition", each.shard_id, each.end) for each in ranges if each.end]
            for option, shard_id, position in bounds:
                # A task that found a refused number would be tried again, and an end is only
                # compared with.
                if position.sequence is not None and (
                    refused := refusal_of(client, shard_id, position)
                ):
                    raise ConfigError.of(option, refused, str(position))
        if summary.may_have_ignored_keys:  # no record is in a shard because of its key
            ranges = [replace(each, hash_range=None) for each in ranges]
        oldest_ms = now_ms - summary.retention_ms
        covered = [each.covered_ms for each in ranges if each.covered_ms is not None]
        if covered and (covered_ms := min(covered)) < oldest_ms:
            report_expired(
                f"the read starts at {Position.at_timestamp(covered_ms)}, but records that "
                f"arrived before {Position.at_timestamp(oldest_ms)} have expired",
                settings,
            )
        _CLOCK.sleep(settled_in_s(ranges, now_ms))
        return [
            RangesPartition(group, summary.retention_ms)
            for group in grouped(ranges, settings.max_tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangesPartition):
            return iter(())  # Spark makes a partition of its own where there are none
        return with_scheme(
            lambda columns: read_ranges(
                partition.ranges,
                self._settings,
                self._filters,
                retention_ms=partition.retention_ms,
                columns=columns,
            ),
            self._columns,
            self._settings.scheme,
        )


class FilteringBatchReader(KinesisBatchReader):
    """A reader that takes filters over from Spark.

    Only on request. Spark 4.3.0 keeps what was planned for the last pushed filters with the loaded
    frame, and uses it for all that is made of that frame, whatever its filters are. Spark also
    refuses such a reader while `spark.sql.python.filterPushdown.enabled` is false, its default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        self._filters, left = PushedFilters.of(filters)
        return left


def new_reader(
    options: Mapping[str, str], pin: LoadPin | None, schema: StructType | None = None
) -> KinesisBatchReader:
    """The reader for these options. `pin`: of `load()`; without one the stream is pinned now.
    `schema`: the columns that are wanted, all of them by default.
    """
    settings = BatchSettings.from_options(options)
    columns = COLUMNS if schema is None else selected_columns(schema, settings.scheme)
    kind = FilteringBatchReader if settings.push_down_filters else KinesisBatchReader
    pin = pin or pin_load(settings)
    # The executors have neither the driver's files nor its environment.
    settings = replace(settings, aws=for_executors(settings.aws, settings.stream))
    return kind(settings, pin, columns)


def pin_load(settings: BatchSettings) -> LoadPin:
    """Pin the stream as it is now. Calls the service once. Raises `KinesisError`."""
    with closing(KinesisClient(settings.aws, settings.stream)) as client:
        summary = client.describe()
    return LoadPin.at(summary.now_ms(_CLOCK.now_ms()), summary.created_ms)


def complete_listing(client: KinesisClient, clock: Clock) -> tuple[ShardInfo, ...]:
    """All listed shards. Lists again while no open shard has some of the hash keys: a resharding is
    under way, and its children are not listed yet.
    """
    for left in reversed(range(_LISTINGS)):
        listed = client.list_shards()
        holes = open_range_holes(listed)
        if not holes:
            break
        if left:
            clock.sleep(_LIST_AGAIN_S)
    else:
        log.warning(
            "%s lists no open shard for the hash keys %d to %d. Records of an unlisted shard are "
            "not read",
            client.where,
            *holes[0],
        )
    return listed


def read_ranges(
    ranges: Sequence[ShardRange],
    settings: BatchSettings,
    filters: PushedFilters,
    *,
    retention_ms: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges as Arrow batches, each shard's in the order of the shard, with these
    columns. Blocks on Kinesis; fetches continue while the consumer has the rows. Raises
    `KinesisError`.
    """
    clock = SystemClock()
    budget = ByteBudget(HELD_BYTES)
    with closing(
        KinesisClient(settings.aws, settings.stream, clock=clock, answered_before=True)
    ) as client:
        readings = []
        for shard in ranges:
            feed = RangeFeed(shard, settings, retention_ms=retention_ms)
            fetching = KinesisShardGetter(
                client,
                shard.shard_id,
                feed.first_position,
                pacer=Pacer(settings.rate),
                clock=clock,
                ending_sequence=shard.ending_sequence,
            )
            rows = ShardRows(
                shard.shard_id,
                stream=settings.stream.name,
                aggregated_records=settings.aggregated_records,
                hash_range=shard.hash_range,
                columns=columns,
                start=shard.start,
            )
            buffered = BufferedGetter(
                fetching, max_records=HELD_RECORDS, budget=budget, page_bytes=FIRST_PAGE_BYTES
            )
            readings.append((buffered, feed, rows))
        with RoundRobinReader(
            [getter for getter, *_ in readings], max_concurrent=MAX_CONCURRENT, clock=clock
        ) as reader:
            while readings:
                for getter, feed, rows in readings:
                    while (page := getter.take()) is not None:
                        if feed.is_done:
                            continue  # only gives the page's bytes back
                        part = feed.accept(page)
                        if feed.is_done:
                            getter.close()
                        if part is not None:
                            reader.step(0)  # keeps fetching while the consumer has the rows
                            yield from map(filters.apply, rows.of(part.records))
                going_on = [reading for reading in readings if not reading[1].is_done]
                if len(going_on) < len(readings):
                    readings = going_on
                    reader.replace([getter for getter, *_ in readings])
                if readings:
                    reader.step(STEP_S)


class RangeFeed:
    """Takes the pages of a shard in order, from `first_position` on, and gives the part of each
    that is in the range. Does no I/O.
    """

    def __init__(
        self, shard_range: ShardRange, settings: BatchSettings, *, retention_ms: int | None
    ) -> None:
        self._range = shard_range
        self._settings = settings
        self._lapse = ExpiryDetector(shard_range.covered_ms, retention_ms, shard_range.start)
        self._awaits_start = shard_range.start.sequence is not None
        self.is_done = False

    @property
    def first_position(self) -> Position:
        """Where to fetch from. For AFTER it is the record itself: that it is still there proves
        that the ones after it are.
        """
        sequence = self._range.start.sequence
        return self._range.start if sequence is None else Position.at(sequence)

    def accept(self, page: Page) -> Page | None:
        """The records of the next page that are in the range; None if there are none. Raises
        `DataLossError` where records before them have expired.
        """
        self._lapse.note(page)
        if self._lapse.lapsed_ms is not None:
            self._lapse = ExpiryDetector(None, None, self._range.start)
            self._report("records after the starting position expired before the task read them")
        if page.gone:
            self.is_done = True
            if self._range.covered_ms is not None or self._awaits_start:
                self._report("the shard no longer exists in Kinesis")
            return None
        part = self._from_start(page)
        if part.count:
            part = self._until_end(part)
        if page.ended or page.at_tip:
            self.is_done = True
        if self.is_done and self._awaits_start:
            self._report(f"record {self._range.start.sequence} has expired")
        return part if part.count else None

    # private
    def _from_start(self, page: Page) -> Page:
        """The page without the record that the range starts after. Reports where that is gone."""
        start = self._range.start
        if not self._awaits_start or start.sequence is None or page.first is None:
            return page
        self._awaits_start = False
        if page.first.sequence != start.sequence.sequence:
            self._report(
                f"record {start.sequence} has expired, and the oldest record is {page.first}"
            )
            return page
        return page if start.kind is PositionKind.AT or start.sequence.sub else page.after(1)

    def _until_end(self, page: Page) -> Page:
        """The page up to the range's end; the page itself where the range continues."""
        # Not by the last record alone: the times of a shard may be out of order.
        count = page.arrived_by(self._range.until_ms - 1)
        end, last = self._range.end, page.last
        if end is not None and end.sequence is not None and last and last >= end.sequence:
            self.is_done = True
            up_to = page.up_to(end.sequence)
            is_left_out = end.kind is PositionKind.AT and page.head(up_to).last == end.sequence
            count = min(count, up_to - is_left_out)
        self.is_done = self.is_done or count < page.count
        return page.head(count)

    def _report(self, loss: str) -> None:
        report_expired(f"shard {self._range.shard_id}: {loss}", self._settings)


def report_expired(loss: str, settings: BatchSettings) -> None:
    """Raise `DataLossError`, or warn where `failOnDataLoss` is false."""
    report_loss(
        f"stream {settings.stream.name}: {loss}",
        fails=settings.fail_on_data_loss,
        accept_loss=f"use a later startingPosition, use TRIM_HORIZON, or {ACCEPT_LOSS}",
    )
