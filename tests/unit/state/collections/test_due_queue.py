from __future__ import annotations

from typing import TYPE_CHECKING

from state.collections.due_queue import DueQueue
from tests.support.state.tracker import seq, seqs

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber


def test_due_keys_come_by_time_then_by_key() -> None:
    """No key comes before its time."""
    queue: DueQueue[SequenceNumber] = DueQueue()
    for number, due_ms in ((3, 10), (1, 20), (2, 10)):
        queue.put(seq(number), due_ms)
    assert queue.next_ms() == 10
    assert queue.pop_due(9) is None
    assert [queue.pop_due(20) for _ in range(4)] == [*seqs(2, 3, 1), None]
    assert (queue.next_ms(), len(queue)) == (None, 0)


def test_a_key_that_was_discarded_or_moved_does_not_come_at_its_old_time() -> None:
    """Also when it was moved back to the time that it had first."""
    queue: DueQueue[SequenceNumber] = DueQueue()
    for number in (1, 2, 3):
        queue.put(seq(number), 10)
    queue.discard(seq(1))
    queue.discard(seq(9))
    queue.put(seq(2), 30)
    queue.put(seq(3), 40)
    queue.put(seq(3), 10)
    assert (seq(1) in queue, seq(2) in queue) == (False, True)
    assert [queue.pop_due(20), queue.pop_due(20), queue.next_ms()] == [seq(3), None, 30]
    assert [queue.pop_due(99), queue.pop_due(99)] == [seq(2), None]


def test_memory_follows_the_keys_in_the_queue() -> None:
    """Not the keys that ever were: deadlines of acked records would pile up otherwise."""
    queue: DueQueue[SequenceNumber] = DueQueue()
    for number in range(10_000):
        queue.put(seq(number), number)
        queue.discard(seq(number))
    # The heap is private, but it is where memory would be lost.
    assert len(queue._heap) < 100
