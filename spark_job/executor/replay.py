"""The replay of a published result: the same records again, whatever was appended or resharded
since.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.errors import DataLossError
from kinesis_spout.reading.kpl import refuse_aggregates
from kinesis_spout.reading.retry_reader import RetryByteBudget, RetryReader
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from spark_job.rows import to_rows
from state.plan import retries_with_rows
from state.position import Position
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.reading.page import Page
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from state.plan import PlannedRetry, ShardReadResult, TaskPlan, TaskResult

log = logging.getLogger("kinesis_spout")
PAGE_RECORDS = 10_000
ANSWERS = 2  # that say that nothing more is there, each of a new iterator; one proves nothing


def replay(
    end: TaskResult, plan: TaskPlan, services: ProcessServices, settings: SourceSettings
) -> Iterator[pa.RecordBatch]:
    """The rows of a published result, in their order. Blocks on Kinesis. Raises `DataLossError`
    where records of it are gone, unless `failOnDataLoss` is false.
    """
    retries = {shard.shard_id: shard.retries for shard in plan.shards}
    for shard in end.shards:
        if shard.retry_rows:
            yield from _replay_retries(shard, retries.get(shard.shard_id, ()), services, settings)
        if shard.count:
            yield from _replay_shard(shard, services, settings)


def _replay_retries(
    end: ShardReadResult,
    planned: Sequence[PlannedRetry],
    services: ProcessServices,
    settings: SourceSettings,
) -> Iterator[pa.RecordBatch]:
    reads = retries_with_rows(planned, end)
    rows = 0
    for _ in range(ANSWERS):
        reader = RetryReader(end.shard_id, reads, services)
        for delivery in reader.read(RetryByteBudget()):
            if settings.aggregated_records == "fail":
                refuse_aggregates(delivery.records, end.shard_id)
            yield to_rows(
                delivery.records,
                stream=settings.stream.name,
                shard_id=end.shard_id,
                attempts=delivery.attempts,
            )
        rows += reader.rows
        reads = reads[reader.done :]
        if not reader.shard_gone:
            break
    if rows != end.retry_rows:
        what = f"of the {end.retry_rows} records that were retried before, {rows} are left"
        _report_data_loss(
            f"shard {end.shard_id} of stream {settings.stream.name}: {what}", settings
        )


def _replay_shard(
    end: ShardReadResult, services: ProcessServices, settings: SourceSettings
) -> Iterator[pa.RecordBatch]:
    if end.first is None or end.last is None:
        raise DataLossError(
            f"the published end of shard {end.shard_id} counts {end.count} records but names none; "
            "the plan in ZooKeeper is damaged"
        )
    found = 0
    first: SequenceNumber | None = None
    for page in _pages(end.shard_id, end.first, end.last, end.count, services):
        if settings.aggregated_records == "fail":
            refuse_aggregates(page.records, end.shard_id)
        first = first or page.first
        found += page.count
        yield to_rows(page.records, stream=settings.stream.name, shard_id=end.shard_id)
    if found == end.count and first == end.first:
        return
    what = (
        f"of the {end.count} records from {end.first} to {end.last} that were read before, "
        f"{found} are left"
    )
    _report_data_loss(f"shard {end.shard_id} of stream {settings.stream.name}: {what}", settings)


def _report_data_loss(what: str, settings: SourceSettings) -> None:
    sentence = f"{what}; the others are past the stream's retention"
    if settings.fail_on_data_loss:
        raise DataLossError(
            f"{sentence}; set option failOnDataLoss to false to go on with what is left"
        )
    log.warning("%s; going on, as failOnDataLoss is false", sentence)


def _pages(
    shard_id: str,
    first: SequenceNumber,
    last: SequenceNumber,
    count: int,
    services: ProcessServices,
) -> Iterator[Page]:
    """Pages from `first` on, the last one cut after `last`. Ends early where the shard's records
    do.
    """
    position, left = Position.at(first), count
    for _ in range(ANSWERS):
        getter = KinesisShardGetter(
            services.client,
            shard_id,
            position,
            pacer=services.pacer(shard_id),
            clock=services.clock,
            random=services.random,
        )
        is_over = False
        while not is_over:
            page = getter.fetch(min(PAGE_RECORDS, left))
            wanted = _up_to(page, last)
            left -= wanted.count
            if wanted.count:
                yield wanted
            if left <= 0 or (page.last is not None and page.last >= last):
                return
            position = position if page.last is None else Position.after(page.last)
            is_over = page.ended or page.gone or page.at_tip


def _up_to(page: Page, last: SequenceNumber) -> Page:
    """The head of the page up to `last`."""
    if page.last is None or page.last <= last:
        return page
    # The record itself is there, unless the service lost it: then all numbers are compared.
    index = pc.index(page.records.column("sequenceNumber"), pa.scalar(str(last.sequence))).as_py()
    if index >= 0:
        return page.head(index + 1)
    kept = sum(
        SequenceNumber.parse(text) <= last
        for text in page.records.column("sequenceNumber").to_pylist()
    )
    return page.head(kept)
