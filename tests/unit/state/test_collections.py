"""Memory follows what is in a collection, not what ever was. In which order keys come is held by
the property of the tracker.
"""

from __future__ import annotations

import sys

from state.collections import DueQueue, ShrinkingDict
from state.sequence_number import SequenceNumber


def test_deadlines_of_acked_records_do_not_pile_up() -> None:
    queue: DueQueue[SequenceNumber] = DueQueue()
    for number in range(10_000):
        queue.put(SequenceNumber(number), number)
        queue.discard(SequenceNumber(number))
    # The heap is private, but it is where memory would be lost.
    assert len(queue._heap) < 100


def test_one_stuck_record_does_not_hold_the_memory_of_a_hundred_thousand() -> None:
    """Entries keep their order: records are dead-lettered in the order in which they were
    exhausted.
    """
    entries: ShrinkingDict[int, int] = ShrinkingDict()
    for key in range(100_000, 0, -1):
        entries[key] = -key
    full_bytes = sys.getsizeof(entries)
    for key in range(5, 99_996):
        assert entries.drop(key) == -key
    assert entries.drop(5) is None
    assert list(entries) == [100_000, 99_999, 99_998, 99_997, 99_996, 4, 3, 2, 1]
    assert sys.getsizeof(entries) < full_bytes / 20
