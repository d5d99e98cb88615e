"""Outcomes beyond plain ack and fail: failures that do not count, given due times, rejections, and
spans that fail in part.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from state.errors import IllegalTrackerEventError
from state.position import Position
from state.retry_policy import RetryPolicy
from state.shard_state import UnresolvedRecord
from state.tracker.inflight_record_tracker import UNANSWERED
from state.tracker.transitions import Effect, NodeState
from tests.support.state.tracker import (
    POLICY,
    SHARD,
    check_structure,
    fresh_state,
    make_tracker,
    nodes,
    restart,
    seq,
    seqs,
)

PENDING, QUEUED, EXHAUSTED, ACKED = (
    NodeState.PENDING,
    NodeState.QUEUED,
    NodeState.EXHAUSTED,
    NodeState.ACKED,
)


def waiting(
    first: int, last: int | None = None, *, count: int = 1, attempts: int = 1, due_ms: int = 7
) -> UnresolvedRecord:
    return UnresolvedRecord(
        first=seq(first),
        last=seq(first if last is None else last),
        count=count,
        attempts=attempts,
        due_ms=due_ms,
    )


def test_a_failure_that_does_not_count_leaves_attempts_and_age_as_they_were() -> None:
    """However often it fails so, an outage never exhausts a record. The failure's reason and time
    are kept for people to read.
    """
    tracker = make_tracker(1, policy=replace_policy(retry_limit=0, max_age_ms=10))
    for now_ms in range(0, 5_000, 1_000):
        assert (
            tracker.fail(seq(1), 1, now_ms, counts=False, reason="the sink is down")
            is Effect.QUEUED
        )
        emission = tracker.take_retry(now_ms + 100)
        assert emission is not None
        assert emission.attempt == 1
    tracker.fail(seq(1), 1, 6_000, counts=False, reason="the sink is down")
    assert tracker.snapshot().unresolved == (
        UnresolvedRecord(
            first=seq(1),
            last=seq(1),
            attempts=0,
            due_ms=6_100,
            last_failure_ms=6_000,
            reason="the sink is down",
        ),
    )
    tracker.retry(seq(1))
    assert tracker.fail(seq(1), 1, 7_000) is Effect.EXHAUSTED


def test_a_failure_that_does_not_count_keeps_what_counted_before() -> None:
    """The attempts and the first failure that the record caused itself."""
    tracker = make_tracker(1)
    tracker.fail(seq(1), 1, 50)
    tracker.retry(seq(1))
    tracker.fail(seq(1), 2, 900, counts=False)
    record = tracker.snapshot().unresolved[0]
    assert (record.attempts, record.first_failure_ms, record.last_failure_ms) == (1, 50, 900)


def test_a_blocked_record_that_fails_itself_is_blocked_no_more() -> None:
    """Before that it waited for an earlier record of its key. An outage does not change that."""
    blocked = replace(waiting(1, attempts=0, due_ms=0), blocked=True, key="k")
    state = replace(fresh_state(), read_position=Position.after(seq(1)), unresolved=(blocked,))
    for counts in (False, True):
        tracker = make_tracker(state=state)
        tracker.retry(seq(1))
        tracker.fail(seq(1), 1, 0, counts=counts)
        record = tracker.snapshot().unresolved[0]
        assert (record.blocked, record.key) == (not counts, "k")


def test_a_late_ack_of_a_delivery_whose_failure_did_not_count_resolves_the_record() -> None:
    """It was processed, so it leaves the queue. A second failure of that delivery is ignored."""
    tracker = make_tracker(1, 2)
    for number in (1, 2):
        tracker.fail(seq(number), 1, 0, counts=False)
    assert tracker.fail(seq(1), 1, 10) is Effect.IGNORED
    assert tracker.fail(seq(1), 1, 10, counts=False) is Effect.IGNORED
    assert tracker.ack(seq(1), 2) is Effect.UNKNOWN
    assert tracker.ack(seq(1), 1) is Effect.ACKED
    assert tracker.checkpoint == seq(1)
    assert tracker.next_retry_ms == 100
    assert nodes(tracker) == [(2, QUEUED)]


def test_a_retry_may_be_due_at_a_given_time() -> None:
    """It replaces the policy's delay, and retries are ordered by it."""
    tracker = make_tracker(1, 2)
    tracker.fail(seq(1), 1, 0, due_ms=60_000)
    tracker.fail(seq(2), 1, 0)
    assert tracker.next_retry_ms == 100
    assert tracker.retry(seq(2)).attempt == 2
    assert tracker.next_retry_ms == 60_000
    assert tracker.take_retry(59_999) is None
    assert tracker.snapshot().unresolved[0].due_ms == 60_000


def test_an_exhausted_record_is_not_retried_at_a_given_time() -> None:
    """Whether there is a retry is the policy's decision; only its time is given."""
    tracker = make_tracker(1, policy=replace_policy(retry_limit=0))
    assert tracker.fail(seq(1), 1, 0, due_ms=60_000) is Effect.EXHAUSTED
    assert tracker.next_retry_ms is None


def test_the_deadline_of_a_pending_emission_may_be_moved() -> None:
    """To a later time, an earlier time, or none; only for the attempt that is pending."""
    tracker = make_tracker()
    tracker.emit(seq(1), deadline_ms=100)
    assert tracker.extend(seq(1), 1, 500)
    assert tracker.expire(499) == []
    assert tracker.extend(seq(1), 1, None)
    assert tracker.next_deadline_ms is None
    assert tracker.extend(seq(1), 1, 300)
    assert [emission.sequence for emission in tracker.expire(300)] == seqs(1)
    assert not tracker.extend(seq(1), 1, 900), "it has failed"
    tracker.retry(seq(1))
    assert not tracker.extend(seq(1), 1, 900), "that was the attempt before"
    assert not tracker.extend(seq(9), 1, 900), "it was never emitted"
    assert tracker.next_deadline_ms is None
    assert tracker.extend(seq(1), 2, 900)
    check_structure(tracker)


def test_a_rejected_record_is_not_tried_again_after_a_restart() -> None:
    """The process died before the record was dead-lettered. The dead letter is still due, whatever
    the retry limit is by then.
    """
    tracker = make_tracker(1, 2)
    tracker.fail(seq(1), 1, 5, reason="negative total", retry=False)
    tracker.fail(seq(2), 1, 5)
    successor = restart(restart(tracker))
    assert nodes(successor) == [(1, EXHAUSTED), (2, QUEUED)]
    assert successor.exhausted == tracker.exhausted
    assert successor.exhausted[0].rejected
    emission = successor.take_retry(10**9)
    assert emission is not None
    assert emission.sequence == seq(2)
    assert successor.dead_lettered(seq(1)) is Effect.ACKED
    assert successor.checkpoint == seq(1)


def test_a_record_that_ran_out_of_retries_is_not_rejected() -> None:
    """A restart with a higher limit tries it again."""
    tracker = make_tracker(1, policy=replace_policy(retry_limit=0))
    tracker.fail(seq(1), 1, 0)
    assert nodes(restart(tracker, replace_policy(retry_limit=1))) == [(1, QUEUED)]


def test_a_span_is_acked_except_for_the_records_that_are_queued_as_given() -> None:
    """Records and ranges, with the attempts and due times that the caller decided."""
    tracker = make_tracker(1)
    tracker.emit_span(seq(10), seq(99), 50)
    left = [
        waiting(20, attempts=9, due_ms=70),
        waiting(30, 39, count=8, attempts=0, due_ms=60),
        waiting(99),
    ]
    assert tracker.ack_except(seq(10), 1, left) is Effect.ACKED
    assert nodes(tracker) == [(1, PENDING), (10, ACKED), (20, QUEUED), (30, QUEUED), (99, QUEUED)]
    assert (tracker.count(QUEUED), tracker.count(ACKED), tracker.unresolved_count) == (10, 40, 11)
    assert tracker.next_retry_ms == 7
    assert tracker.snapshot().unresolved[1:] == tuple(left)
    emission = tracker.retry(seq(30))
    assert (emission.sequence, emission.last, emission.count, emission.attempt) == (
        seq(30),
        seq(39),
        8,
        1,
    )
    check_structure(tracker)


def test_all_of_a_span_may_be_queued_again() -> None:
    """Then no record is acked. A rejected record waits for its dead letter."""
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(12), 3)
    rejected = replace(waiting(12), rejected=True)
    assert tracker.ack_except(seq(10), 1, [waiting(10, 11, count=2), rejected]) is Effect.QUEUED
    assert (tracker.checkpoint, tracker.count(ACKED)) == (None, 0)
    assert nodes(tracker) == [(10, QUEUED), (12, EXHAUSTED)]
    assert tracker.exhausted == (rejected,)
    check_structure(tracker)


def test_a_retry_is_queued_again_as_given() -> None:
    """A single record, and a range of which some records are resolved."""
    state = replace(
        fresh_state(),
        read_position=Position.after(seq(30)),
        unresolved=(waiting(5), waiting(10, 20, count=4, attempts=2)),
    )
    tracker = make_tracker(state=state)
    tracker.retry(seq(5))
    assert tracker.ack_except(seq(5), 2, [waiting(5, attempts=2, due_ms=90)]) is Effect.QUEUED
    tracker.retry(seq(10))
    assert tracker.ack_except(seq(10), 3, [waiting(13, attempts=3)]) is Effect.ACKED
    assert tracker.snapshot().unresolved == (
        waiting(5, attempts=2, due_ms=90),
        waiting(13, attempts=3),
    )
    assert nodes(tracker) == [(5, QUEUED), (10, ACKED), (13, QUEUED), (30, ACKED)]
    check_structure(tracker)


def test_an_outcome_without_unresolved_records_is_an_ack() -> None:
    """Also when it comes late."""
    tracker = make_tracker(1)
    tracker.fail(seq(1), 1, 0)
    assert tracker.ack_except(seq(1), 1, []) is Effect.ACKED
    assert tracker.checkpoint == seq(1)


def test_a_late_outcome_of_a_part_of_a_span_changes_nothing() -> None:
    """The span has failed since, so all of it is delivered again. An ack now would ack its failed
    records as well.
    """
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 50)
    tracker.fail(seq(10), 1, 0)
    assert tracker.ack_span(seq(10), 1, split_out=seqs(20)) is Effect.IGNORED
    assert tracker.ack_except(seq(10), 1, [waiting(20)]) is Effect.IGNORED
    tracker.retry(seq(10))
    assert tracker.ack_span(seq(10), 1, split_out=seqs(20)) is Effect.IGNORED
    assert tracker.ack_except(seq(10), 3, [waiting(20)]) is Effect.UNKNOWN
    assert tracker.ack_except(seq(11), 1, [waiting(20)]) is Effect.UNKNOWN
    assert nodes(tracker) == [(10, PENDING)]
    assert tracker.unresolved_count == 50


@pytest.mark.parametrize(
    "left",
    [
        [waiting(9)],
        [waiting(100)],
        [waiting(90, 100, count=2)],
        [waiting(30), waiting(20)],
        [waiting(20, 40, count=3), waiting(40)],
        [waiting(20, 30, count=1)],
        [waiting(20, count=2)],
        [waiting(30, 20, count=2)],
        [waiting(20, 30, count=0)],
        [waiting(10, 30, count=50)],
        [waiting(11, 98, count=49)],
    ],
)
def test_records_that_cannot_be_in_a_span_are_refused(left: list[UnresolvedRecord]) -> None:
    """The error names the shard, the numbers and the state; nothing changes."""
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 50)
    before = tracker.snapshot()
    with pytest.raises(
        IllegalTrackerEventError,
        match=f"shard {SHARD}: .* out of the 50 records from 10 to 99 .pending.",
    ):
        tracker.ack_except(seq(10), 1, left)
    assert tracker.snapshot() == before
    check_structure(tracker)


def replace_policy(*, retry_limit: int, max_age_ms: int | None = None) -> RetryPolicy:
    """The tests' policy with another limit and age."""
    return RetryPolicy(
        retry_limit=retry_limit,
        first_delay_ms=POLICY.first_delay_ms,
        max_delay_ms=POLICY.max_delay_ms,
        jitter=0,
        max_age_ms=max_age_ms,
    )


# announcements ------------------------------------------------------------------------------------
def test_an_announced_delivery_counts_when_its_process_ends_without_an_answer() -> None:
    """It is stored as failed and due at once, and in the end it is exhausted. The records before
    and after it have no attempt.
    """
    tracker = make_tracker(1, 2, 3, policy=replace_policy(retry_limit=1))
    tracker.announce(seq(2), 50)
    tracker = restart(tracker, replace_policy(retry_limit=1))
    assert [(one.first, one.attempts) for one in tracker.snapshot().unresolved] == [
        (seq(1), 0),
        (seq(2), 1),
    ]
    record = tracker.snapshot().unresolved[1]
    assert (record.due_ms, record.first_failure_ms, record.reason) == (50, 50, UNANSWERED)
    tracker.retry(seq(2))
    tracker.announce(seq(2), 90)
    tracker = restart(tracker, replace_policy(retry_limit=1))
    assert [(one.first, one.attempts) for one in tracker.exhausted] == [(seq(2), 2)]
    assert tracker.exhausted[0].first_failure_ms == 50


def test_the_outcome_of_an_announced_delivery_is_the_only_one() -> None:
    """A failure counts once. An ack resolves the record. An orderly end counts nothing."""
    tracker = make_tracker(1, 2, 3)
    for number in (1, 2, 3):
        tracker.announce(seq(number), 50)
    tracker.fail(seq(1), 1, 60, reason="no")
    tracker.ack(seq(2), 1)
    tracker.withdraw(seq(3))
    state = tracker.snapshot()
    assert [(one.first, one.attempts, one.reason) for one in state.unresolved] == [
        (seq(1), 1, "no")
    ]
    assert state.read_position == Position.after(seq(2))


def test_only_a_pending_delivery_is_announced() -> None:
    tracker = make_tracker(1)
    tracker.fail(seq(1), 1, 0)
    for number in (1, 2):
        with pytest.raises(IllegalTrackerEventError):
            tracker.announce(seq(number), 0)
