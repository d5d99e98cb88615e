"""A task of a batch read: the rows of some shards' ranges, several shards at the same time."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import DataLossError
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.page import ExpiryDetector
from kinesis_spout.reading.read_ahead import BufferedGetter, ByteBudget, RoundRobinReader
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.reading.user_records import refuse_aggregates
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import MAX_RECORDS_PER_CALL
from spark_job.rows import ShardRows
from spark_job.settings import FAIL
from state.position import Position, PositionKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from kinesis_spout.reading.page import Page
    from spark_job.batch_read.batch_settings import BatchSettings
    from spark_job.batch_read.pushed_filters import PushedFilters
    from spark_job.batch_read.shard_ranges import ShardRange

log = logging.getLogger("kinesis_spout")
MAX_CONCURRENT = 8
HELD_BYTES = 32 * 1024 * 1024
HELD_RECORDS = 3 * MAX_RECORDS_PER_CALL
FIRST_PAGE_BYTES = 1024 * 1024
STEP_S = 0.2


def read_ranges(
    ranges: Sequence[ShardRange],
    settings: BatchSettings,
    filters: PushedFilters,
    *,
    retention_ms: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges as Arrow batches, each shard's in the order of the shard, with these
    columns. Blocks on Kinesis; fetches go on while the consumer has the rows.

    Raises `KinesisError`.
    """
    clock = SystemClock()
    budget = ByteBudget(HELD_BYTES)
    with closing(
        KinesisClient(settings.aws, settings.stream, clock=clock, answered_before=True)
    ) as client:
        readings = []
        for shard in ranges:
            feed = RangeFeed(shard, settings, retention_ms=retention_ms)
            getter = KinesisShardGetter(
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
            )
            buffered = BufferedGetter(
                getter, max_records=HELD_RECORDS, budget=budget, page_bytes=FIRST_PAGE_BYTES
            )
            readings.append(_ShardReading(buffered, feed, rows))
        with RoundRobinReader(
            [reading.getter for reading in readings], max_concurrent=MAX_CONCURRENT, clock=clock
        ) as reader:
            while readings:
                for reading in readings:
                    for page in reading.pages():
                        reader.step(0)  # keeps fetching while the consumer has the rows
                        for batch in reading.rows.of(page.records):
                            yield filters.apply(batch)
                going_on = [reading for reading in readings if not reading.feed.is_done]
                if len(going_on) < len(readings):
                    readings = going_on
                    reader.replace([reading.getter for reading in readings])
                if readings:
                    reader.step(STEP_S)


@dataclass(frozen=True, slots=True)
class _ShardReading:
    """What fetches a shard's pages, cuts the range out of them, and makes their rows."""

    getter: BufferedGetter
    feed: RangeFeed
    rows: ShardRows

    def pages(self) -> Iterator[Page]:
        """The parts of the held pages that are in the range. Closes the getter at its end."""
        while (page := self.getter.take()) is not None:
            if self.feed.is_done:
                continue  # only gives the page's bytes back
            part = self.feed.accept(page)
            if self.feed.is_done:
                self.getter.close()
            if part is not None:
                yield part


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
        `AggregatedRecordError`, and `DataLossError` where records before them have expired.
        """
        self._lapse.note(page)
        if self._lapse.lapsed_ms is not None:
            self._lapse = ExpiryDetector(None, None, self._range.start)
            self._report("records after the start have expired before they were read")
        if page.gone:
            self.is_done = True
            if self._range.covered_ms is not None or self._awaits_start:
                self._report("Kinesis does not know the shard any more")
            return None
        part = self._until_end(self._from_start(page))
        if page.ended or page.at_tip:
            self.is_done = True
        if self.is_done and self._awaits_start:
            self._report(f"record {self._range.start.sequence} has expired")
        if not part.count:
            return None
        if self._settings.aggregated_records == FAIL:
            refuse_aggregates(part.records, part.shard_id)
        return part

    # private
    def _until_end(self, page: Page) -> Page:
        """The page up to the range's end; the page itself where the range goes on."""
        end = self._range.end
        if not page.count:
            return page
        # Not by the last record alone: the times of a shard may be out of order.
        count = page.arrived_by(self._range.until_ms - 1)
        if end is not None and end.sequence is not None and page.last and page.last >= end.sequence:
            self.is_done = True
            up_to = page.up_to(end.sequence)
            is_left_out = end.kind is PositionKind.AT and page.head(up_to).last == end.sequence
            count = min(count, up_to - is_left_out)
        if count < page.count:
            self.is_done = True
        return page.head(count)

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
        if start.kind is PositionKind.AT or start.sequence.sub:
            return page
        return page.after(1) if page.count > 1 else page.head(0)

    def _report(self, loss: str) -> None:
        report_expired(f"shard {self._range.shard_id}: {loss}", self._settings)


def report_expired(loss: str, settings: BatchSettings) -> None:
    """Raise `DataLossError`, or warn where `failOnDataLoss` is false."""
    where = f"stream {settings.stream.name}"
    if settings.fail_on_data_loss:
        raise DataLossError(
            f"{where}: {loss}",
            "use a later startingPosition or TRIM_HORIZON, or set option failOnDataLoss to false "
            "to read the remaining records",
        )
    log.warning("%s: %s. failOnDataLoss is false, so the remaining records are read", where, loss)
