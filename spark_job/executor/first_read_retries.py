"""Reading the retries of a task's shards, several shards at a time, before its new records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.reading.kpl import refuse_aggregates
from kinesis_spout.reading.retry_byte_budget import RetryByteBudget
from kinesis_spout.reading.retry_reader import Delivery, RetryReader
from kinesis_spout.service.record_columns import payload_bytes

if TYPE_CHECKING:
    from spark_job.process_services import WorkerServices
    from spark_job.settings import SourceSettings
    from state.plan import ShardSlice, TaskPlan
    from state.sequence_number import SequenceNumber

MOST_CONCURRENT = 8
SHARE = 2  # retries take one part in so many of a task's bytes and time, where it may read new records too


@dataclass(frozen=True, slots=True)
class FoundRetries:
    """What a task found of a shard's retries, as `state.plan.ShardReadResult` tells it, and the
    records.
    """

    deliveries: tuple[Delivery, ...]
    done: int
    rows: int
    gone: tuple[SequenceNumber, ...]

    @property
    def held_bytes(self) -> int:
        return payload_bytes(delivery.records for delivery in self.deliveries)


NO_RETRIES = FoundRetries((), 0, 0, ())


def collect_retries(
    plan: TaskPlan, services: WorkerServices, settings: SourceSettings
) -> dict[str, FoundRetries]:
    """By shard, for the shards of the plan that have any. What was not looked for, for lack of time
    or room, is not told.

    The first shard's first retry is held whatever the room: as shards take turns, none waits for
    ever.
    """
    shards = [shard for shard in plan.shards if shard.retries]
    if not shards:
        return {}
    share = SHARE if any(shard.max_records for shard in plan.shards) else 1
    room = RetryByteBudget(max(1, plan.max_bytes // share))
    until_s = services.clock.monotonic_s() + plan.fetch_time_ms / 1000 / share

    def find(shard: ShardSlice) -> FoundRetries:
        reader = RetryReader(shard.shard_id, shard.retries, services)
        deliveries = tuple(reader.read(room, until_s=until_s, at_least_one=shard is shards[0]))
        if settings.aggregated_records == "fail":
            for delivery in deliveries:
                refuse_aggregates(delivery.records, shard.shard_id)
        return FoundRetries(deliveries, reader.done, reader.rows, tuple(reader.gone))

    with services.new_pool(min(MOST_CONCURRENT, len(shards)), "kinesis-retry") as pool:
        return {
            shard.shard_id: found
            for shard, found in zip(shards, pool.map(find, shards), strict=True)
        }
