from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from state.errors import IllegalTrackerEventError
from state.position import Position
from state.retry_policy import RetryPolicy
from state.tracker.transitions import (
    CELLS,
    SEEN_AS,
    TRANSITIONS,
    Effect,
    Event,
    Neighbour,
    NodeState,
)
from tests.support.state.tracker import SHARD, check_structure, make_tracker, nodes, restart, seq

if TYPE_CHECKING:
    from state.tracker.inflight_record_tracker import InflightRecordTracker

PENDING, QUEUED, EXHAUSTED, ACKED = (
    NodeState.PENDING,
    NodeState.QUEUED,
    NodeState.EXHAUSTED,
    NodeState.ACKED,
)
NONE, UNRESOLVED, WAS_ACKED = Neighbour.NONE, Neighbour.UNRESOLVED, Neighbour.ACKED

# (before, after): records emitted, records acked first, record acked then; nodes left, checkpoint.
CELL_CASES = {
    (NONE, WAS_ACKED): ([1, 2], [2], 1, [], 2),
    (NONE, UNRESOLVED): ([1, 2], [], 1, [2], 1),
    (NONE, NONE): ([1], [], 1, [], 1),
    (UNRESOLVED, WAS_ACKED): ([1, 2, 3], [3], 2, [1, 3], None),
    (UNRESOLVED, UNRESOLVED): ([1, 2, 3], [], 2, [1, 2, 3], None),
    (UNRESOLVED, NONE): ([1, 2], [], 2, [1, 2], None),
    (WAS_ACKED, WAS_ACKED): ([1, 2, 3, 4], [2, 4], 3, [1, 4], None),
    (WAS_ACKED, UNRESOLVED): ([1, 2, 3, 4], [2], 3, [1, 3, 4], None),
    (WAS_ACKED, NONE): ([1, 2, 3], [2], 3, [1, 3], None),
}


def bring_to(tracker: InflightRecordTracker, number: int, state: NodeState) -> None:
    """Bring a pending record into another unresolved state."""
    if state is not PENDING:
        tracker.fail(seq(number), 1, 0, retry=state is QUEUED)


@pytest.mark.parametrize("unresolved", [PENDING, QUEUED, EXHAUSTED], ids=lambda state: state.value)
@pytest.mark.parametrize("cell", CELL_CASES, ids=lambda cell: f"{cell[0].value}-{cell[1].value}")
def test_an_ack_does_what_its_cell_says(
    cell: tuple[Neighbour, Neighbour], unresolved: NodeState
) -> None:
    """Nodes and checkpoint after an ack, for each of the nine pairs of neighbours and each
    unresolved state.
    """
    emitted, acked_first, acked_then, left, checkpoint = CELL_CASES[cell]
    tracker = make_tracker(*emitted)
    for number in acked_first:
        tracker.ack(seq(number), 1)
    for number in set(emitted) - {*acked_first, acked_then}:
        bring_to(tracker, number, unresolved)
    node = tracker._nodes._by_first[seq(acked_then)]
    assert (SEEN_AS[node.before.state], SEEN_AS[node.after.state]) == cell, (
        "the case is not in its cell"
    )

    assert tracker.ack(seq(acked_then), 1) is Effect.ACKED

    assert [number for number, _ in nodes(tracker)] == left
    assert tracker.checkpoint == (None if checkpoint is None else seq(checkpoint))
    check_structure(tracker)


def test_there_is_a_cell_for_every_pair_of_neighbours_and_a_case_for_every_cell() -> None:
    """No ack can meet neighbours that the table does not know."""
    assert set(CELLS) == set(product(Neighbour, Neighbour)) == set(CELL_CASES)


def in_state(state: NodeState) -> InflightRecordTracker:
    """A tracker whose record 5 is in `state`, after the unresolved record 1."""
    tracker = make_tracker(1, 5)
    if state is ACKED:
        tracker.ack(seq(5), 1)
    else:
        bring_to(tracker, 5, state)
    return tracker


@pytest.mark.parametrize(
    "state", [PENDING, QUEUED, EXHAUSTED, ACKED], ids=lambda state: state.value
)
@pytest.mark.parametrize("event", Event, ids=lambda event: event.value)
def test_a_node_moves_as_the_table_says_or_raises_and_changes_nothing(
    event: Event, state: NodeState
) -> None:
    """Every pair of event and state, also those that the table does not have."""
    tracker = in_state(state)
    node = tracker._nodes._by_first[seq(5)]
    if (event, state) in TRANSITIONS:
        tracker._move(node, event)
        assert node.state is TRANSITIONS[event, state]
        return
    before = nodes(tracker), tracker.snapshot()
    with pytest.raises(
        IllegalTrackerEventError, match=f"{SHARD}: {event.value} of 5 .*{state.value}"
    ):
        tracker._move(node, event)
    assert (nodes(tracker), tracker.snapshot()) == before
    check_structure(tracker)


def test_the_checkpoint_stays_until_the_first_record_is_acked() -> None:
    """An ack after a gap does not move it; filling the gap moves it over the whole acked run."""
    tracker = make_tracker(1, 2, 3, 4, 5)
    for number in (4, 2, 3):
        tracker.ack(seq(number), 1)
        assert tracker.checkpoint is None
    tracker.ack(seq(1), 1)
    assert tracker.checkpoint == seq(4)
    tracker.ack(seq(5), 1)
    assert tracker.checkpoint == seq(5)
    assert tracker.node_count == 0


def test_a_long_acked_run_costs_one_node() -> None:
    """Memory follows unresolved records and gaps, not the records that were read."""
    tracker = make_tracker(*range(1, 1_001))
    for number in range(1_000, 1, -1):
        tracker.ack(seq(number), 1)
    assert nodes(tracker) == [(1, PENDING), (1_000, ACKED)]


def test_numbers_of_different_lengths_are_in_order_as_integers() -> None:
    """Compared as texts, 9 would come after 10, and the emission would be refused."""
    tracker = make_tracker(9, 10, 10**55)
    for number in (10**55, 10, 9):
        tracker.ack(seq(number), 1)
    assert tracker.checkpoint == seq(10**55)


def test_each_user_record_of_an_aggregate_has_an_outcome_of_its_own() -> None:
    """They share a sequence number, and their ids name their sub-sequence numbers. The checkpoint
    is of Kinesis records, so it stays below the aggregate until all of them are acked.
    """
    tracker = make_tracker(5, 7)
    assert tracker.emit(seq(7, 1)).message_id == f"{SHARD}:7.1:1"
    tracker.emit(seq(7, 2))
    for acked in (seq(5), seq(7), seq(7, 2)):
        tracker.ack(acked, 1)
        assert tracker.checkpoint == seq(5)
    tracker.ack(seq(7, 1), 1)
    assert tracker.checkpoint == seq(7)


def test_the_checkpoint_stays_below_an_aggregate_that_was_emitted_in_part() -> None:
    """All of its user records that were emitted are acked. The others come after a restart, and
    those that were acked do not.
    """
    tracker = make_tracker(5, 7)
    tracker.emit(seq(7, 1))
    tracker.leave_rest(seq(7, 2))
    for acked in (seq(5), seq(7), seq(7, 1)):
        tracker.ack(acked, 1)
    assert (tracker.checkpoint, tracker.read_position) == (seq(5), Position.at(seq(7, 2)))
    again = restart(tracker)
    with pytest.raises(IllegalTrackerEventError):
        again.emit(seq(7, 1))
    again.emit(seq(7, 2))
    again.ack(seq(7, 2), 1)
    assert (again.checkpoint, again.read_position) == (seq(7), Position.after(seq(7)))


def test_a_rest_of_another_kinesis_record_is_refused() -> None:
    """It would let the checkpoint pass an aggregate that was emitted in part."""
    tracker = make_tracker(5)
    for rest in (seq(5), seq(6)):
        with pytest.raises(IllegalTrackerEventError, match=f"rest of {rest} "):
            tracker.leave_rest(rest)


def test_after_an_aggregate_none_of_its_user_records_is_emitted_again() -> None:
    """A stored position AFTER it covers all of them; the unresolved ones are retries."""
    tracker = make_tracker(7)
    tracker.emit(seq(7, 1))
    tracker.fail(seq(7), 1, 0)
    tracker.ack(seq(7, 1), 1)
    again = restart(tracker)
    for number in (seq(7), seq(7, 1), seq(7, 2)):
        with pytest.raises(IllegalTrackerEventError):
            again.emit(number)
    emission = again.take_retry(1_000)
    assert emission is not None
    assert emission.message_id == f"{SHARD}:7:2"
    again.ack(seq(7), 2)
    assert again.checkpoint == seq(7)


@pytest.mark.parametrize(
    "number", [1, 2, 3], ids=["pending", "acked and kept", "not seen but passed"]
)
def test_an_emission_that_is_not_after_the_last_one_is_refused(number: int) -> None:
    """No record is registered twice, whether it is pending, acked or before the checkpoint."""
    tracker = make_tracker(1, 2, 4)
    tracker.ack(seq(2), 1)
    before = tracker.snapshot()
    with pytest.raises(IllegalTrackerEventError, match=f"{SHARD}: emission of {number} "):
        tracker.emit(seq(number))
    assert tracker.snapshot() == before
    check_structure(tracker)


def test_nothing_is_emitted_after_the_end_of_a_shard() -> None:
    """The end was reached, so a later record can only be another shard's."""
    tracker = make_tracker(1)
    tracker.reach_end()
    with pytest.raises(IllegalTrackerEventError, match="after the end of the shard"):
        tracker.emit(seq(2))


def test_a_retry_keeps_its_place_and_counts_an_attempt() -> None:
    """Fail queues, the retry leaves the queue, the ack of the retry advances the checkpoint."""
    tracker = make_tracker(1, 2)
    assert tracker.fail(seq(1), 1, 1_000, reason="no rates") is Effect.QUEUED
    assert tracker.next_retry_ms == 1_100
    assert tracker.take_retry(1_099) is None
    emission = tracker.take_retry(1_100)
    assert emission is not None
    assert (emission.message_id, emission.attempt) == (f"{SHARD}:1:2", 2)
    assert tracker.next_retry_ms is None
    assert nodes(tracker) == [(1, PENDING), (2, PENDING)]
    assert tracker.ack(seq(1), 2) is Effect.ACKED
    assert tracker.checkpoint == seq(1)


def test_retries_are_ordered_by_due_time_then_by_sequence_number() -> None:
    """Not in the order in which they failed."""
    tracker = make_tracker(1, 2, 3, 4)
    for number, now_ms in ((4, 0), (3, 50), (1, 50), (2, 60)):
        tracker.fail(seq(number), 1, now_ms)
    order = []
    while (emission := tracker.take_retry(1_000)) is not None:
        order.append(emission.sequence.sequence)
    assert order == [4, 1, 3, 2]


def test_an_exhausted_record_holds_the_checkpoint_until_it_is_dead_lettered() -> None:
    """Three retries are four deliveries. Then the record waits for its dead letter, and counts as
    acked once that is written.
    """
    tracker = make_tracker(1, 2)
    tracker.ack(seq(2), 1)
    effects = []
    for attempt in range(1, 5):
        effects.append(tracker.fail(seq(1), attempt, attempt * 10_000, reason=f"fault {attempt}"))
        tracker.take_retry(attempt * 10_000 + 5_000)
    assert effects == [Effect.QUEUED, Effect.QUEUED, Effect.QUEUED, Effect.EXHAUSTED]
    assert tracker.checkpoint is None
    (record,) = tracker.exhausted
    assert (record.first, record.attempts, record.reason) == (seq(1), 4, "fault 4")
    assert (record.first_failure_ms, record.last_failure_ms) == (10_000, 40_000)
    assert tracker.dead_lettered(seq(1)) is Effect.ACKED
    assert tracker.checkpoint == seq(2)
    assert tracker.exhausted == ()
    assert tracker.node_count == 0


def test_a_record_that_is_not_to_be_retried_is_exhausted_at_once() -> None:
    """The user rejected it, so the retry limit does not matter."""
    tracker = make_tracker(1)
    assert tracker.fail(seq(1), 1, 0, retry=False) is Effect.EXHAUSTED
    assert tracker.next_retry_ms is None


def test_a_record_past_its_maximum_age_is_exhausted_when_it_fails_again() -> None:
    """However few attempts it had."""
    tracker = make_tracker(1, policy=RetryPolicy(first_delay_ms=100, jitter=0, max_age_ms=500))
    tracker.fail(seq(1), 1, 1_000)
    tracker.take_retry(1_100)
    assert tracker.fail(seq(1), 2, 1_501) is Effect.EXHAUSTED


def test_a_record_past_its_maximum_age_when_its_retry_is_due_is_not_emitted() -> None:
    """The retry came due but was taken too late. The next record that is due is emitted."""
    tracker = make_tracker(1, 2, policy=RetryPolicy(first_delay_ms=100, jitter=0, max_age_ms=500))
    tracker.fail(seq(1), 1, 1_000)
    tracker.fail(seq(2), 1, 1_300)
    emission = tracker.take_retry(1_501)
    assert emission is not None
    assert emission.sequence == seq(2)
    assert [record.first for record in tracker.exhausted] == [seq(1)]


def test_dead_lettering_a_record_that_is_not_exhausted_is_refused() -> None:
    """It would be acked without having been processed."""
    tracker = make_tracker(1)
    with pytest.raises(
        IllegalTrackerEventError, match="dead letter of 1 is not allowed because it is pending"
    ):
        tracker.dead_lettered(seq(1))
    assert tracker.checkpoint is None


@pytest.mark.parametrize("attempt", [0, -1, 2, 99])
def test_outcomes_of_unknown_emissions_change_nothing_and_are_reported(attempt: int) -> None:
    """An attempt that was never made, and a record that was never emitted."""
    tracker = make_tracker(1)
    before = tracker.snapshot()
    assert tracker.ack(seq(1), attempt) is Effect.UNKNOWN
    assert tracker.fail(seq(1), attempt, 0) is Effect.UNKNOWN
    assert tracker.ack(seq(8), 1) is Effect.UNKNOWN
    assert tracker.fail(seq(8), 1, 0) is Effect.UNKNOWN
    assert tracker.dead_lettered(seq(8)) is Effect.UNKNOWN
    assert tracker.snapshot() == before
    with pytest.raises(
        IllegalTrackerEventError,
        match="retry of 8 is not allowed because it is unknown or acked already",
    ):
        tracker.retry(seq(8))


def test_an_emission_times_out_exactly_at_its_deadline() -> None:
    """One millisecond earlier it is still pending. The time-out is a failure like any other."""
    tracker = make_tracker()
    tracker.emit(seq(1), deadline_ms=30_000)
    tracker.emit(seq(2), deadline_ms=29_000)
    tracker.emit(seq(3))
    assert tracker.next_deadline_ms == 29_000
    assert tracker.expire(28_999) == []
    assert [emission.message_id for emission in tracker.expire(30_000)] == [
        f"{SHARD}:2:1",
        f"{SHARD}:1:1",
    ]
    assert nodes(tracker) == [(1, QUEUED), (2, QUEUED), (3, PENDING)]
    assert tracker.next_deadline_ms is None


def test_a_late_ack_after_a_time_out_cancels_the_retry() -> None:
    """The record was processed, whether the ack comes before the retry or after it."""
    tracker = make_tracker()
    tracker.emit(seq(1), deadline_ms=1_000)
    tracker.expire(1_000)
    assert tracker.ack(seq(1), 1) is Effect.ACKED
    assert tracker.next_retry_ms is None
    assert tracker.checkpoint == seq(1)


def test_an_emission_with_an_outcome_does_not_time_out() -> None:
    """Neither after an ack nor after a failure. A retry has a deadline of its own."""
    tracker = make_tracker()
    tracker.emit(seq(1), deadline_ms=1_000)
    tracker.emit(seq(2), deadline_ms=1_000)
    tracker.ack(seq(1), 1)
    tracker.fail(seq(2), 1, 0)
    tracker.take_retry(100, deadline_ms=5_000)
    assert tracker.expire(4_999) == []
    assert [emission.attempt for emission in tracker.expire(5_000)] == [2]
