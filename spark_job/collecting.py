"""Reading a task's shards up to its limits, holding the pages until their end is published."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.buffered_getter import BufferedGetter, ByteBudget
from kinesis_spout.errors import ShardNotFoundError
from kinesis_spout.get_records_decoder import PAGE_SCHEMA
from kinesis_spout.round_robin import RoundRobinReader
from kinesis_spout.shard_getter import KinesisShardGetter, Page
from spark_job.rows import refuse_aggregates
from state.plan import ShardEnd, ShardSlice, TaskPlan
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.settings import SourceSettings
    from spark_job.worker import WorkerServices

MOST_CONCURRENT = 8
STEP_S = 0.2


@dataclass(slots=True)
class Held:
    """What was read of one shard: the pages in order, and the end that tells it."""

    end: ShardEnd
    pages: deque[pa.RecordBatch]


class _PlannedShard(KinesisShardGetter):
    """Takes a shard that the service has forgotten for one without more, and notes it: the driver says what was lost.

    An error would fail the batch, which Spark then runs again for ever.
    """

    gone = False

    def fetch_unless_throttled(self, limit: int) -> Page:
        try:
            return super().fetch_unless_throttled(limit)
        except ShardNotFoundError:
            self.gone = True
        return Page(
            shard_id=self.shard_id,
            records=pa.RecordBatch.from_pylist([], schema=PAGE_SCHEMA),
            count=0,
            first=None,
            last=None,
            last_arrival_ms=None,
            payload_bytes=0,
            millis_behind_latest=0,
            child_shards=(),
            next_iterator=None,
            ended=True,
            at_tip=False,
            service_time_ms=None,
        )


def collect(plan: TaskPlan, services: WorkerServices, settings: SourceSettings) -> list[Held]:
    """Read every shard of the task until its limit, the tip, its end, the bytes or the time that the task may take.

    A shard that has found nothing and is behind its tip (a run of empty pages) goes on after the time box, up to the cap.
    """
    budget = ByteBudget(plan.max_bytes)
    getters = [BufferedGetter(_getter(shard, services), max_records=shard.max_records, budget=budget) for shard in plan.shards]
    clock = services.clock
    started_s = clock.monotonic_s()
    with RoundRobinReader(getters, max_concurrent=MOST_CONCURRENT, clock=clock) as reader:
        while not reader.idle:
            for getter in reader.step(STEP_S):
                if getter.at_tip:
                    getter.close()
            spent_ms = (clock.monotonic_s() - started_s) * 1000
            _close_late(getters, spent_ms, plan)
            if budget.spent:
                _close_all(getters)
    return _hold(getters, plan, settings)


def _getter(shard: ShardSlice, services: WorkerServices) -> _PlannedShard:
    return _PlannedShard(
        services.client,
        shard.shard_id,
        shard.position,
        iterator=shard.iterator,
        pacer=services.pacer(shard.shard_id),
        clock=services.clock,
        ending_sequence=shard.ending_sequence,
    )


def _close_late(getters: Sequence[BufferedGetter], spent_ms: float, plan: TaskPlan) -> None:
    for getter in getters:
        searching = getter.buffered_records == 0
        if spent_ms >= (plan.fetch_cap_ms if searching else plan.fetch_time_ms):
            getter.close()


def _close_all(getters: Sequence[BufferedGetter]) -> None:
    for getter in getters:
        getter.close()


def _hold(getters: Sequence[BufferedGetter], plan: TaskPlan, settings: SourceSettings) -> list[Held]:
    """Take the pages out, cut what goes over the bytes (at least one record of the task stays)."""
    held: list[Held] = []
    room = plan.max_bytes
    anything = False
    for getter in getters:
        pages: deque[pa.RecordBatch] = deque()
        last: Page | None = None
        cut: pa.RecordBatch | None = None
        while cut is None and (page := getter.take()) is not None:
            last = page
            if not page.count:
                continue
            if settings.aggregated_records == "fail":
                refuse_aggregates(page.records, page.shard_id)
            fits = _fitting(page.records, room, at_least=0 if anything else 1)
            if fits < page.count:
                cut = page.records.slice(0, fits)
            kept = page.records if cut is None else cut
            if kept.num_rows:
                pages.append(kept)
                anything = True
                room -= _payload_bytes(kept)
        held.append(Held(_end(getter, pages, last, was_cut=cut is not None), pages))
    return held


def _fitting(records: pa.RecordBatch, room: int, *, at_least: int) -> int:
    """How many of the page's first records have no more than `room` bytes of payload."""
    if _payload_bytes(records) <= room:
        return int(records.num_rows)
    running = pc.cumulative_sum(pc.cast(pc.binary_length(records.column("data")), pa.int64()))
    return max(at_least, int(pc.sum(pc.cast(pc.less_equal(running, room), pa.int64())).as_py() or 0))


def _payload_bytes(records: pa.RecordBatch) -> int:
    return int(pc.sum(pc.cast(pc.binary_length(records.column("data")), pa.int64())).as_py() or 0)


def _end(getter: BufferedGetter, pages: Sequence[pa.RecordBatch], last: Page | None, *, was_cut: bool) -> ShardEnd:
    records = {}
    if pages:
        arrival = pages[-1].column("approximateArrivalTimestamp")[-1].cast(pa.timestamp("ms", tz="UTC"), safe=False).value
        records = {
            "first": SequenceNumber.parse(pages[0].column("sequenceNumber")[0].as_py()),
            "last": SequenceNumber.parse(pages[-1].column("sequenceNumber")[-1].as_py()),
            "count": sum(page.num_rows for page in pages),
            "last_arrival_ms": arrival,
        }
    if was_cut:
        return ShardEnd(shard_id=getter.shard_id, **records)
    if isinstance(getter.getter, _PlannedShard) and getter.getter.gone:
        return ShardEnd(shard_id=getter.shard_id, gone=True, **records)
    if last is None:  # no time, or no room: the hint that it came with is still good
        return ShardEnd(shard_id=getter.shard_id, iterator=getter.getter.iterator)
    return ShardEnd(
        shard_id=getter.shard_id,
        at_tip=last.at_tip,
        tip_ms=last.service_time_ms if last.at_tip or last.ended else None,
        shard_end=last.ended,
        children=last.child_shards if last.ended else (),
        millis_behind_latest=last.millis_behind_latest,
        iterator=last.next_iterator,
        **records,
    )
