"""A queue by time, then by key, from which anything can be taken out early.

A heap finds what is due; a map holds what is still wanted. What is taken out early only leaves the
map; its place in the heap is recognised later and skipped. The heap is rebuilt when most of it is
such leftovers, so memory and time per operation follow the number of entries, not the number there
ever were.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from state.collections.shrinking_dict import ShrinkingDict
from state.sequence_number import SequenceNumber

K = TypeVar("K", int, SequenceNumber)
"""What is queued. Equal times come in the order of their keys."""

# Below this size leftovers are not worth a rebuild.
_SMALL = 64


class DueQueue(Generic[K]):
    """Keys with a time each. Putting and discarding cost O(1) amortised, O(log n) at worst."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, K]] = []
        self._due_ms: ShrinkingDict[K, int] = ShrinkingDict()

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def put(self, key: K, due_ms: int) -> None:
        """Add, or move to another time."""
        if self._due_ms.get(key) == due_ms:
            return
        self._due_ms[key] = due_ms
        heappush(self._heap, (due_ms, key))
        self._shed()

    def discard(self, key: K) -> None:
        """Take out; a no-op for what is not in."""
        if self._due_ms.drop(key) is not None:
            self._shed()

    def next_ms(self) -> int | None:
        """The earliest time in the queue, or None when it is empty."""
        self._skip_leftovers()
        return self._heap[0][0] if self._heap else None

    def first_due(self, now_ms: int) -> K | None:
        """The first whose time is `now_ms` or earlier, or None. It stays in."""
        due_ms = self.next_ms()
        return None if due_ms is None or due_ms > now_ms else self._heap[0][1]

    def pop_due(self, now_ms: int) -> K | None:
        """Take out the first whose time is `now_ms` or earlier, or None."""
        key = self.first_due(now_ms)
        if key is not None:
            heappop(self._heap)
            self._due_ms.drop(key)
            self._shed()
        return key

    def _skip_leftovers(self) -> None:
        heap = self._heap
        while heap and self._due_ms.get(heap[0][1]) != heap[0][0]:
            heappop(heap)

    def _shed(self) -> None:
        if len(self._heap) > 2 * len(self._due_ms) + _SMALL:
            self._heap = [(due_ms, key) for key, due_ms in self._due_ms.items()]
            heapify(self._heap)
