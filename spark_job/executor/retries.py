"""A task's retries: found by the attempt that appends them to the log, and read again by the
others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.errors import DataLossError
from kinesis_spout.reading.retry_reader import Delivery, RetryByteBudget, RetryReader
from kinesis_spout.reading.user_records import refuse_aggregates
from kinesis_spout.service.get_records_decoder import payload_bytes
from spark_job.rows import hash_range_of, mode_of
from spark_job.settings import FAIL
from state.plan import PlannedRetry, ShardReadResult, ShardSlice, TaskPlan, retries_with_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings

log = logging.getLogger("kinesis_spout")
MAX_CONCURRENT = 8
# Retries get at most half of a task's bytes and time where it may read new records too, so that
# they do not delay these.
RETRY_SHARE = 2
ANSWERS = 2  # that say that nothing more is there, each of a new iterator; one proves nothing


@dataclass(frozen=True, slots=True)
class FoundRetries:
    """The records found of a shard's retries, and the entry of the log that describes them."""

    deliveries: tuple[Delivery, ...]
    entry: ShardReadResult


def find_retries(
    plan: TaskPlan, services: ProcessServices, settings: SourceSettings
) -> list[FoundRetries]:
    """The retries that were found, for the shards that have any planned. Retries that were not
    searched for, for lack of time or bytes, are not counted in `retries_done`. Blocks on Kinesis.

    The first shard's first record is held regardless of the bytes. Shards take turns at being
    first, so none waits for ever. A shard that the plan knows to be gone is not asked for.
    """
    shards = [shard for shard in plan.shards if shard.retries]
    if not shards:
        return []
    share = RETRY_SHARE if any(shard.max_records for shard in plan.shards) else 1
    room = RetryByteBudget(max(1, plan.max_bytes // share))
    until_s = services.clock.monotonic_s() + plan.fetch_time_ms / 1000 / share
    first = next((shard for shard in shards if not shard.gone), None)

    def find(shard: ShardSlice) -> FoundRetries:
        entry = ShardReadResult(shard_id=shard.shard_id)
        if shard.gone:
            firsts = tuple(retry.first for retry in shard.retries)
            return FoundRetries(
                (), msgspec.structs.replace(entry, retries_done=len(firsts), retries_gone=firsts)
            )
        reader = _new_reader(
            shard, shard.retries, services, plan, budget=room, at_least_one=shard is first
        )
        deliveries = tuple(reader.read(until_s=until_s))
        if mode_of(plan, settings) == FAIL:
            for delivery in deliveries:
                refuse_aggregates(delivery.records, shard.shard_id)
        held_bytes = payload_bytes(delivery.records for delivery in deliveries)
        return FoundRetries(
            deliveries,
            msgspec.structs.replace(reader.result.described_in(entry), payload_bytes=held_bytes),
        )

    with services.new_pool(min(MAX_CONCURRENT, len(shards)), "kinesis-retry") as pool:
        return list(pool.map(find, shards))


def read_retries_again(
    entry: ShardReadResult,
    plan: TaskPlan,
    services: ProcessServices,
    settings: SourceSettings,
) -> Iterator[Delivery]:
    """The retries of an entry that another attempt has appended, or this one has handed over.
    Blocks on Kinesis. Raises `DataLossError` where some are gone, unless `failOnDataLoss` is
    false.
    """
    shard = next(shard for shard in plan.shards if shard.shard_id == entry.shard_id)
    reads = retries_with_rows(shard.retries, entry)
    refuses_aggregates = mode_of(plan, settings) == FAIL
    rows = 0
    for _ in range(ANSWERS):
        reader = _new_reader(shard, reads, services, plan)
        for delivery in reader.read():
            if refuses_aggregates:
                refuse_aggregates(delivery.records, entry.shard_id)
            yield delivery
        rows += reader.result.rows
        reads = reads[reader.result.done :]
        if not reader.result.shard_gone:
            break
    if rows != entry.retry_rows:
        report_data_loss(
            entry.shard_id,
            f"of the {entry.retry_rows} records that were retried before, {rows} are left",
            settings,
        )


def _new_reader(
    shard: ShardSlice,
    retries: Sequence[PlannedRetry],
    services: ProcessServices,
    plan: TaskPlan,
    *,
    budget: RetryByteBudget | None = None,
    at_least_one: bool = True,
) -> RetryReader:
    """A reader whose retries are read as they failed, unpacked or `whole`, whatever the option is
    now.

    A plan of an earlier version says `whole` of none. It has a retry without a sub-sequence number
    read whole, as the state has it (`state.codec.shard_states`).
    """
    return RetryReader(
        shard.shard_id,
        retries,
        services,
        budget=budget,
        at_least_one=at_least_one,
        unpacker=Unpacker(lambda: hash_range_of(shard)),
        only_subs=plan.aggregated_records is None,
    )


def report_data_loss(shard_id: str, what: str, settings: SourceSettings) -> None:
    """Say of records that were read before that some are past the retention now: raise
    `DataLossError`, or warn where `failOnDataLoss` is false.
    """
    sentence = (
        f"shard {shard_id} of stream {settings.stream.name}: {what}. The others are past the "
        "stream's retention"
    )
    if settings.fail_on_data_loss:
        raise DataLossError(
            f"{sentence}", "set option failOnDataLoss to false to read the remaining records"
        )
    log.warning("%s. failOnDataLoss is false, so the remaining records are read", sentence)
