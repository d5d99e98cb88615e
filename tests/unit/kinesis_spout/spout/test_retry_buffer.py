"""The retry buffer: which payloads are here, which are wanted, and how many bytes they have."""

from __future__ import annotations

from kinesis_spout.spout.retry_buffer import LOOK_AGAIN_MS, RetryBuffer
from state.position import Position
from state.shard_state import ShardState, UnresolvedRecord
from state.tracker.transitions import NodeState
from tests.support.spout.spout_pages import payload, run_of
from tests.support.state.tracker import SHARD, make_tracker, seq


def restored(*numbers: int, last: int | None = None) -> RetryBuffer:
    """The buffer of a shard that was restored with these records queued, due at 0; with `last`, as
    one range.
    """
    waiting = tuple(
        UnresolvedRecord(
            first=seq(number),
            last=seq(last or number),
            count=(last or number) - number + 1,
            attempts=1,
            due_ms=0,
        )
        for number in numbers
    )
    state = ShardState(shard_id=SHARD, read_position=Position.after(seq(99)), unresolved=waiting)
    return RetryBuffer(make_tracker(state=state))


def test_a_due_record_without_a_payload_is_wanted_once_and_again_later() -> None:
    records = restored(1, 2)
    assert [one.first for one in records.wanted(0)] == [seq(1), seq(2)]
    assert records.wanted(LOOK_AGAIN_MS - 1) == []
    assert [one.first for one in records.wanted(LOOK_AGAIN_MS)] == [seq(1), seq(2)]


def test_a_restocked_record_is_due_at_once_and_not_wanted_any_more() -> None:
    records = restored(1)
    (wanted,) = records.wanted(0)
    records.restock(wanted, run_of(1), 10)
    assert records.due_retry(10) == seq(1)
    assert records.wanted(10_000) == []
    assert records.held_bytes == len(payload(1))


def test_a_record_that_was_postponed_while_it_was_being_read_is_not_read_again() -> None:
    """Reading took so long that the retry was due and postponed again before its payload came."""
    records = restored(1)
    (wanted,) = records.wanted(0)
    assert records.due_retry(LOOK_AGAIN_MS) is None
    records.restock(wanted, run_of(1), LOOK_AGAIN_MS)
    assert records.wanted(LOOK_AGAIN_MS) == []
    assert records.due_retry(LOOK_AGAIN_MS) == seq(1)


def test_a_payload_that_comes_twice_counts_once() -> None:
    records = restored(1)
    (wanted,) = records.wanted(0)
    records.restock(wanted, run_of(1), 0)
    records.restock(wanted, None, 0)
    records.hold(seq(1), run_of(1))
    assert records.held_bytes == len(payload(1))
    records.drop(seq(1))
    assert (records.held_bytes, seq(1) in records, records.oldest_arrival_ms()) == (0, False, None)


def test_a_record_that_was_acked_while_it_was_being_read_is_not_kept() -> None:
    records = restored(1, 2)
    wanted = records.wanted(0)
    records._tracker.ack(seq(1), 1)
    for record in wanted:
        records.restock(record, run_of(record.first.sequence), 0)
    assert seq(1) not in records
    assert records.due_retry(0) == seq(2)


def test_a_restocked_range_becomes_records_with_the_attempts_of_the_range() -> None:
    records = restored(3, last=6)
    (wanted,) = records.wanted(0)
    records.restock(wanted, run_of(3, 6), 0)
    assert records._tracker.count(NodeState.QUEUED) == 2
    assert records._tracker.queued(seq(6)) == UnresolvedRecord(
        first=seq(6), last=seq(6), attempts=1, due_ms=0
    )


def test_the_oldest_arrival_is_that_of_the_oldest_record_here() -> None:
    records = restored(5, 7)
    for record in records.wanted(0):
        records.restock(record, run_of(record.first.sequence), 0)
    assert records.oldest_arrival_ms() == 5
