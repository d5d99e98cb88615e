"""Reading ahead of one shard, bounded by records per shard and by bytes of all shards that share a
budget.

The size of a page is known only after the fetch. So a fetch reserves what the page may have, and
settles it to the real size: the size of the largest page that the service returns, or, where the
budget is small, twice the size of the shard's largest page so far.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from kinesis_spout.service.shard_info import MAX_BYTES_PER_CALL, MAX_RECORDS_PER_CALL

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page
    from kinesis_spout.reading.shard_getter import ShardGetter

RESERVED_PAGE_BYTES = MAX_BYTES_PER_CALL
PAGE_BYTES = 4 * 1024 * 1024
FIRST_LIMIT = 2_500  # records of a shard of which nothing was read yet


class PageLimits:
    """How many records to ask each shard for, so that its pages have about `page_bytes` of memory.

    A page of ten thousand large records takes several times its size while it is decoded, and is
    decoded no faster than one of four megabytes. It says how large a shard's records are for as
    long as a process lives. Threads may share it: what they note of a shard is a hint.
    """

    def __init__(self, page_bytes: int = PAGE_BYTES) -> None:
        self._page_bytes = page_bytes
        self._record_bytes: dict[str, float] = {}

    def limit(self, shard_id: str) -> int:
        """The most records that the next page of a shard is to have."""
        record_bytes = self._record_bytes.get(shard_id)
        if record_bytes is None:
            return FIRST_LIMIT
        return max(1, min(MAX_RECORDS_PER_CALL, int(self._page_bytes / record_bytes)))

    def reserve(self, shard_id: str, *, at_least: int) -> int:
        """Bytes to reserve for the first page of a shard: `at_least`, or one record, if more."""
        record_bytes = int(self._record_bytes.get(shard_id, 0))
        return max(at_least, min(record_bytes, RESERVED_PAGE_BYTES))

    def note(self, page: Page) -> None:
        """Take the sizes of the newest page of a shard."""
        if page.count:
            self._record_bytes[page.shard_id] = max(1.0, _held_bytes(page) / page.count)


class ByteBudget:
    """How many bytes the buffers of a task may hold together. Safe from any thread; never blocks.

    While less than `max_bytes` is held, one reservation is always granted, even if it does not fit:
    a budget that is smaller than a page makes slow progress instead of none. So at most `max_bytes`
    and one page are held.
    """

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 1:
            raise ValueError(f"a budget of {max_bytes} bytes holds nothing; use one or more")
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._reserved_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of pages that were fetched and not taken yet."""
        with self._lock:
            return self._held_bytes

    @property
    def spent(self) -> bool:
        """Whether no reservation will be granted until pages are taken."""
        with self._lock:
            return self._held_bytes >= self.max_bytes

    def try_reserve(self, page_bytes: int = RESERVED_PAGE_BYTES, *, force: bool = False) -> bool:
        """Reserve the bytes of one page. False when the budget does not allow it, unless `force`d
        to.
        """
        with self._lock:
            wanted = self._held_bytes + self._reserved_bytes + page_bytes
            granted = (
                force
                or wanted <= self.max_bytes
                or (self._reserved_bytes == 0 and self._held_bytes < self.max_bytes)
            )
            self._reserved_bytes += granted * page_bytes
            return granted

    def settle(self, page_bytes: int, reserved_bytes: int = RESERVED_PAGE_BYTES) -> None:
        """Replace a reservation by the bytes of the page that was fetched; 0 when there was
        none.
        """
        with self._lock:
            self._reserved_bytes -= reserved_bytes
            self._held_bytes += page_bytes

    def release(self, page_bytes: int) -> None:
        """Give the bytes of a page back that is not held any more."""
        with self._lock:
            self._held_bytes -= page_bytes


class BufferedGetter:
    """One shard's pages, read ahead up to `max_records`. One thread may fetch while another one
    takes.

    - `total_records`: fetch at most so many records in all; None for no limit.
    - `page_bytes`: what the first fetch reserves. Later ones reserve twice the size of the largest
      page so far, and at least as much. None: all reserve the largest size that there is.
    - `limits`: bounds the records of a page by the size of records; None for no bound.
    """

    def __init__(
        self,
        getter: ShardGetter,
        *,
        max_records: int,
        budget: ByteBudget,
        total_records: int | None = None,
        page_bytes: int | None = None,
        limits: PageLimits | None = None,
    ) -> None:
        if max_records < 1:
            raise ValueError(
                f"a buffer of {max_records} records for shard {getter.shard_id} holds nothing; use "
                "one or more"
            )
        self.getter = getter
        self.budget = budget
        self._max_records = max_records
        self._lock = threading.Lock()
        self._pages: deque[Page] = deque()
        self._records = 0
        self._bytes = 0
        self._last_page: Page | None = None
        self._left = total_records
        self._page_bytes = RESERVED_PAGE_BYTES if page_bytes is None else page_bytes
        self._limits = limits
        self._closed = False
        self._is_demanded = False
        self._reserved_bytes = 0

    @property
    def shard_id(self) -> str:
        return self.getter.shard_id

    @property
    def buffered_records(self) -> int:
        return self._records

    @property
    def buffered_bytes(self) -> int:
        return self._bytes

    @property
    def last_page(self) -> Page | None:
        """The newest page that was fetched, even if it was taken since, without its records."""
        return self._last_page

    @property
    def ended(self) -> bool:
        """Whether the shard's end was fetched. The buffer may still hold pages."""
        return self._last_page is not None and self._last_page.ended

    @property
    def gone(self) -> bool:
        """Whether the newest page says that the service does not know the shard any more."""
        return self._last_page is not None and self._last_page.gone

    @property
    def at_tip(self) -> bool:
        """Whether the newest page reached the tip."""
        return self._last_page is not None and self._last_page.at_tip

    @property
    def wants_fetch(self) -> bool:
        """Whether the shard has more to read and the buffer has room, or somebody waits for it."""
        return self._is_demanded or (not self.is_over and self._records < self._max_records)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be read: it is closed, ended or gone, or was read as far as it
        may be.
        """
        return self._closed or self.ended or self.gone or self._left == 0

    @property
    def is_demanded(self) -> bool:
        """Whether somebody waits for its next page (`demand`)."""
        return self._is_demanded

    def start_over(self, getter: ShardGetter) -> None:
        """Fetch from this getter of the same shard from now on. The buffer must be empty. The page
        of a fetch in flight is dropped.
        """
        with self._lock:
            self.getter = getter
            self._last_page = None

    def ready_at_s(self) -> float:
        return self.getter.ready_at_s()

    def try_reserve(self) -> bool:
        """Reserve the budget of one `fetch`, which uses it up. False when there is none now."""
        if not self._reserved_bytes and self.budget.try_reserve(
            self._page_bytes, force=self._is_demanded
        ):
            self._reserved_bytes = self._page_bytes
        return self._reserved_bytes > 0

    def unreserve(self) -> None:
        """Give back a reservation that no fetch will use."""
        if self._reserved_bytes:
            self.budget.settle(0, self._reserved_bytes)
            self._reserved_bytes = 0

    def demand(self) -> None:
        """Want one more fetch, whatever the budget and the limits say, and though it was closed:
        somebody waits for its page. Nobody waits while there are pages: one may just have come.
        """
        with self._lock:
            self._is_demanded = not self._pages

    def fetch(self) -> Page:
        """Fetch one page into the buffer and return it. Blocks on the network. Needs a granted
        `try_reserve`.

        Raises `KinesisError`. After a retryable `ThrottledError`, call again at `ready_at_s()`.
        """
        if not self._reserved_bytes:
            raise RuntimeError(
                f"a fetch from shard {self.shard_id} without a reservation; call try_reserve() "
                "first"
            )
        page_bytes, getter = 0, self.getter
        limit = self._max_records - self._records
        if self._left:  # else it is a demand
            limit = min(limit, self._left)
        if self._limits is not None:
            limit = min(limit, self._limits.limit(self.shard_id))
        try:
            page = getter.fetch_unless_throttled(max(1, limit))
            page_bytes = _held_bytes(page)
            if self._limits is not None:
                self._limits.note(page)
        finally:
            reserved_bytes, self._reserved_bytes = self._reserved_bytes, 0
            self.budget.settle(page_bytes, reserved_bytes)
        with self._lock:
            if getter is not self.getter:  # the reading has started over meanwhile
                self.budget.release(page_bytes)
                return page
            self._is_demanded = False
            if self._left is not None:
                self._left = max(0, self._left - page.count)
            self._page_bytes = max(self._page_bytes, min(2 * page_bytes, RESERVED_PAGE_BYTES))
            self._last_page = page.without_records()
            if self._pages and not self._pages[-1].count:
                self._pages.pop()  # it held no bytes
            self._pages.append(page)
            self._records += page.count
            self._bytes += page_bytes
        return page

    def take(self) -> Page | None:
        """Remove and return the oldest page; None when there is none. Never blocks.

        The last page taken says where reading stopped (tip, end, children), so the buffer keeps
        empty pages too. Of a run of empty pages it keeps only the newest, which says all that the
        others did.
        """
        page = self.first()
        return page if page is None or self.drop(page) else self.take()

    def pages(self) -> list[Page]:
        """The pages in the buffer, oldest first. They stay in it. Never blocks."""
        with self._lock:
            return list(self._pages)

    def first(self) -> Page | None:
        """The oldest page, which stays in the buffer; None when there is none. Never blocks."""
        with self._lock:
            return self._pages[0] if self._pages else None

    def drop(self, page: Page) -> bool:
        """Remove `page`, the oldest. False when it is not there any more: an empty page is replaced
        by a newer empty one.
        """
        with self._lock:
            if not self._pages or self._pages[0] is not page:
                return False
            self._pages.popleft()
            page_bytes = _held_bytes(page)
            self._records -= page.count
            self._bytes -= page_bytes
        self.budget.release(page_bytes)
        return True

    def close(self) -> None:
        """Want no further fetch. The pages in the buffer can still be taken."""
        self._closed = True


def _held_bytes(page: Page) -> int:
    """Memory of a page, with keys and sequence numbers. An empty page counts 0: it is dropped
    without a release.
    """
    return page.columns.nbytes if page.count else 0
