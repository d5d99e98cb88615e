from __future__ import annotations

import pytest
from msgspec.structs import replace

from state.errors import IllegalTrackerEventError
from state.position import SHARD_END, Position
from state.retry_policy import RetryPolicy
from state.shard_state import Lifecycle, UnresolvedRecord
from state.tracker.transitions import Effect, NodeState
from tests.support.state.tracker import (
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


def test_a_span_of_many_records_costs_one_node() -> None:
    """Its ack moves the checkpoint over all of them."""
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 50)
    assert (tracker.node_count, tracker.unresolved_count) == (1, 50)
    assert tracker.ack(seq(10), 1) is Effect.ACKED
    assert (tracker.checkpoint, tracker.node_count, tracker.count(ACKED)) == (seq(99), 0, 50)


def test_failures_in_a_span_cost_a_node_each_and_the_rest_is_acked() -> None:
    """The checkpoint is the greatest known number below the first failure: s - 1 is not a sequence
    number.
    """
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 50)
    assert tracker.ack_span(seq(10), 1, split_out=seqs(20, 30)) is Effect.ACKED
    assert nodes(tracker) == [(20, PENDING), (30, PENDING), (99, ACKED)]
    assert tracker.checkpoint == seq(10)
    tracker.fail(seq(30), 1, 0)
    tracker.ack(seq(20), 1)
    assert tracker.checkpoint == seq(20), "between 20 and 30 no number is known"
    tracker.take_retry(1_000)
    tracker.ack(seq(30), 2)
    assert (tracker.checkpoint, tracker.node_count) == (seq(99), 0)


@pytest.mark.parametrize(
    ("split_out", "left"),
    [
        ([10], [(1, PENDING), (10, PENDING), (99, ACKED)]),
        ([99], [(1, PENDING), (10, ACKED), (99, PENDING)]),
        ([10, 99], [(1, PENDING), (10, PENDING), (99, PENDING)]),
        ([50], [(1, PENDING), (10, ACKED), (50, PENDING), (99, ACKED)]),
    ],
)
def test_the_ends_of_a_span_may_fail(
    split_out: list[int], left: list[tuple[int, NodeState]]
) -> None:
    """After an unresolved record, the known ends of the acked rest are kept."""
    tracker = make_tracker(1)
    tracker.emit_span(seq(10), seq(99), 3)
    tracker.ack_span(seq(10), 1, split_out=seqs(*split_out))
    assert nodes(tracker) == left
    assert tracker.checkpoint is None
    check_structure(tracker)


def test_the_acked_ends_of_a_span_join_the_acked_runs_beside_it() -> None:
    """No two neighbours are acked, on either side."""
    tracker = make_tracker(1, 2)
    tracker.emit_span(seq(10), seq(99), 5)
    tracker.emit(seq(100))
    tracker.ack(seq(2), 1)
    tracker.ack(seq(100), 1)
    tracker.ack_span(seq(10), 1, split_out=seqs(50))
    assert nodes(tracker) == [(1, PENDING), (10, ACKED), (50, PENDING), (100, ACKED)]
    check_structure(tracker)


def test_all_records_of_a_span_may_fail() -> None:
    """Then no record is acked."""
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(12), 3)
    tracker.ack_span(seq(10), 1, split_out=seqs(10, 11, 12))
    assert tracker.unresolved_count == 3
    assert (tracker.checkpoint, tracker.count(ACKED)) == (None, 0)


@pytest.mark.parametrize(
    "split_out",
    [[9], [100], [30, 20], [20, 20], [11, 12, 13], [10, 11, 12, 99]],
    ids=[
        "before it",
        "behind it",
        "descending",
        "twice",
        "more than there are besides the ends",
        "more than there are",
    ],
)
def test_records_that_cannot_be_in_a_span_are_not_split_out_of_it(split_out: list[int]) -> None:
    """The error names the shard, the numbers and the state; nothing changes."""
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 3)
    before = tracker.snapshot()
    with pytest.raises(
        IllegalTrackerEventError,
        match=f"shard {SHARD}: .* out of the 3 records from 10 to 99 .pending.",
    ):
        tracker.ack_span(seq(10), 1, split_out=seqs(*split_out))
    assert tracker.snapshot() == before
    check_structure(tracker)


@pytest.mark.parametrize(("first", "last", "count"), [(9, 5, 2), (5, 9, 0), (5, 9, 1), (5, 5, 2)])
def test_a_span_that_contradicts_itself_is_refused(first: int, last: int, count: int) -> None:
    """Descending numbers, no records, one record with two numbers, two records with one number."""
    tracker = make_tracker()
    with pytest.raises(IllegalTrackerEventError, match="is not a span"):
        tracker.emit_span(seq(first), seq(last), count)
    assert tracker.node_count == 0


def test_an_outcome_of_an_unknown_span_is_reported() -> None:
    """It changes nothing."""
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 3)
    assert tracker.ack_span(seq(11), 1, split_out=seqs(50)) is Effect.UNKNOWN
    assert tracker.ack_span(seq(10), 2, split_out=seqs(50)) is Effect.UNKNOWN
    assert nodes(tracker) == [(10, PENDING)]


def test_a_span_may_fail_as_a_whole() -> None:
    """It is retried as a range. Records that are split out of the retry keep its attempts."""
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 3)
    assert tracker.fail(seq(10), 1, 0) is Effect.QUEUED
    again = tracker.take_retry(1_000)
    assert again is not None
    assert (again.sequence, again.last, again.count, again.attempt) == (seq(10), seq(99), 3, 2)
    tracker.ack_span(seq(10), 2, split_out=seqs(50))
    assert tracker.fail(seq(50), 1, 0) is Effect.IGNORED
    tracker.fail(seq(50), 2, 2_000)
    emission = tracker.take_retry(10_000)
    assert emission is not None
    assert (emission.count, emission.attempt) == (1, 3)


def test_a_restart_delivers_exactly_the_unresolved_records_again() -> None:
    """Failed ones with their attempts, pending ones as they were. Reading goes on after all of
    them.
    """
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 50)
    tracker.ack_span(seq(10), 1, split_out=seqs(20, 30, 40))
    tracker.fail(seq(20), 1, 500, reason="fault")
    tracker.ack(seq(30), 1)
    state = tracker.snapshot()
    assert state.unresolved == (
        UnresolvedRecord(
            first=seq(20),
            last=seq(20),
            attempts=1,
            due_ms=600,
            first_failure_ms=500,
            last_failure_ms=500,
            reason="fault",
        ),
        UnresolvedRecord(first=seq(40), last=seq(40), attempts=0, due_ms=0),
    )
    assert (state.checkpoint, state.read_position) == (seq(10), Position.after(seq(99)))
    successor = restart(tracker)
    assert nodes(successor) == [(20, QUEUED), (40, QUEUED), (99, ACKED)]
    for _ in range(2):
        emission = successor.take_retry(10_000)
        assert emission is not None
        successor.ack(emission.sequence, emission.attempt)
    assert successor.checkpoint == seq(99), "everything before the read position is acked"
    check_structure(successor)


def test_trailing_pending_records_are_read_again_instead_of_being_stored() -> None:
    """A million records in flight are not a million entries in the store."""
    tracker = make_tracker(1, 2, 3, 4, 5)
    tracker.fail(seq(1), 1, 0)
    tracker.ack(seq(3), 1)
    state = tracker.snapshot()
    assert [record.first for record in state.unresolved] == seqs(1, 2)
    assert state.read_position == Position.after(seq(3))
    assert tracker.read_position == Position.after(seq(5))


def test_trailing_pending_records_are_read_again_from_the_first_of_them() -> None:
    """If no acked record is known before it."""
    tracker = make_tracker(1, 2, 3)
    tracker.fail(seq(1), 1, 0)
    state = tracker.snapshot()
    assert [record.first for record in state.unresolved] == seqs(1)
    assert state.read_position == Position.at(seq(2))
    successor = make_tracker(state=state)
    with pytest.raises(IllegalTrackerEventError, match="emission of 1 "):
        successor.emit(seq(1))
    successor.emit(seq(2))
    with pytest.raises(IllegalTrackerEventError, match="emission of 2 "):
        successor.emit(seq(2))


def test_trailing_records_that_were_split_out_are_stored_instead_of_being_read_again() -> None:
    """Acked records lie between them in the shard, and a read would deliver those again."""
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 50)
    tracker.ack_span(seq(10), 1, split_out=seqs(50, 99))
    state = tracker.snapshot()
    assert [record.first for record in state.unresolved] == seqs(50, 99)
    assert state.read_position == Position.after(seq(99))


def test_a_trailing_retry_in_flight_is_stored_instead_of_being_read_again() -> None:
    """A read would deliver it as a first attempt."""
    tracker = make_tracker(1, 2)
    tracker.fail(seq(2), 1, 0)
    tracker.take_retry(1_000)
    state = tracker.snapshot()
    assert [(record.first, record.attempts) for record in state.unresolved] == [
        (seq(1), 0),
        (seq(2), 1),
    ]
    assert state.read_position == Position.after(seq(2))


def test_a_restored_retry_in_flight_does_not_pull_the_read_position_back() -> None:
    """Acked records may lie between it and its neighbour in the list."""
    tracker = make_tracker(1, 2, 3)
    tracker.ack(seq(2), 1)
    state = replace(tracker.snapshot(), read_position=Position.at(seq(3)))
    successor = make_tracker(state=state)
    successor.take_retry(0)
    successor.emit(seq(3))
    again = successor.snapshot()
    assert [record.first for record in again.unresolved] == seqs(1)
    assert again.read_position == Position.at(seq(3))


def test_a_restored_retry_that_was_acked_does_not_pull_the_read_position_back_either() -> None:
    """The acked records between it and its neighbour would be delivered again, as if they were
    new.
    """
    tracker = make_tracker(1, 2, 3, 4)
    tracker.ack(seq(3), 1)
    tracker.ack(seq(4), 1)
    state = replace(tracker.snapshot(), read_position=Position.at(seq(5)))
    successor = make_tracker(state=state)
    first, second = (successor.take_retry(0) for _ in range(2))
    assert first is not None
    assert second is not None
    successor.ack(second.sequence, second.attempt)
    successor.emit(seq(5))
    again = successor.snapshot()
    assert [record.first for record in again.unresolved] == seqs(1)
    assert again.read_position == Position.at(seq(5))


def test_a_snapshot_of_a_restored_tracker_is_the_state_that_it_was_restored_from() -> None:
    """Restoring loses nothing and invents nothing."""
    tracker = make_tracker(1, 2, 3)
    tracker.fail(seq(2), 1, 0, reason="fault")
    tracker.ack(seq(3), 1)
    state = replace(
        tracker.snapshot(),
        parents=("shardId-9",),
        settled_plan="4-a",
        verified_until_ms=5,
        at_tip=True,
    )
    assert make_tracker(state=state).snapshot() == state
    assert make_tracker(state=fresh_state()).snapshot() == fresh_state()


def test_a_shard_is_finished_when_its_end_was_read_and_nothing_is_unresolved() -> None:
    """Until then it is drained; or still active, if the records at its end have had no outcome."""
    tracker = make_tracker(1, 2)
    tracker.reach_end()
    assert (tracker.snapshot().lifecycle, tracker.snapshot().read_position) == (
        Lifecycle.ACTIVE,
        Position.at(seq(1)),
    )
    tracker.fail(seq(1), 1, 0)
    tracker.ack(seq(2), 1)
    assert (tracker.snapshot().lifecycle, tracker.snapshot().read_position) == (
        Lifecycle.DRAINED,
        SHARD_END,
    )
    successor = restart(tracker)
    assert successor.read_position == SHARD_END
    successor.take_retry(1_000)
    successor.ack(seq(1), 2)
    assert successor.snapshot().lifecycle is Lifecycle.FINISHED
    assert successor.snapshot().checkpoint_text == "SHARD_END"


def test_a_restored_range_is_split_into_the_records_that_are_found_in_it() -> None:
    """Its count is of the failed records only; the ones between them are delivered again too."""
    unresolved = UnresolvedRecord(first=seq(10), last=seq(20), count=2, attempts=1, due_ms=7)
    state = replace(
        fresh_state(),
        checkpoint=seq(5),
        read_position=Position.after(seq(30)),
        unresolved=(unresolved,),
    )
    tracker = make_tracker(state=state)
    emission = tracker.take_retry(7)
    assert emission is not None
    assert (emission.sequence, emission.last, emission.attempt) == (seq(10), seq(20), 2)
    assert tracker.ack_span(seq(10), 2, split_out=seqs(10, 13, 20)) is Effect.ACKED
    assert nodes(tracker) == [(10, PENDING), (13, PENDING), (20, PENDING), (30, ACKED)]
    assert tracker.count(PENDING) == 3
    assert tracker.fail(seq(13), 2, 0) is Effect.QUEUED
    check_structure(tracker)


def test_a_record_whose_failures_never_counted_does_not_age_until_one_counts() -> None:
    """A Spark job that reads the stream under the same name has stored it so, in an outage."""
    stored = UnresolvedRecord(
        first=seq(1), last=seq(1), attempts=0, due_ms=0, first_failure_ms=0, last_failure_ms=0
    )
    state = replace(fresh_state(), read_position=Position.after(seq(1)), unresolved=(stored,))
    tracker = make_tracker(
        state=state, policy=RetryPolicy(first_delay_ms=100, jitter=0, max_age_ms=500)
    )
    assert tracker.take_retry(9_000) is not None
    assert tracker.fail(seq(1), 1, 9_000) is Effect.QUEUED
    assert tracker.snapshot().unresolved[0].first_failure_ms == 9_000


def test_a_restored_record_that_has_had_all_of_its_attempts_is_exhausted() -> None:
    """The process died before the record was dead-lettered."""
    tracker = make_tracker(1)
    tracker.fail(seq(1), 1, 0)
    for attempt in (2, 3, 4):
        tracker.take_retry(10**6 * attempt)
        tracker.fail(seq(1), attempt, 10**6 * attempt)
    successor = restart(tracker)
    assert [record.attempts for record in successor.exhausted] == [4]
    assert successor.exhausted == tracker.exhausted
    assert successor.take_retry(10**9) is None
    assert nodes(successor) == [(1, EXHAUSTED)]
