"""Reading ahead of all shards of a spout, in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.errors import ShardNotFoundError
from kinesis_spout.reading.buffered_getter import BufferedGetter, ByteBudget
from kinesis_spout.reading.kpl import refuse_aggregates
from kinesis_spout.reading.no_more import no_more
from kinesis_spout.reading.round_robin import RoundRobinReader
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.reading.until import cut_page
from kinesis_spout.service.get_records_decoder import decode_get_records
from scheme.record import KPL_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.reading.page import Page
    from kinesis_spout.spout.services import SpoutContext
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState

_STEP_S = 0.05
_ONE_RECORD = (
    b'{"Records":[{"SequenceNumber":"1","ApproximateArrivalTimestamp":1.0,"Data":"","PartitionKey":"k"}],'
    b'"NextShardIterator":"i","MillisBehindLatest":0}'
)
_EMPTY_BEFORE_BACKOFF = 8
_NOTHING_TO_DO_S = 1.0


class SpoutShardGetter(KinesisShardGetter):
    """A shard at its tip is left alone for a while; one that the service has forgotten gives
    nothing more, and is `gone`.

    Nothing that arrived after `until_ms` is given: `last_page` is what is left of the page where it
    stopped. Raises `AggregatedRecordError` for a page with a KPL aggregate, if these are refused,
    before any record of it is known.
    """

    keeps_lists = True
    gone = False
    refuse_aggregated = True
    idle_poll_s = 0.0
    until_ms: int | None = None
    last_page: Page | None = None
    max_idle_poll_s = 0.0
    _idle_until_s = float("-inf")
    _empty_in_a_row = 0

    def ready_at_s(self) -> float:
        return max(super().ready_at_s(), self._idle_until_s)

    def fetch_unless_throttled(self, limit: int) -> Page:
        if self.last_page is not None:
            self.last_page = no_more(self.shard_id, ended=False)
            return self.last_page
        page = self._fetch_page(limit)
        cut = None if self.until_ms is None else cut_page(page, self.until_ms)
        if cut is not None:
            self.last_page = page = cut
        return page

    def _fetch_page(self, limit: int) -> Page:
        try:
            page = super().fetch_unless_throttled(limit)
        except ShardNotFoundError:
            self.gone = True
            return no_more(self.shard_id, ended=False)
        if self.refuse_aggregated and page.columns.any_begins_with(KPL_MAGIC):
            refuse_aggregates(page.records, self.shard_id)
        if page.at_tip:  # with records or without: to ask again at once would use the second's calls up, and wait for the next
            self._idle_until_s = self._clock.monotonic_s() + self._idle_s(page)
        return page

    def _idle_s(self, page: Page) -> float:
        """Longer and longer from the ninth empty page on: a shard whose records come a second apart
        is not left alone longer.
        """
        self._empty_in_a_row = 0 if page.count else self._empty_in_a_row + 1
        growth = 1.5 ** min(max(0, self._empty_in_a_row - _EMPTY_BEFORE_BACKOFF), 20)
        return min(max(self.idle_poll_s, self.max_idle_poll_s), self.idle_poll_s * growth)


class Prefetched:
    """The buffer of one shard, as `page_runs.PageSource`: whoever drops a page wakes
    the fetcher.
    """

    def __init__(self, buffer: BufferedGetter, wake: Callable[[], None]) -> None:
        self.buffer = buffer
        self._wake = wake

    @property
    def gone(self) -> bool:
        """The service does not know the shard any more."""
        return isinstance(self.buffer.getter, SpoutShardGetter) and self.buffer.getter.gone

    @property
    def last_page(self) -> Page | None:
        """The page before the first record that arrived too late to be of interest; None as long as
        none was seen.
        """
        return (
            self.buffer.getter.last_page
            if isinstance(self.buffer.getter, SpoutShardGetter)
            else None
        )

    def first(self) -> Page | None:
        return self.buffer.first()

    def drop(self, page: Page) -> None:
        self.buffer.drop(page)
        if page.count:
            self._wake()


class SpoutFetching:
    """One per open spout. `step` is called by one thread; the rest from any, with the spout's lock
    held.
    """

    def __init__(self, context: SpoutContext, wake: Callable[[], None]) -> None:
        self._config = config = context.config
        self._services = services = context.services
        self._core = context.scheduler
        self._changed = context.changed
        self._wake = wake
        self.until_ms: int | None = None
        self._budget = ByteBudget(config.prefetch_bytes)
        self._buffers: dict[str, Prefetched] = {}
        self._is_stale = False
        self._reader = RoundRobinReader(
            [],
            max_concurrent=config.fetch_concurrency,
            clock=services.clock,
            new_pool=services.new_pool,
        )

    def open(self) -> None:
        """Load what the first record needs besides: pyarrow imports pandas then, which would hold
        that record up.
        """
        decode_get_records(_ONE_RECORD)
        self._reader.__enter__()

    def close(self) -> None:
        """Waits for the fetches under way."""
        self._reader.__exit__(None, None, None)

    def add(self, state: ShardState, ending_sequence: SequenceNumber | None) -> Prefetched:
        """Read a shard from where its state says."""
        getter = SpoutShardGetter(
            self._services.client,
            state.shard_id,
            state.read_position,
            pacer=self._services.pacer(state.shard_id),
            clock=self._services.clock,
            random=self._services.random,
            ending_sequence=ending_sequence,
        )
        getter.idle_poll_s = self._config.idle_poll_s
        getter.max_idle_poll_s = self._config.max_idle_poll_s
        getter.refuse_aggregated = self._config.refuse_aggregated
        getter.until_ms = self.until_ms
        buffer = BufferedGetter(
            getter, max_records=self._config.prefetch_records, budget=self._budget
        )
        pages = self._buffers[state.shard_id] = Prefetched(buffer, self._wake)
        self._is_stale = True
        self._wake()
        return pages

    def remove(self, shard_id: str) -> None:
        """Read a shard no more; what is in its buffer is dropped."""
        pages = self._buffers.pop(shard_id, None)
        if pages is not None:
            pages.buffer.close()
            _drop_all(pages.buffer)
            self._is_stale = True

    def get(self, shard_id: str) -> Prefetched | None:
        return self._buffers.get(shard_id)

    def step(self) -> float:
        """Fetch what is wanted, for a moment; seconds until there is more to do, unless somebody
        takes a page.
        """
        with self._changed:
            if self._is_stale:
                self._reader.replace([pages.buffer for pages in self._buffers.values()])
                self._is_stale = False
        fetched = self._reader.step(_STEP_S)
        if fetched:
            with self._changed:
                for buffer in fetched:
                    self._on_page(buffer)
                self._changed.notify_all()
        return _NOTHING_TO_DO_S if self._reader.idle else 0.0

    def _on_page(self, buffer: BufferedGetter) -> None:
        assigned = self._core.assigned.get(buffer.shard_id)
        pages = self._buffers.get(buffer.shard_id)
        if assigned is None or pages is None or pages.buffer is not buffer:
            _drop_all(buffer)  # of a shard that was laid down while its fetch was under way
            return
        if pages.gone or pages.last_page is not None:
            buffer.close()
        assigned.is_dirty = True
        self._core.reschedule(assigned)


def _drop_all(buffer: BufferedGetter) -> None:
    while buffer.take() is not None:
        pass
