"""The first read of a task: its retries, then its shards up to the task's limits.

Everything is held in memory until the task's result is published (`task_reader`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.reading.buffered_getter import BufferedGetter, ByteBudget
from kinesis_spout.reading.kpl import refuse_aggregates
from kinesis_spout.reading.retry_reader import Delivery, RetryByteBudget, RetryReader
from kinesis_spout.reading.round_robin import RoundRobinReader
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.service.record_columns import fitting_records, payload_bytes
from state.plan import ShardReadResult, ShardSlice, TaskPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.reading.page import Page
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings

MAX_CONCURRENT = 8
STEP_S = 0.2
# Retries get at most half of a task's bytes and time where it may read new records too, so that
# they do not delay these.
RETRY_SHARE = 2


@dataclass(slots=True)
class Held:
    """The records that were read of one shard, retries and new ones, both in order; and the result
    that describes them.
    """

    end: ShardReadResult
    pages: deque[Page]
    retries: deque[Delivery] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class FoundRetries:
    """The records found of a shard's retries, and the result that describes them."""

    deliveries: tuple[Delivery, ...]
    end: ShardReadResult

    @property
    def held_bytes(self) -> int:
        return payload_bytes(delivery.records for delivery in self.deliveries)


def collect(plan: TaskPlan, services: ProcessServices, settings: SourceSettings) -> list[Held]:
    """Read the task's retries, then every shard until its limit, its tip, its end, or the task's
    limits of bytes and time. Blocks on Kinesis.

    A shard without a record so far that is behind its tip (a run of empty pages) is read on after
    the time box, up to the cap: its position moves only with a record.
    """
    retries = _collect_retries(plan, services, settings)
    room = plan.max_bytes - sum(found.held_bytes for found in retries.values())
    budget = ByteBudget(max(1, room))
    new = {
        shard.shard_id: BufferedGetter(
            _getter(shard, services), max_records=shard.max_records, budget=budget
        )
        for shard in plan.shards
        if shard.max_records
    }
    if room > 0:
        _read(list(new.values()), plan, services)
    return _hold(plan, new, retries, max(0, room), settings)


def _collect_retries(
    plan: TaskPlan, services: ProcessServices, settings: SourceSettings
) -> dict[str, FoundRetries]:
    """The retries that were found, by shard, for the shards that have any planned. Retries that
    were not searched for, for lack of time or bytes, are not counted in `done`.

    The first shard's first record is held regardless of the bytes. Shards take turns at being
    first, so none waits for ever. A shard that the plan knows to be gone is not asked for.
    """
    shards = [shard for shard in plan.shards if shard.retries]
    if not shards:
        return {}
    share = RETRY_SHARE if any(shard.max_records for shard in plan.shards) else 1
    room = RetryByteBudget(max(1, plan.max_bytes // share))
    until_s = services.clock.monotonic_s() + plan.fetch_time_ms / 1000 / share
    first = next((shard for shard in shards if not shard.gone), None)

    def find(shard: ShardSlice) -> FoundRetries:
        end = ShardReadResult(shard_id=shard.shard_id)
        if shard.gone:
            firsts = tuple(retry.first for retry in shard.retries)
            return FoundRetries(
                (), msgspec.structs.replace(end, retries_done=len(firsts), retries_gone=firsts)
            )
        reader = RetryReader(shard.shard_id, shard.retries, services)
        deliveries = tuple(reader.read(room, until_s=until_s, at_least_one=shard is first))
        if settings.aggregated_records == "fail":
            for delivery in deliveries:
                refuse_aggregates(delivery.records, shard.shard_id)
        return FoundRetries(deliveries, reader.described_in(end))

    with services.new_pool(min(MAX_CONCURRENT, len(shards)), "kinesis-retry") as pool:
        return {
            shard.shard_id: found
            for shard, found in zip(shards, pool.map(find, shards), strict=True)
        }


def _read(getters: Sequence[BufferedGetter], plan: TaskPlan, services: ProcessServices) -> None:
    clock = services.clock
    started_s = clock.monotonic_s()
    with RoundRobinReader(
        getters, max_concurrent=MAX_CONCURRENT, clock=clock, new_pool=services.new_pool
    ) as reader:
        while not reader.idle:
            for getter in reader.step(STEP_S):
                if getter.at_tip:
                    getter.close()
            spent_ms = (clock.monotonic_s() - started_s) * 1000
            _close_late(getters, spent_ms, plan)
            if any(getter.budget.spent for getter in getters):
                _close_all(getters)


def _getter(shard: ShardSlice, services: ProcessServices) -> KinesisShardGetter:
    return KinesisShardGetter(
        services.client,
        shard.shard_id,
        shard.position,
        iterator=shard.iterator,
        pacer=services.pacer(shard.shard_id),
        clock=services.clock,
        ending_sequence=shard.ending_sequence,
        random=services.random,
    )


def _close_late(getters: Sequence[BufferedGetter], spent_ms: float, plan: TaskPlan) -> None:
    for getter in getters:
        searching = getter.buffered_records == 0
        if spent_ms >= (plan.fetch_cap_ms if searching else plan.fetch_time_ms):
            getter.close()


def _close_all(getters: Sequence[BufferedGetter]) -> None:
    for getter in getters:
        getter.close()


def _hold(
    plan: TaskPlan,
    getters: Mapping[str, BufferedGetter],
    retries: Mapping[str, FoundRetries],
    room: int,
    settings: SourceSettings,
) -> list[Held]:
    """Take the pages out of the buffers and cut them to `room` bytes; at least one record of the
    task is kept.
    """
    held: list[Held] = []
    anything = any(found.end.retry_rows for found in retries.values())
    for shard in plan.shards:
        found = retries.get(shard.shard_id)
        end = ShardReadResult(shard_id=shard.shard_id) if found is None else found.end
        getter = getters.get(shard.shard_id)
        pages: deque[Page] = deque()
        lapse = LapseDetector(shard.verified_until_ms, plan.retention_ms)
        if getter is not None:
            end, pages = _take(getter, end, room, settings, lapse, at_least=0 if anything else 1)
            end = msgspec.structs.replace(end, position=shard.position, lapsed_ms=lapse.lapsed_ms)
            room -= sum(page.payload_bytes for page in pages)
            anything = anything or bool(pages)
        held.append(Held(end, pages, deque(() if found is None else found.deliveries)))
    return held


@dataclass(slots=True)
class LapseDetector:
    """Finds whether records of a shard may have expired unread before its pages came: a page that
    comes more than the retention after the shard was last verified does not show what was before
    it. Pure; times are the service's, in ms.

    - `verified_ms`: no record before this time can have been missed; None if nothing is known.
    - `lapsed_ms`: when the first such page came, or None.
    """

    verified_ms: int | None
    retention_ms: int | None
    lapsed_ms: int | None = None

    def note(self, page: Page) -> None:
        """Take the next page of the shard, in order."""
        if self.verified_ms is None or self.retention_ms is None:
            return
        now_ms = page.service_time_ms
        if now_ms is not None and now_ms - self.retention_ms > self.verified_ms:
            self.lapsed_ms = self.lapsed_ms or now_ms
        tip_ms = now_ms if page.at_tip else None
        known = (self.verified_ms, page.last_arrival_ms, tip_ms)
        self.verified_ms = max(ms for ms in known if ms is not None)


def _take(
    getter: BufferedGetter,
    end: ShardReadResult,
    room: int,
    settings: SourceSettings,
    lapse: LapseDetector,
    *,
    at_least: int,
) -> tuple[ShardReadResult, deque[Page]]:
    """One shard's new records that fit into `room` bytes, and `end` with where they end."""
    pages: deque[Page] = deque()
    last: Page | None = None
    was_cut = False
    while not was_cut and (page := getter.take()) is not None:
        last = page
        lapse.note(page)
        if not page.count:
            continue
        if settings.aggregated_records == "fail":
            refuse_aggregates(page.records, page.shard_id)
        last = page.head(fitting_records(page.records, room, at_least=0 if pages else at_least))
        was_cut = last.count < page.count
        if last.count:
            pages.append(last)
            room -= last.payload_bytes
    return _end(getter, end, pages, last), pages


def _end(
    getter: BufferedGetter, end: ShardReadResult, pages: Sequence[Page], last: Page | None
) -> ShardReadResult:
    """`end` with the result of reading `pages`; `last` is the last page that was taken, with
    records or without.
    """
    if last is None:  # no time, or no room: the plan's iterator was not used and is still good
        return msgspec.structs.replace(end, iterator=getter.getter.iterator)
    return msgspec.structs.replace(
        end,
        first=pages[0].first if pages else None,
        last=pages[-1].last if pages else None,
        count=sum(page.count for page in pages),
        last_arrival_ms=pages[-1].last_arrival_ms if pages else None,
        at_tip=last.at_tip,
        tip_ms=last.service_time_ms if last.at_tip or last.ended else None,
        at_shard_end=last.ended,
        children=last.child_shards if last.ended else (),
        gone=last.gone or end.gone,  # the driver reports what was lost
        millis_behind_latest=last.millis_behind_latest,
        iterator=last.next_iterator,
    )
