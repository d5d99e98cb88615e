"""Reads many shards ahead, each into its own buffer. A buffer is bounded by a number of records,
and by the bytes of all shards that share a budget. Several fetches run concurrently, in strict
rotation.

The size of a page is known only after its fetch. So a fetch first reserves the size of the largest
page that Kinesis returns or, if the budget is small, twice the size of the shard's largest page so
far. Afterwards, the reservation is replaced by the real size.

A shard that must wait for its limits, or whose buffer is full, is skipped and does not delay other
shards. A shard that got no budget comes first when there is budget again, so no shard starves.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import chain
from typing import TYPE_CHECKING

from kinesis_spout.reading.shard_getter import FetchPostponedError
from kinesis_spout.service.get_records_decoder import fitting_records, payload_bytes
from kinesis_spout.service.shard_info import MAX_BYTES_PER_CALL, MAX_RECORDS_PER_CALL
from kinesis_spout.threads import NewPool, thread_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    import pyarrow as pa

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.page import Page
    from kinesis_spout.reading.shard_getter import ShardGetter

RESERVED_PAGE_BYTES = MAX_BYTES_PER_CALL
PAGE_BYTES = 8 * 1024 * 1024
_LOOK_AGAIN_S = 0.05
FIRST_LIMIT = 2_500  # records of a shard of which nothing was read yet


class PageLimits:
    """The number of records to request from each shard, so that a page has about `page_bytes`.

    Each page costs a request and an Arrow batch, so small pages cost CPU. Large pages cost memory,
    several times their size while they are decoded. One object remembers the record sizes of shards
    for the life of a process. Threads may share it, because the sizes are only hints.
    """

    def __init__(self, page_bytes: int = PAGE_BYTES) -> None:
        self._page_bytes = page_bytes
        self._record_bytes: dict[str, float] = {}

    def limit(self, shard_id: str) -> int:
        """Return the limit of records for the next page of a shard."""
        record_bytes = self._record_bytes.get(shard_id)
        if record_bytes is None:
            return FIRST_LIMIT
        return max(1, min(MAX_RECORDS_PER_CALL, int(self._page_bytes / record_bytes)))

    def reserve(self, shard_id: str, *, at_least: int) -> int:
        """Return the bytes to reserve for a shard's first page: `at_least`, or one record's size if
        that is more.
        """
        record_bytes = int(self._record_bytes.get(shard_id, 0))
        return max(at_least, min(record_bytes, RESERVED_PAGE_BYTES))

    def note(self, page: Page) -> None:
        """Note the record size of a shard's newest page."""
        if page.count:
            self._record_bytes[page.shard_id] = max(1.0, _held_bytes(page) / page.count)


class ByteBudget:
    """The bytes that the buffers of a task, or the retries of its shards, may hold together. Safe
    from any thread; never blocks.

    While less than `max_bytes` is held, one reservation is always granted, even if it does not fit.
    So a budget that is smaller than a page makes slow progress instead of none, and at most
    `max_bytes` and one page are held.
    """

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self.held_bytes = 0  # the size of the pages that are fetched and not taken yet
        self._reserved_bytes = 0

    @property
    def spent(self) -> bool:
        """Whether no reservation will be granted until pages are taken."""
        with self._lock:
            return self.held_bytes >= self.max_bytes

    def try_reserve(self, page_bytes: int = RESERVED_PAGE_BYTES, *, force: bool = False) -> bool:
        """Reserve the bytes of one page. Returns False if the budget does not allow it."""
        with self._lock:
            wanted = self.held_bytes + self._reserved_bytes + page_bytes
            granted = (
                force
                or wanted <= self.max_bytes
                or (self._reserved_bytes == 0 and self.held_bytes < self.max_bytes)
            )
            self._reserved_bytes += granted * page_bytes
            return granted

    def settle(self, page_bytes: int, reserved_bytes: int = RESERVED_PAGE_BYTES) -> None:
        """Replace a reservation by the size of the fetched page, or by 0."""
        with self._lock:
            self._reserved_bytes -= reserved_bytes
            self.held_bytes += page_bytes

    def take(self, records: pa.RecordBatch, *, at_least: int) -> int:
        """Hold the payload of the first records that fit, and of `at_least` so many. Returns how
        many.
        """
        with self._lock:
            room_bytes = self.max_bytes - self.held_bytes
            fitting = fitting_records(records, room_bytes, at_least=at_least)
            self.held_bytes += payload_bytes([records.slice(0, fitting)])
            return fitting

    def release(self, page_bytes: int) -> None:
        """Release the bytes of a page that is not held any more."""
        with self._lock:
            self.held_bytes -= page_bytes


class BufferedGetter:
    """One shard's pages, read ahead up to `max_records` records. One thread may fetch pages while
    another thread takes them. Only `fetch` blocks.

    - `total_records`: the limit of records to fetch in total; None for no limit.
    - `page_bytes`: the bytes that the first fetch reserves. Later fetches reserve twice the size of
      the largest page so far, but at least as much as the first.
    - `limits`: bounds the number of records of a page by their size; None for no bound.
    - `last_page`: the newest fetched page, without its records, even if it was taken already.
    - `is_demanded`: a caller waits for the next page (`demand`).
    """

    def __init__(
        self,
        getter: ShardGetter,
        *,
        max_records: int,
        budget: ByteBudget,
        total_records: int | None = None,
        page_bytes: int = RESERVED_PAGE_BYTES,
        limits: PageLimits | None = None,
    ) -> None:
        self.getter = getter
        self.budget = budget
        self._max_records = max_records
        self._lock = threading.Lock()
        self._pages: deque[Page] = deque()
        self.buffered_records = 0
        self.buffered_bytes = 0
        self.last_page: Page | None = None
        self._left = total_records  # the number of records that may still be fetched
        self._is_closed = False
        self._page_bytes = page_bytes
        self._limits = limits
        self.is_demanded = False

    @property
    def shard_id(self) -> str:
        return self.getter.shard_id

    @property
    def gone(self) -> bool:
        """Whether Kinesis did not know the shard any more at the newest fetch."""
        return self.last_page is not None and self.last_page.gone

    @property
    def at_tip(self) -> bool:
        """Whether the newest page reached the shard's tip."""
        return self.last_page is not None and self.last_page.at_tip

    @property
    def wants_fetch(self) -> bool:
        """Whether a caller waits for a page, or the shard has more to read and the buffer has
        room.
        """
        return self.is_demanded or (not self.is_over and self.buffered_records < self._max_records)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be read: the buffer is closed, the shard has ended or is gone,
        or `total_records` is reached.
        """
        has_ended = self.last_page is not None and self.last_page.ended
        return self._is_closed or self._left == 0 or self.gone or has_ended

    def start_over(self, getter: ShardGetter) -> None:
        """Replace the getter by another one of the same shard. The buffer must be empty. The page
        of a running fetch is dropped.
        """
        with self._lock:
            self.getter = getter
            self.last_page = None

    def ready_at_s(self) -> float:
        return self.getter.ready_at_s()

    def try_reserve(self) -> int:
        """Reserve the budget of one `fetch`. Returns the reserved bytes; 0 if there is no budget
        now.
        """
        page_bytes = self._page_bytes
        return page_bytes * self.budget.try_reserve(page_bytes, force=self.is_demanded)

    def demand(self) -> None:
        """Request one more fetch, regardless of the budget, the limits and `close`, because a
        caller waits for its page. A no-op if there are pages: one may just have arrived.
        """
        with self._lock:
            self.is_demanded = not self._pages

    def fetch(self, reserved_bytes: int) -> Page:
        """Fetch one page into the buffer and return it. Blocks on the network. `reserved_bytes`:
        the result of `try_reserve`, which this call uses up.

        Raises the errors of `ShardGetter`. After a `FetchPostponedError`, call again at
        `ready_at_s()`.
        """
        page_bytes, getter = 0, self.getter
        room = self._max_records - self.buffered_records
        # At least one record: a page may be demanded when no more records may be fetched.
        left = room if self._left is None else self._left
        most = room if self._limits is None else self._limits.limit(self.shard_id)
        try:
            page = getter.fetch_unless_throttled(max(1, min(room, left, most)))
            page_bytes = _held_bytes(page)
            if self._limits is not None:
                self._limits.note(page)
        finally:
            self.budget.settle(page_bytes, reserved_bytes)
        with self._lock:
            if getter is not self.getter:  # `start_over` was called in the meantime
                self.budget.release(page_bytes)
                return page
            self.is_demanded = False
            if self._left is not None:
                self._left = max(0, self._left - page.count)
            self._page_bytes = max(self._page_bytes, min(2 * page_bytes, RESERVED_PAGE_BYTES))
            self.last_page = page.without_records()
            kept = page
            while self._pages and (both := kept.in_place_of(self._pages[-1])) is not None:
                self._pages.pop()  # an empty page has no bytes
                kept = both
            self._pages.append(kept)
            self.buffered_records += page.count
            self.buffered_bytes += page_bytes
        return page

    def take(self) -> Page | None:
        """Remove and return the oldest page; None if there is none.

        The last page shows where reading stopped (tip, end, children). So of a run of empty pages
        the buffer keeps only the newest, and one before each long gap (`Page.in_place_of`).
        """
        page = self.first()
        return page if page is None or self.drop(page) else self.take()

    def pages(self) -> list[Page]:
        """Return the pages in the buffer, the oldest first, without removing them."""
        with self._lock:
            return list(self._pages)

    def first(self) -> Page | None:
        """Return the oldest page without removing it; None if there is none."""
        with self._lock:
            return self._pages[0] if self._pages else None

    def drop(self, page: Page) -> bool:
        """Remove `page`, the oldest page. Returns False if a newer empty page has replaced it."""
        with self._lock:
            if not self._pages or self._pages[0] is not page:
                return False
            self._pages.popleft()
            page_bytes = _held_bytes(page)
            self.buffered_records -= page.count
            self.buffered_bytes -= page_bytes
        self.budget.release(page_bytes)
        return True

    def close(self) -> None:
        """Stop fetching. The pages in the buffer can still be taken."""
        self._is_closed = True

    def discard(self) -> None:
        """Stop fetching, and drop all pages."""
        self.close()
        while self.take() is not None:
            pass


def _held_bytes(page: Page) -> int:
    """Return the memory of a page, with keys and sequence numbers. An empty page counts 0, because
    it is dropped without a release.
    """
    return page.columns.nbytes if page.count else 0


class RoundRobinReader:
    """Keeps up to `max_concurrent` fetches running. A context manager, for one thread.

    `pause`: waits for at most so many seconds, or less if a getter may be ready earlier than its
    `ready_at_s`. The default is the clock's sleep.

    Leaving the context waits for the running fetches, whose pages are then in the buffers. Leaving
    it by an exception does not wait.
    """

    def __init__(
        self,
        getters: Sequence[BufferedGetter],
        *,
        max_concurrent: int,
        clock: Clock,
        new_pool: NewPool = thread_pool,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._getters = list(getters)
        self._max_concurrent = max_concurrent
        self._clock = clock
        self._pool = new_pool(max_concurrent, "kinesis-fetch")  # starts its threads when needed
        self._pause = pause or clock.sleep
        self._next = 0
        # The running fetches, each with its buffer and its reserved bytes.
        self._in_flight: dict[Future[Page], tuple[BufferedGetter, int]] = {}

    def __enter__(self) -> Self:
        return self

    def replace(self, getters: Sequence[BufferedGetter]) -> None:
        """Replace the getters. A running fetch of another getter completes, and `step` returns that
        getter.
        """
        self._getters = list(getters)
        self._next = self._next % len(self._getters) if self._getters else 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A generator that is closed early or fails must not wait for an unneeded fetch.
        is_normal = kind is None
        self._pool.shutdown(wait=is_normal, cancel_futures=True)
        if is_normal:
            self._settle_all()

    @property
    def idle(self) -> bool:
        """Whether no fetch is running and none will start until pages are taken: no shard wants a
        fetch that the budget allows.
        """
        return not self._in_flight and not any(
            getter.wants_fetch and not getter.budget.spent for getter in self._getters
        )

    def step(self, timeout_s: float, awaited: BufferedGetter | None = None) -> list[BufferedGetter]:
        """Start the fetches that are due, wait up to `timeout_s` for one to complete, and return
        the getters whose fetches completed, in the order of their starts.

        `awaited`: the getter for whose page the caller waits (`BufferedGetter.demand`). It comes
        first, because the pages that use up the budget may have to wait for its page.

        Returns at once if there is nothing to wait for. A shard whose fetch is postponed is not
        returned, and is tried again when it is ready. Raises the first error of a fetch, after the
        other fetches have completed or been cancelled.
        """
        left_s = timeout_s
        while True:
            due_in_s = self._submit_due(awaited)
            if not self._in_flight and due_in_s is None:
                return []
            # The waited time is counted here and not read from the clock: with a simulated clock
            # that stands still, this loop would never end.
            pause_s = left_s if due_in_s is None else min(left_s, due_in_s)
            completed = self._completed(pause_s)
            left_s -= pause_s
            if completed or left_s <= 0:
                return completed

    def _submit_due(self, awaited: BufferedGetter | None) -> float | None:
        """Submit the fetches that may start now, in rotation. Returns the seconds until the next
        one may start; None where that depends on a completion.
        """
        soonest_s: float | None = None
        busy = {id(getter) for getter, _ in self._in_flight.values()}
        for index in self._rotation(awaited):
            getter = self._getters[index]
            if id(getter) in busy or not getter.wants_fetch:
                continue
            if len(self._in_flight) >= self._max_concurrent:
                return None  # all slots are taken: a completion comes first
            ready_at_s = getter.ready_at_s()
            # The clock is read after ready_at_s(): a getter that is ready returns its own "now".
            if ready_at_s > self._clock.monotonic_s():
                soonest_s = ready_at_s if soonest_s is None else min(soonest_s, ready_at_s)
                continue
            self._next = index
            reserved_bytes = getter.try_reserve()
            if not reserved_bytes:
                if not getter.budget.spent and not self._in_flight:
                    # A fetch of another reader holds the budget, and nothing here will signal its
                    # completion.
                    soonest_s = self._clock.monotonic_s() + _LOOK_AGAIN_S
                break
            self._next = (index + 1) % len(self._getters)
            fetching = self._pool.submit(getter.fetch, reserved_bytes)
            self._in_flight[fetching] = getter, reserved_bytes
        return None if soonest_s is None else max(0.0, soonest_s - self._clock.monotonic_s())

    def _rotation(self, awaited: BufferedGetter | None) -> Iterator[int]:
        """The getters' indices: the awaited one's, then from the next one on. Lazily, because most
        steps need only a few of many.
        """
        indices = chain(range(self._next, len(self._getters)), range(self._next))
        if awaited is None or not awaited.is_demanded:
            return indices
        first = self._getters.index(awaited)
        return chain((first,), (index for index in indices if index != first))

    def _completed(self, timeout_s: float) -> list[BufferedGetter]:
        """Wait for a completion. Returns the getters whose fetches completed."""
        if not self._in_flight:
            self._pause(timeout_s)
            return []
        done, _ = wait(self._in_flight, timeout=timeout_s, return_when=FIRST_COMPLETED)
        completed = []
        for future in [future for future in self._in_flight if future in done]:
            (getter, _), error = self._in_flight.pop(future), future.exception()
            if error is None:
                completed.append(getter)
            elif not isinstance(error, FetchPostponedError):
                for other in self._in_flight:
                    other.cancel()
                self._settle_all()
                raise error
        return completed

    def _settle_all(self) -> None:
        """Wait until no fetch is in flight. A fetch that was cancelled before it began gives its
        reservation back.
        """
        # Not for the cancelled ones: a pool that was shut down never notifies of these, and the
        # wait would not end.
        wait([future for future in self._in_flight if not future.cancelled()])
        for future, (getter, reserved_bytes) in self._in_flight.items():
            if future.cancelled():
                getter.budget.settle(0, reserved_bytes)
        self._in_flight.clear()
