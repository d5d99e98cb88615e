"""Two collections whose memory follows what is in them, and not what ever was. The tracker and the
acker share them. And lists that fit into one request each.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

H = TypeVar("H")
V = TypeVar("V")
K = TypeVar("K")

# A dict's table below this size is not worth a rebuild.
_SMALL_TABLE = 1_024
# With fewer leftovers than this, a rebuild of a queue costs more than it saves.
_FEW_LEFTOVERS = 64


class ShrinkingDict(dict[H, V], Generic[H, V]):
    """A dict that releases its memory when entries are removed. CPython's own never shrinks its
    table: a shard that once had a million records in flight would hold some 40 MB for ever.

    Remove entries with `drop` only. It rebuilds the table when the table is four times too
    large, which costs O(1) amortised.
    """

    __slots__ = ("_peak",)

    def __init__(self) -> None:
        super().__init__()
        self._peak = _SMALL_TABLE

    def drop(self, key: H) -> V | None:
        """Remove an entry and return its value; None for a key that is not in the dict."""
        # Between two drops the dict only grows, so looking here sees every peak.
        self._peak = max(self._peak, len(self))
        value = self.pop(key, None)
        if 4 * len(self) < self._peak and self._peak > _SMALL_TABLE:
            entries = dict(self)
            self.clear()
            self.update(entries)
            self._peak = max(len(entries), _SMALL_TABLE)
        return value


class DueQueue(Generic[K]):
    """A priority queue of hashable keys, each with a time in milliseconds; those of one time come
    in their order. `put` and `discard` cost O(1) amortised, O(log n) at worst.

    A heap finds the earliest entry; a map holds those that are still wanted. Removing an entry
    early takes it out of the map only. Its heap item becomes a leftover, which is skipped when it
    reaches the top. The heap is rebuilt when leftovers are most of it.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, K]] = []
        self._due_ms: ShrinkingDict[K, int] = ShrinkingDict()

    def put(self, key: K, due_ms: int) -> None:
        """Add a key, or move it to another time."""
        if self._due_ms.get(key) == due_ms:
            return
        self._due_ms[key] = due_ms
        heappush(self._heap, (due_ms, key))
        self._drop_leftovers()

    def discard(self, key: K) -> None:
        """Remove a key; a no-op for one that is not in the queue."""
        if self._due_ms.drop(key) is not None:
            self._drop_leftovers()

    def due_ms(self, key: K) -> int | None:
        """The time of a key; None for one that is not in the queue."""
        return self._due_ms.get(key)

    def next_ms(self) -> int | None:
        """The earliest time in the queue, or None when it is empty."""
        heap = self._heap
        while heap and self._due_ms.get(heap[0][1]) != heap[0][0]:
            heappop(heap)  # a leftover
        return heap[0][0] if heap else None

    def first_due(self, now_ms: int) -> K | None:
        """The first key whose time is `now_ms` or earlier, or None. It stays in the queue."""
        due_ms = self.next_ms()
        return None if due_ms is None or due_ms > now_ms else self._heap[0][1]

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the first key whose time is `now_ms` or earlier, or None."""
        key = self.first_due(now_ms)
        if key is not None:
            self.discard(key)
        return key

    def _drop_leftovers(self) -> None:
        if len(self._heap) > 2 * len(self._due_ms) + _FEW_LEFTOVERS:
            self._heap = [(due_ms, key) for key, due_ms in self._due_ms.items()]
            heapify(self._heap)


def in_batches(
    items: Iterable[V], size_of: Callable[[V], int], *, most: int, most_bytes: int
) -> Iterator[list[V]]:
    """The items in their order, in lists of at most `most` items and `most_bytes`. An item that is
    too large by itself is alone in its list.
    """
    batch: list[V] = []
    size_bytes = 0
    for item in items:
        item_bytes = size_of(item)
        if batch and (len(batch) >= most or size_bytes + item_bytes > most_bytes):
            yield batch
            batch, size_bytes = [], 0
        batch.append(item)
        size_bytes += item_bytes
    if batch:
        yield batch
