"""A task of a batch read: the rows of some shards' ranges, several shards at the same time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from kinesis_spout.clock import SystemClock
from kinesis_spout.reading.buffered_getter import BufferedGetter, ByteBudget
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.round_robin import RoundRobinReader
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import MAX_RECORDS_PER_CALL
from spark_job.batch_read.range_feed import RangeFeed
from spark_job.rows import ShardRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.page import Page
    from spark_job.batch_read.batch_settings import BatchSettings
    from spark_job.batch_read.pushed_filters import PushedFilters
    from spark_job.batch_read.shard_ranges import ShardRange

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
    with closing(
        KinesisClient(settings.aws, settings.stream, clock=clock, answered_before=True)
    ) as client:
        budget = ByteBudget(HELD_BYTES)
        readings = [
            _Reading(
                one, settings, client, clock, budget, retention_ms=retention_ms, columns=columns
            )
            for one in ranges
        ]
        with RoundRobinReader(
            [one.getter for one in readings], max_concurrent=MAX_CONCURRENT, clock=clock
        ) as reader:
            while readings:
                for reading in readings:
                    for page in reading.pages():
                        reader.step(0)  # keeps fetching while the consumer has the rows
                        for rows in reading.rows.of(page.records):
                            yield filters.apply(rows)
                going_on = [one for one in readings if not one.feed.is_done]
                if len(going_on) < len(readings):
                    readings = going_on
                    reader.replace([one.getter for one in readings])
                if readings:
                    reader.step(STEP_S)


class _Reading:
    """One shard: what fetches its pages, cuts the range out of them, and makes their rows."""

    def __init__(
        self,
        one: ShardRange,
        settings: BatchSettings,
        client: KinesisClient,
        clock: Clock,
        budget: ByteBudget,
        *,
        retention_ms: int,
        columns: Sequence[str],
    ) -> None:
        self.rows = ShardRows(
            one.shard_id,
            stream=settings.stream.name,
            aggregated_records=settings.aggregated_records,
            hash_range=one.hash_range,
            columns=columns,
        )
        self.feed = RangeFeed(one, settings, retention_ms=retention_ms)
        self.getter = BufferedGetter(
            KinesisShardGetter(
                client,
                one.shard_id,
                self.feed.first_position,
                pacer=Pacer(settings.rate),
                clock=clock,
                ending_sequence=one.ending_sequence,
            ),
            max_records=HELD_RECORDS,
            budget=budget,
            page_bytes=FIRST_PAGE_BYTES,
        )

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
