"""A shard's read and write limits (Developer Guide, "Quotas and limits").

    GetRecords        5 calls and 2 MiB a second; after a page of 10 MiB, calls fail for 5 s
    GetShardIterator  5 calls a second
    writes            1,000 records and 1 MiB a second

One rule gives both read limits: a page counts for as many seconds as it holds 2 MiB, at least for
one. The shape of the service's windows is not documented. These windows slide. A clock that is set
back empties them.
"""

from __future__ import annotations

from collections import deque

READ_CALLS_PER_S = 5
READ_BYTES_PER_S = 2 * 1024 * 1024
WRITE_RECORDS_PER_S = 1_000
WRITE_BYTES_PER_S = 1024 * 1024


class ReadLimits:
    """The recent reads of one shard. Refused calls do not count. Times in ms since 1970."""

    def __init__(self) -> None:
        self._calls_ms: deque[int] = deque()
        self._iterators_ms: deque[int] = deque()
        self._pages: list[tuple[int, int, int]] = []  # from, until, bytes

    def allows_call(self, now_ms: int) -> bool:
        """Whether GetRecords may be called now. If so, the call is counted."""
        self._pages = [page for page in self._pages if page[0] <= now_ms < page[1]]
        if sum(size_bytes for _, _, size_bytes in self._pages) >= READ_BYTES_PER_S:
            return False
        return counted(self._calls_ms, now_ms, READ_CALLS_PER_S)

    def allows_iterator(self, now_ms: int) -> bool:
        """Whether GetShardIterator may be called now. If so, the call is counted."""
        return counted(self._iterators_ms, now_ms, READ_CALLS_PER_S)

    def page_was_read(self, now_ms: int, size_bytes: int) -> None:
        counts_ms = max(1_000, size_bytes * 1_000 // READ_BYTES_PER_S)
        self._pages.append((now_ms, now_ms + counts_ms, size_bytes))


class WriteLimits:
    """The writes to one shard within the last second. Refused ones do not count."""

    def __init__(self) -> None:
        self._puts: deque[tuple[int, int]] = deque()
        self._sum_bytes = 0

    def allows(self, now_ms: int, size_bytes: int) -> bool:
        """Whether a record of this size may be put now. If so, it is counted."""
        while self._puts and not now_ms - 1_000 < self._puts[0][0] <= now_ms:
            self._sum_bytes -= self._puts.popleft()[1]
        full = (
            len(self._puts) >= WRITE_RECORDS_PER_S
            or self._sum_bytes + size_bytes > WRITE_BYTES_PER_S
        )
        # One record alone always passes: a stream may allow records of more than 1 MiB.
        if full and self._puts:
            return False
        self._puts.append((now_ms, size_bytes))
        self._sum_bytes += size_bytes
        return True


def counted(calls_ms: deque[int], now_ms: int, most: int) -> bool:
    """Whether there were fewer than `most` calls in the last second. If so, this one is added."""
    # Also calls of a later time, from before the clock was set back.
    while calls_ms and not now_ms - 1_000 < calls_ms[0] <= now_ms:
        calls_ms.popleft()
    if len(calls_ms) >= most:
        return False
    calls_ms.append(now_ms)
    return True
