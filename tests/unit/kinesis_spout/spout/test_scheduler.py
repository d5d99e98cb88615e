"""The order of shards, the limits of pending records, and the counts. Random histories are in
tests/property/test_tracked_shard.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.spout.scheduler import Limits, SpoutScheduler
from kinesis_spout.spout.tracked_shard import RETRIES_IN_A_ROW
from state.position import Position
from state.retry_policy import RetryPolicy
from state.shard_state import ShardState, UnresolvedRecord
from state.tracker.transitions import Effect
from tests.support.spout.spout_pages import (
    FakePages,
    page_of,
    payload,
    run_of,
    tracked_from,
)
from tests.support.state.tracker import POLICY, seq

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page
    from kinesis_spout.spout.scheduler import CarefulDelivery, SpoutDelivery

A, B, C = "shardId-0a", "shardId-0b", "shardId-0c"
DUE_MS = 100
NO_RETRY = RetryPolicy(retry_limit=0)


def new_spout(
    *,
    max_pending: int = 100,
    max_unresolved: int = 100,
    timeout_ms: int | None = None,
    max_held_bytes: int = 1 << 20,
) -> SpoutScheduler:
    limits = Limits(max_pending, max_unresolved, timeout_ms, max_held_bytes)
    return SpoutScheduler(limits)


def assign(
    spout: SpoutScheduler,
    shard_id: str,
    *pages: Page,
    waiting: tuple[int, ...] = (),
    policy: RetryPolicy = POLICY,
) -> FakePages:
    """Assign a shard, restored with records queued for a retry that is due at 0."""
    source = FakePages(*pages)
    unresolved = tuple(
        UnresolvedRecord(first=seq(n), last=seq(n), attempts=1, due_ms=0) for n in waiting
    )
    state = ShardState(
        shard_id=shard_id,
        read_position=Position.after(seq(max(waiting, default=0))),
        unresolved=unresolved,
    )
    spout.add(tracked_from(source, state=state, policy=policy))
    return source


def emit(spout: SpoutScheduler, count: int = 1, *, now_ms: int = 0) -> list[SpoutDelivery]:
    deliveries = (spout.emit(now_ms) for _ in range(count))
    return [delivery for delivery in deliveries if delivery is not None]


def named(deliveries: list[SpoutDelivery]) -> list[tuple[str, int]]:
    return [(one.shard_id[-1], one.sequence.sequence) for one in deliveries]


def fail(spout: SpoutScheduler, delivery: SpoutDelivery, *, now_ms: int = 0) -> Effect:
    return spout.fail(delivery, now_ms, reason="no")


# order --------------------------------------------------------------------------------------------
def test_shards_take_turns_record_by_record() -> None:
    spout = new_spout()
    assign(spout, A, page_of([1, 2, 3]))
    assign(spout, B, page_of([1]))
    assign(spout, C, page_of([1, 2]))
    assert named(emit(spout, 9)) == [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("c", 2), ("a", 3)]


def test_an_idle_shard_delays_no_other_and_rejoins_the_rotation_with_its_next_page() -> None:
    spout = new_spout()
    assign(spout, A, page_of([1, 2, 3]))
    idle = assign(spout, B)
    assert named(emit(spout)) == [("a", 1)]
    idle.add(page_of([5]))
    spout.reschedule(spout.assigned[B])
    assert named(emit(spout, 3)) == [("a", 2), ("b", 5), ("a", 3)]


def test_retries_go_out_at_max_pending() -> None:
    spout = new_spout(max_pending=2)
    assign(spout, A, page_of([1, 2, 3]))
    assign(spout, B, page_of([1, 2]))
    first, _ = emit(spout, 9)
    fail(spout, first)
    assert named(emit(spout, 9)) == [("a", 2)]
    assert spout.at_limit
    assert not spout.may_emit(DUE_MS - 1)
    assert spout.may_emit(DUE_MS)
    assert named(emit(spout, 9, now_ms=DUE_MS)) == [("a", 1)]
    assert spout.pending == 3


def test_retries_in_a_row_are_counted_since_the_last_new_record() -> None:
    """Retries before that do not count: due retries go first."""
    spout = new_spout()
    assign(spout, A, page_of(range(1, 9)))
    for delivery in emit(spout, RETRIES_IN_A_ROW - 1):
        fail(spout, delivery)
    for delivery in emit(spout, RETRIES_IN_A_ROW - 1, now_ms=DUE_MS):
        spout.ack(delivery, DUE_MS)
    new = emit(spout, 2, now_ms=DUE_MS)
    for delivery in new:
        fail(spout, delivery, now_ms=DUE_MS)
    again = emit(spout, 3, now_ms=2 * DUE_MS)
    assert named(new) == named(again)[:2]
    assert [delivery.attempt for delivery in again] == [2, 2, 1]


def test_a_retry_of_an_earlier_page_goes_before_new_records_of_the_next() -> None:
    """Although the new records were granted before it failed."""
    spout = new_spout()
    assign(spout, A, page_of([1, 2]), page_of([3, 4, 5]))
    first, *_ = emit(spout, 3)
    fail(spout, first)
    assert named(emit(spout, 2, now_ms=DUE_MS)) == [("a", 1), ("a", 4)]


def test_a_shard_at_max_unresolved_emits_no_new_records_and_the_others_do() -> None:
    spout = new_spout(max_unresolved=2)
    assign(spout, A, page_of([1, 2, 3]))
    assign(spout, B, page_of([1]))
    deliveries = emit(spout, 9)
    assert named(deliveries) == [("a", 1), ("b", 1), ("a", 2)]
    spout.ack(deliveries[0], 0)
    assert named(emit(spout, 9)) == [("a", 3)]


def test_a_late_ack_of_a_record_not_in_memory_makes_room_for_the_next_record() -> None:
    """No other event puts the shard back into the rotation."""
    spout = new_spout(max_unresolved=1)
    assign(spout, A, page_of([8]), waiting=(3,), policy=NO_RETRY)
    assert emit(spout) == []
    assert spout.ack_unheld(spout.assigned[A], seq(3), 1)
    assert named(emit(spout)) == [("a", 8)]
    assert spout.assigned[A].is_dirty


def test_a_late_ack_by_id_of_a_record_that_was_just_delivered_again_counts_once() -> None:
    """Its payload was not in memory when it was looked up. It was read again and delivered before
    the ack.
    """
    spout = new_spout()
    assign(spout, A, waiting=(3,))
    shard = spout.assigned[A].shard
    (wanted,) = shard.held.wanted(0)
    shard.restock(wanted, run_of(3), 0)
    spout.reschedule(spout.assigned[A])
    assert named(emit(spout)) == [("a", 3)]
    assert spout.ack_unheld(spout.assigned[A], seq(3), 1)
    assert (spout.pending, shard.pending, shard.unresolved) == (0, 0, 0)


@pytest.mark.parametrize("policy", [POLICY, NO_RETRY], ids=["queued", "exhausted"])
def test_an_ack_of_the_first_record_of_a_range_does_not_ack_the_others(policy: RetryPolicy) -> None:
    """The id names one record. The others that were collapsed into its range were not processed."""
    state = ShardState(
        shard_id=A,
        read_position=Position.after(seq(9)),
        unresolved=(UnresolvedRecord(first=seq(3), last=seq(6), count=4, attempts=1, due_ms=0),),
    )
    spout = new_spout()
    assigned = spout.add(tracked_from(FakePages(), state=state, policy=policy))
    assert not spout.ack_unheld(assigned, seq(3), 1)
    held = assigned.shard.held
    for record in [*held.wanted(0), *held.wanted_letters()]:
        assigned.shard.restock(record, run_of(3, 4, 5, 6), 0)
    if policy is NO_RETRY:
        assert assigned.shard.find(seq(3), 1) is None
    assert assigned.shard.unresolved == 4


# counts -------------------------------------------------------------------------------------------
def test_every_delivery_and_every_outcome_is_counted_once() -> None:
    spout = new_spout(timeout_ms=50)
    assign(spout, A, page_of([1, 2, 3]))
    first, second, third = emit(spout, 3)
    assert spout.ack(first, 10)
    assert not spout.ack(first, 10)
    assert fail(spout, second) is Effect.QUEUED
    assert fail(spout, second) is Effect.IGNORED
    assert len(spout.expire(50)) == 1
    (again,) = emit(spout, 3, now_ms=DUE_MS)
    assert spout.ack(third, DUE_MS)
    counts = spout.assigned[A].counts
    assert named([again]) == [("a", 2)]
    assert (counts.emitted, counts.retried, counts.acked, counts.failed, counts.timed_out) == (
        4,
        1,
        2,
        2,
        1,
    )
    assert spout.pending == 1
    assert spout.next_deadline_ms() == DUE_MS + 50


def test_outcomes_of_a_released_shard_are_ignored_and_its_counts_are_kept() -> None:
    spout = new_spout()
    assign(spout, A, page_of([1, 2]))
    first, second = emit(spout, 2)
    spout.remove(A)
    assert not spout.ack(first, 0)
    assert fail(spout, second) is Effect.UNKNOWN
    assert (spout.pending, spout.released_counts.emitted, spout.released_counts.acked) == (0, 2, 0)


def test_a_letter_does_not_count_after_a_late_ack() -> None:
    spout = new_spout()
    assign(spout, A, page_of([1]), policy=NO_RETRY)
    (delivery,) = emit(spout)
    assert fail(spout, delivery) is Effect.EXHAUSTED
    ((assigned, letter),) = spout.letters()
    assert spout.ack(delivery, 0)
    assert not spout.dead_lettered(assigned, letter.record.first, 1)
    assert (assigned.counts.acked, assigned.counts.dead_lettered, assigned.shard.unresolved) == (
        1,
        0,
        0,
    )


def test_failures_are_counted_for_the_breaker_until_the_first_ack() -> None:
    spout = new_spout()
    assign(spout, A, page_of([1, 2]))
    first, second = emit(spout, 2)
    fail(spout, first)
    assert spout.failures_before_first_ack == 1
    spout.ack(second, 0)
    assert spout.failures_before_first_ack == 0


# room for retries ---------------------------------------------------------------------------------
def test_failed_records_keep_their_payloads_while_there_is_room() -> None:
    spout = new_spout(max_held_bytes=len(payload(1)))
    assign(spout, A, page_of([1, 2, 3]))
    deliveries = emit(spout, 3)
    for delivery in deliveries:
        fail(spout, delivery)
    assert spout.assigned[A].shard.held.held_bytes == len(payload(1))


def test_records_that_time_out_keep_their_payloads_while_there_is_room() -> None:
    """A consumer that hangs would otherwise fill the memory with payloads."""
    spout = new_spout(timeout_ms=50, max_held_bytes=len(payload(1)))
    assign(spout, A, page_of([1, 2, 3]))
    emit(spout, 3)
    expired = spout.expire(50)
    assert named(expired) == [("a", 1), ("a", 2), ("a", 3)]
    assert spout.assigned[A].shard.held.held_bytes <= len(payload(1))
    assert named(emit(spout, 3, now_ms=50 + DUE_MS)) == [("a", 1)]
    assert [one.first for one in spout.assigned[A].shard.held.wanted(50 + DUE_MS)] == [
        seq(2),
        seq(3),
    ]


# careful delivery ---------------------------------------------------------------------------------
def waiting_one(spout: SpoutScheduler) -> CarefulDelivery:
    """The careful delivery that waits for a commit."""
    assert spout.careful is not None
    return spout.careful


def test_careful_delivery_ends_after_its_records_once_the_last_outcome_is_stored() -> None:
    """A commit is asked for once each."""
    spout = new_spout()
    assign(spout, A, page_of([1, 2]))
    assign(spout, B, page_of([3, 4]))
    spout.begin_careful(2)
    for number in (1, 3):
        assert emit(spout) == []
        careful = waiting_one(spout)
        assert (careful.asks_for_commit(), careful.asks_for_commit()) == (True, False)
        assert not spout.may_emit(0)
        careful.on_commit(with_outcome=False)
        assert spout.may_emit(0)
        (delivery,) = emit(spout, 3)
        assert delivery.sequence.sequence == number
        assert spout.ack(delivery, 0)
    assert emit(spout, 3) == []
    assert not spout.may_emit(0)
    careful = waiting_one(spout)
    assert (careful.asks_for_commit(), careful.asks_for_commit()) == (True, False)
    careful.on_commit(with_outcome=True)
    assert spout.may_emit(0)
    assert named(emit(spout, 3)) == [("a", 2), ("b", 4)]
    assert not spout.is_careful


def test_a_careful_delivery_of_a_released_shard_does_not_hold_up_the_others() -> None:
    spout = new_spout()
    assign(spout, A, page_of([1]))
    assign(spout, B, page_of([2]))
    spout.begin_careful(5)
    assert emit(spout) == []
    spout.remove(A)
    assert spout.pending == 0
    assert emit(spout) == []
    assert waiting_one(spout).delivery.shard_id == B
