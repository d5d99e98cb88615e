"""The known faults of the ancestor (the Kinesis Storm spout) and of KafkaSpout's PartitionManager:
one test each, showing that the tracker does not have the fault.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from state.errors import IllegalTrackerEventError, StoredDataError
from state.position import Position
from state.retry_policy import RetryPolicy
from state.tracker.transitions import Effect, NodeState
from tests.support.state.tracker import (
    check_structure,
    fresh_state,
    make_tracker,
    nodes,
    restart,
    seq,
)


def test_a_late_ack_after_a_failure_leaves_no_ghost_in_the_retry_queue() -> None:
    """The ancestor kept it queued, found no record for it, and the shard stalled."""
    tracker = make_tracker(1, 2)
    tracker.fail(seq(1), 1, 0)
    assert tracker.ack(seq(1), 1) is Effect.ACKED
    assert tracker.next_retry_ms is None
    assert tracker.take_retry(10**9) is None
    assert tracker.checkpoint == seq(1)
    check_structure(tracker)


def test_an_acked_record_is_not_emitted_again() -> None:
    """Neither as a retry nor as if it were new, whether its node is kept or gone."""
    tracker = make_tracker(1, 2, 3)
    tracker.fail(seq(3), 1, 0)
    for number in (3, 1):
        tracker.ack(seq(number), 1)
        with pytest.raises(IllegalTrackerEventError):
            tracker.retry(seq(number))
        with pytest.raises(IllegalTrackerEventError):
            tracker.emit(seq(number))
    assert nodes(tracker) == [(2, NodeState.PENDING), (3, NodeState.ACKED)]


def test_a_double_failure_costs_one_retry() -> None:
    """The second failure of an emission is ignored, also after the record was emitted again."""
    tracker = make_tracker(1)
    assert tracker.fail(seq(1), 1, 0) is Effect.QUEUED
    assert tracker.fail(seq(1), 1, 1) is Effect.IGNORED
    emission = tracker.take_retry(1_000)
    assert emission is not None
    assert emission.attempt == 2
    assert tracker.take_retry(10**9) is None
    assert tracker.fail(seq(1), 1, 2_000) is Effect.IGNORED, "a late failure of the first attempt"
    assert nodes(tracker) == [(1, NodeState.PENDING)]


def test_an_ack_twice_has_no_second_effect() -> None:
    """Whether the node of the first is kept or gone."""
    tracker = make_tracker(1, 2)
    for number in (2, 1):
        assert tracker.ack(seq(number), 1) is Effect.ACKED
        before = tracker.snapshot(), nodes(tracker)
        assert tracker.ack(seq(number), 1) is Effect.UNKNOWN
        assert tracker.fail(seq(number), 1, 0) is Effect.UNKNOWN
        assert (tracker.snapshot(), nodes(tracker)) == before


def test_a_late_ack_of_an_earlier_attempt_counts_while_the_retry_is_pending() -> None:
    """The record was processed, so a later failure of the retry has no effect."""
    tracker = make_tracker(1)
    tracker.fail(seq(1), 1, 0)
    tracker.take_retry(1_000)
    assert tracker.ack(seq(1), 1) is Effect.ACKED
    assert tracker.fail(seq(1), 2, 1_000) is Effect.UNKNOWN
    assert tracker.checkpoint == seq(1)


def test_a_late_ack_of_an_exhausted_record_spares_it_the_dead_letter() -> None:
    """The record counts as acked once, whether the ack or the dead letter comes first."""
    tracker = make_tracker(1)
    tracker.fail(seq(1), 1, 0, retry=False)
    assert tracker.ack(seq(1), 1) is Effect.ACKED
    assert tracker.exhausted == ()
    assert tracker.dead_lettered(seq(1)) is Effect.UNKNOWN


def test_a_retry_limit_of_zero_exhausts_at_the_first_failure_and_lets_the_checkpoint_go_on() -> (
    None
):
    """With a limit of 0 the ancestor tracked no record, and its checkpoint never moved."""
    tracker = make_tracker(1, 2, policy=RetryPolicy(retry_limit=0))
    assert tracker.fail(seq(1), 1, 0) is Effect.EXHAUSTED
    tracker.ack(seq(2), 1)
    tracker.dead_lettered(seq(1))
    assert tracker.checkpoint == seq(2)


def test_each_retry_waits_longer_than_the_one_before() -> None:
    """The ancestor retried without a delay."""
    tracker = make_tracker(1)
    waits = []
    for attempt in range(1, 4):
        tracker.fail(seq(1), attempt, 0)
        waits.append(tracker.next_retry_ms)
        tracker.take_retry(10**6)
    assert waits == [100, 200, 400]


def test_attempts_outlive_a_restart() -> None:
    """The ancestor counted from zero after a restart, so a poison record came back for ever."""
    tracker = make_tracker(1, 2)
    tracker.fail(seq(1), 1, 0)
    tracker.take_retry(1_000)
    tracker.fail(seq(1), 2, 1_000, reason="fault")
    successor = restart(tracker)
    emission = successor.take_retry(10**6)
    assert emission is not None
    assert emission.attempt == 3


def test_an_emission_without_an_outcome_keeps_its_attempt_over_a_restart() -> None:
    """The process died during the attempt, which is not a failure of the record."""
    tracker = make_tracker(1, 2)
    tracker.ack(seq(2), 1)
    tracker.fail(seq(1), 1, 0)
    first_life = tracker.take_retry(1_000)
    second_life = restart(tracker).take_retry(1_000)
    assert first_life == second_life
    assert second_life is not None
    assert second_life.attempt == 2


def test_nothing_is_acked_before_its_emission_is_registered() -> None:
    """Registration returns the emission's id, so an ack cannot come before it."""
    tracker = make_tracker()
    assert tracker.ack(seq(1), 1) is Effect.UNKNOWN
    emission = tracker.emit(seq(1))
    assert tracker.ack(emission.sequence, emission.attempt) is Effect.ACKED
    assert tracker.checkpoint == seq(1)


def test_failed_records_are_kept_however_far_behind_they_are() -> None:
    """PartitionManager dropped failed records that were too far behind the newest record."""
    tracker = make_tracker(1)
    tracker.fail(seq(1), 1, 0)
    for number in range(2, 5_000):
        tracker.emit(seq(number))
        tracker.ack(seq(number), 1)
    emission = tracker.take_retry(10**6)
    assert emission is not None
    assert emission.sequence == seq(1)


def test_new_records_are_emitted_while_old_failures_wait() -> None:
    """PartitionManager emitted no new record while failed ones waited."""
    tracker = make_tracker(1)
    tracker.fail(seq(1), 1, 0)
    assert tracker.emit(seq(2)).attempt == 1


def test_a_stored_checkpoint_that_passes_an_unresolved_record_is_refused() -> None:
    """A state that a stale owner has corrupted is an error, not a place to read on from."""
    tracker = make_tracker(1, 2, 3)
    tracker.fail(seq(1), 1, 0)
    with pytest.raises(StoredDataError, match="overlaps what is at or before 2"):
        make_tracker(state=replace(tracker.snapshot(), checkpoint=seq(2)))


def test_a_stored_read_position_before_the_checkpoint_is_refused() -> None:
    """Reading from there would ack records again, and move the checkpoint back."""
    with pytest.raises(StoredDataError, match="read position AFTER:5 lies before 9"):
        make_tracker(
            state=replace(fresh_state(), checkpoint=seq(9), read_position=Position.after(seq(5)))
        )
    with pytest.raises(StoredDataError, match="read position AT:9 lies before 9"):
        make_tracker(
            state=replace(fresh_state(), checkpoint=seq(9), read_position=Position.at(seq(9)))
        )


def test_a_tracker_emits_only_after_its_stored_checkpoint() -> None:
    """Also when the position that it had read to has expired, and it starts at the oldest record
    left.
    """
    tracker = make_tracker(state=replace(fresh_state(), checkpoint=seq(9)))
    with pytest.raises(IllegalTrackerEventError, match="not after 9"):
        tracker.emit(seq(9))
    tracker.emit(seq(10))
    tracker.ack(seq(10), 1)
    assert tracker.checkpoint == seq(10)
