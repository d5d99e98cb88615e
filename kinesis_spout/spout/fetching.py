"""A spout's reads in the background: new records ahead of their emission, and once more the records
whose retry or dead letter is due and whose payload is not in memory, because of a restart or for
lack of room.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.backoff import Backoff
from kinesis_spout.errors import (
    KinesisError,
    MalformedResponseError,
    UnreadableRecordError,
)
from kinesis_spout.reading.read_ahead import BufferedGetter, ByteBudget, RoundRobinReader
from kinesis_spout.reading.retry_reader import RetryReader
from kinesis_spout.reading.shard_getter import FetchPostponedError, KinesisShardGetter
from kinesis_spout.reading.subscribed_getter import SubscribedGetter, Subscriptions
from kinesis_spout.reading.subscriptions import SubscriptionCounts
from kinesis_spout.reading.user_records import (
    begins_within,
    lists_of,
    refuse_aggregates,
    unpacked,
)
from kinesis_spout.service.consumers import OwnConsumer
from kinesis_spout.shards.catalog import RELIST_S
from kinesis_spout.spout.outages import SpoutPart
from kinesis_spout.spout.tracked_shard import RecordRun
from scheme.record import KPL_MAGIC
from state.plan import PlannedRetry

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from kinesis_spout.reading.page import Page
    from kinesis_spout.shards.catalog import ListedStream, ShardCatalog
    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.emission import AssignedShard
    from kinesis_spout.spout.services import SpoutContext, SpoutServices
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState, UnresolvedRecord

_STEP_S = 0.05
_NOTHING_TO_DO_S = 1.0
_EMPTY_BEFORE_BACKOFF = 8  # pages of a shard at its tip
_IDLE_GROWTH = 1.5
_RETRY_STEP_S = 0.2
_LONGEST_WAIT_S = 1.0  # of a read for its shard's pace
_TURN_S = 1.0  # of a shard whose retries are far apart: then the other shards have theirs
_REMEDY = (
    "set aggregated_records to 'unpack' to read the user records of aggregates, or to 'raw' "
    "to read their bytes"
)


class TipGetter(KinesisShardGetter):
    """The getter of a spout that polls, from a shard's read position on. After a page at the tip,
    it waits for the idle poll interval of the configuration.
    """

    keeps_lists = True

    def __init__(
        self,
        config: SpoutConfig,
        services: SpoutServices,
        state: ShardState,
        *,
        ending_sequence: SequenceNumber | None,
    ) -> None:
        super().__init__(
            services.client,
            state.shard_id,
            state.read_position,
            pacer=services.pacers.of(state.shard_id),
            clock=services.clock,
            random=services.random,
            ending_sequence=ending_sequence,
            one_attempt=True,  # `SpoutOutages` decides how long to retry
        )
        self._idle = Backoff(
            config.idle_poll_s, max(config.idle_poll_s, config.max_idle_poll_s), growth=_IDLE_GROWTH
        )
        self._idle_until_s = -math.inf
        self._empty_in_a_row = 0

    def ready_at_s(self) -> float:
        return max(super().ready_at_s(), self._idle_until_s)

    def fetch_unless_throttled(self, limit: int) -> Page:
        page = super().fetch_unless_throttled(limit)
        if page.at_tip:
            # The interval grows from the ninth empty page on. A shard with a record every second
            # stays below that, so it is polled at a constant rate.
            self._empty_in_a_row = 0 if page.count else self._empty_in_a_row + 1
            idle_s = self._idle.wait_s(1 + self._empty_in_a_row - _EMPTY_BEFORE_BACKOFF)
            # Also after a page with records: an immediate request would spend the shard's requests
            # per second on single records, and would then have to wait.
            self._idle_until_s = self._clock.monotonic_s() + idle_s
        return page


class SpoutShardGetter:
    """The getter of a spout over `source`, which polls or has a subscription. It stops at a given
    time.

    `until_ms`: records that arrived later are not returned (ms since 1970 UTC; None: no limit).
    Once such a record was seen, `final_page` is the last page within the time, without its records.
    A transient fault postpones the fetch, with a growing pause before the next one.

    Aggregates are unpacked, so the records of a page are user records. If the configuration refuses
    aggregates, `AggregatedRecordError` is raised before any record of the page is returned.
    """

    def __init__(
        self,
        source: TipGetter | SubscribedGetter,
        context: SpoutContext,
        *,
        until_ms: int | None,
        unpacker: Unpacker,
    ) -> None:
        self._source = source
        self._outages = context.outages
        self.scheduler = context.scheduler
        self._start = source.position
        self._aggregates = context.config.aggregated_records
        self.shard_id = source.shard_id
        self.unpacker = unpacker
        self._until_ms = until_ms
        self._is_closed = False
        self.final_page: Page | None = None

    def ready_at_s(self) -> float:
        retry_at_s = self._outages.retry_at_s(SpoutPart.FETCH, self.shard_id)
        return max(self._source.ready_at_s(), retry_at_s)

    def fetch_unless_throttled(self, limit: int) -> Page:
        """Return the next page. Raises `FetchPostponedError`, as `ShardGetter`, and errors that
        stop the spout.
        """
        if not isinstance(self._source, SubscribedGetter):  # which may wait for events
            self._outages.asks(self.shard_id)
        try:
            page = self._source.fetch_unless_throttled(limit)
            if self._aggregates == "fail" and page.columns.any_begins_with(KPL_MAGIC):
                refuse_aggregates(page.records, self.shard_id, remedy=_REMEDY)
        except KinesisError as exc:
            error = exc
            if isinstance(exc, UnreadableRecordError) and self._has_unresolved():
                error = MalformedResponseError(str(exc))
            if self._is_closed:  # the shard was released meanwhile: nobody reads it again
                self._outages.forget(self.shard_id)
            else:
                self._outages.failed(SpoutPart.FETCH, error, self.shard_id)
            raise FetchPostponedError(str(exc)) from exc
        self._outages.succeeded(SpoutPart.FETCH, self.shard_id)
        in_time = page.count if self._until_ms is None else page.arrived_by(self._until_ms)
        if in_time < page.count:
            page = page.head(in_time)
            self.final_page = page.without_records()
        # An aggregate that was delivered in part is unpacked even if the setting is `raw` now.
        is_raw = self._aggregates != "unpack"
        if not begins_within(page.first, self._start) and (
            is_raw or not page.columns.any_begins_with(KPL_MAGIC)
        ):
            return page
        parts = unpacked(page.records, self.unpacker, self._start, only_begun=is_raw)
        columns = lists_of(list(parts))
        count = len(columns.arrivals)
        return replace(page, columns=columns, count=count, payload_bytes=columns.payload_bytes)

    def _has_unresolved(self) -> bool:
        """Whether the shard has records without an outcome. An operator who skips the record that
        stops the spout must not skip these, too.
        """
        with self.scheduler.changed:
            assigned = self.scheduler.assigned.get(self.shard_id)
            return assigned is not None and assigned.shard.has_unresolved

    def close(self) -> None:
        """End the subscription, if there is one. Later failures are no outage. For any thread;
        never blocks.
        """
        self._is_closed = True
        if isinstance(self._source, SubscribedGetter):
            self._source.close()


class Prefetched(BufferedGetter):
    """The buffer of one shard, as a `kinesis_spout.spout.tracked_shard.PageSource`. Dropping a page
    with records wakes the fetching thread.
    """

    def __init__(self, source: SpoutShardGetter, context: SpoutContext, budget: ByteBudget) -> None:
        super().__init__(source, max_records=context.config.prefetch_records, budget=budget)
        self.source = source

    def close(self) -> None:
        super().close()
        self.source.close()

    def drop(self, page: Page) -> bool:
        is_dropped = super().drop(page)
        if page.count:
            self.source.scheduler.wake("fetch")
        return is_dropped


class SpoutPrefetcher:
    """Reads the shards of an open spout ahead. One thread calls `step`. Any thread may call the
    other methods while it holds the scheduler's lock, which guards `buffers`, by shard.
    `subscriptions`: None if the spout polls.
    """

    def __init__(self, context: SpoutContext) -> None:
        self._context = context
        self._config = config = context.config
        services = context.services
        self._scheduler = context.scheduler
        self._budget = ByteBudget(config.prefetch_bytes)
        self.buffers: dict[str, Prefetched] = {}
        self.subscriptions: Subscriptions | None = None
        if config.read_mode == "efo":
            name, arn = config.consumer_name, config.consumer_arn
            consumer = OwnConsumer(services.client, name=name, arn=arn, clock=services.clock)
            self.subscriptions = Subscriptions(
                subscribe=consumer.subscribe,
                poll_after_s=config.efo_fallback_after_s,
                counts=SubscriptionCounts(name or arn or "", option="consumer_name"),
                new_feed=services.new_feed,
                wait_for=services.wait_for,
                clock=services.clock,
                random=services.random,
            )
        self._reader = RoundRobinReader(
            [],
            max_concurrent=config.fetch_concurrency,
            clock=services.clock,
            new_pool=services.new_pool,
            pause=None if self.subscriptions is None else self.subscriptions.wait,
        )

    def close(self) -> None:
        """Stop reading. Waits for running fetches."""
        for pages in list(self.buffers.values()):
            pages.close()
        self._reader.__exit__(None, None, None)

    def add(
        self,
        state: ShardState,
        stream: ListedStream,
        *,
        ending_sequence: SequenceNumber | None,
        until_ms: int | None,
    ) -> Prefetched:
        """Start to read a shard from its read position. `until_ms`: see `SpoutShardGetter`."""
        polling = TipGetter(
            self._config, self._context.services, state, ending_sequence=ending_sequence
        )
        pushed = self.subscriptions
        where = f"shard {state.shard_id} of stream {self._config.stream_ref.name}"
        source = SpoutShardGetter(
            polling if pushed is None else SubscribedGetter(polling, pushed),
            self._context,
            until_ms=until_ms,
            unpacker=_unpacker(stream, state.shard_id, where),
        )
        pages = Prefetched(source, self._context, self._budget)
        self.buffers[state.shard_id] = pages
        self._scheduler.wake("fetch")
        return pages

    def remove(self, shard_id: str) -> None:
        """Stop reading a shard, and drop its buffered pages."""
        pages = self.buffers.pop(shard_id, None)
        if pages is not None:
            pages.discard()

    def step(self) -> float:
        """Fetch pages into buffers with room for a moment; during a pause, only complete running
        fetches. Returns the seconds until there is more to fetch, unless a page is dropped before.
        """
        with self._scheduler.changed:
            is_paused = self._scheduler.rotation.is_paused  # running fetches still complete
            self._reader.replace([] if is_paused else list(self.buffers.values()))
        fetched = self._reader.step(_STEP_S)
        if self.subscriptions is not None:
            now_s = self._context.services.clock.monotonic_s()
            self._context.outages.not_subscribed = self.subscriptions.counts.refusal(now_s)
        if fetched:
            with self._scheduler.changed:
                for buffer in fetched:
                    assigned = self._scheduler.assigned.get(buffer.shard_id)
                    pages = self.buffers.get(buffer.shard_id)
                    if assigned is None or pages is not buffer:
                        buffer.discard()  # the shard was released while the fetch was running
                        continue
                    if pages.source.final_page is not None:
                        pages.close()
                    assigned.is_dirty = True
                    assigned.counts.left_out = pages.source.unpacker.left_out
                    self._scheduler.reschedule(assigned)
        return _NOTHING_TO_DO_S if self._reader.idle else 0.0


def _unpacker(stream: ListedStream, shard_id: str, where: str = "") -> Unpacker:
    """Return the unpacker of the shard's aggregates. It sends no request: the shard's hash keys
    come from the last listing. `where`: the shard's name in the log; set for first deliveries only.
    """
    return Unpacker(lambda: stream.hash_key_ranges().get(shard_id), where)


class SpoutRetryFetcher:
    """Reads records of an open spout again. One thread calls `step`, which blocks on Kinesis."""

    def __init__(self, context: SpoutContext, catalog: ShardCatalog) -> None:
        self._catalog = catalog
        self._unknown_until_s: dict[str, float] = {}  # shards that Kinesis did not know
        self._outages = context.outages
        self._services = context.services
        self._scheduler = context.scheduler

    def step(self) -> float:
        """Read the wanted records, as far as there is room for payloads; nothing during a pause.
        Unread records are wanted again later. Returns the seconds until the next step.
        """
        if self._scheduler.rotation.is_paused:
            return _RETRY_STEP_S
        for letters in (False, True):
            for assigned, records in self._scheduler.wanted(letters=letters):
                if records and assigned.shard.shard_id in self._catalog.loss.gone:
                    self._scheduler.restock(assigned, _found(records, []))
                elif records and self._may_read(assigned.shard.shard_id):
                    room_bytes = self._scheduler.room_bytes(letters=letters)
                    if room_bytes > 0:
                        self._read(assigned, records, room_bytes)
        return _RETRY_STEP_S

    def _may_read(self, shard_id: str) -> bool:
        """Whether the shard can be read now, without a repeated failure or a wait that would delay
        other shards.
        """
        now_s, pacer = self._services.clock.monotonic_s(), self._services.pacers.of(shard_id)
        return now_s >= max(
            self._unknown_until_s.get(shard_id, now_s),
            self._outages.retry_at_s(SpoutPart.RETRIES, shard_id),
            pacer.ready_at_s(now_s, retries=True) - _LONGEST_WAIT_S,
        )

    def _read(
        self, assigned: AssignedShard, records: Sequence[UnresolvedRecord], room_bytes: int
    ) -> None:
        """Read records of a shard for at most a turn's time. Records that were read before an error
        are kept; the remaining records are wanted again. Raises an error that waiting cannot cure.
        """
        shard_id = assigned.shard.shard_id
        # One letter stands for an exhausted range, so no range is read in part.
        reader = RetryReader(
            shard_id,
            list(map(PlannedRetry.of, records)),
            self._services,
            budget=ByteBudget(room_bytes),
            whole_ranges=True,
            one_attempt=True,
            unpacker=_unpacker(self._catalog.stream, shard_id),
        )
        batches: list[pa.RecordBatch] = []
        error: KinesisError | None = None
        try:
            for delivery in reader.read(until_s=self._services.clock.monotonic_s() + _TURN_S):
                batches.append(delivery.records)  # noqa: PERF401  # records before an error stay
        except KinesisError as exc:
            error = exc
        if reader.result.shard_gone:
            self._unknown_until_s[shard_id] = self._services.clock.monotonic_s() + RELIST_S
            # This alone does not prove that the shard is gone. So list the shards at once.
            self._catalog.stream.expire()
            self._scheduler.wake("coordinate")
        self._scheduler.restock(assigned, _found(records[: reader.result.done], batches))
        if error is None or reader.result.done:
            self._outages.succeeded(SpoutPart.RETRIES, shard_id)
        if error is not None:
            self._outages.failed(SpoutPart.RETRIES, error, shard_id)


def _found(
    records: Sequence[UnresolvedRecord], batches: Sequence[pa.RecordBatch]
) -> list[tuple[UnresolvedRecord, RecordRun]]:
    """Return each searched record with the payloads that were found."""
    rows = RecordRun(*lists_of(batches).lists())
    numbers = rows.sequences
    return [
        (record, rows.part(bisect_left(numbers, record.first), bisect_right(numbers, record.last)))
        for record in records
    ]
