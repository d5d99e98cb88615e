from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.errors import IllegalTrackerEventError, StoredDataError
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.retry_policy import RetryPolicy
from state.shard_state import TIMED_OUT, Lifecycle, UnresolvedRecord
from state.tracker.inflight_record_tracker import UNANSWERED, parse_message_id
from state.tracker.transitions import (
    CELLS,
    SEEN_AS,
    TRANSITIONS,
    Effect,
    Event,
    Neighbour,
    NodeState,
)
from tests.support.state.tracker import (
    SHARD,
    check_structure,
    fresh_state,
    make_tracker,
    nodes,
    restart,
    seq,
    seqs,
    take_retry,
)

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber
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


def test_the_checkpoint_stays_below_an_aggregate_until_all_of_its_user_records_are_acked() -> None:
    """Acked records before it count, in whatever order they were acked."""
    tracker = make_tracker(5, 6, 7)
    tracker.emit(seq(7, 1))
    tracker.emit(seq(7, 2))
    for acked in (seq(6), seq(7), seq(7, 1)):
        tracker.ack(acked, 1)
        assert tracker.checkpoint is None
    for acked, checkpoint in ((seq(5), seq(6)), (seq(7, 2), seq(7))):
        tracker.ack(acked, 1)
        assert tracker.checkpoint == checkpoint
    for number in (seq(9), seq(9, 1), seq(9, 2)):
        tracker.emit(number)
    for acked in (seq(9), seq(9, 1)):
        tracker.ack(acked, 1)
        assert tracker.checkpoint == seq(7)
    span = make_tracker()
    span.emit_span(seq(5), seq(7), 2)
    span.emit(seq(7, 1))
    span.ack(seq(5), 1)
    assert span.checkpoint == seq(5)


def test_a_rest_of_another_kinesis_record_is_refused() -> None:
    """It would let the checkpoint pass an aggregate that was emitted in part."""
    tracker = make_tracker(5)
    for rest in (seq(5), seq(6)):
        told = f"rest of {rest} .* it is not in the same Kinesis record after 5;"
        with pytest.raises(IllegalTrackerEventError, match=told):
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
    assert take_retry(again, 1_000) == (seq(7), 2)
    again.ack(seq(7), 2)
    assert again.checkpoint == seq(7)


def test_no_record_is_emitted_twice_and_none_after_the_end_of_the_shard() -> None:
    """After the end, a later record can only be another shard's."""
    tracker = make_tracker(1, 2)
    tracker.fail(seq(2), 1, 0, counts=False)
    assert [tracker.ack(seq(2), 1) for _ in range(2)] == [Effect.ACKED, Effect.UNKNOWN]
    tracker.reach_end()
    for number, why in ((1, "pending"), (2, "acked"), (3, "after the end of the shard")):
        told = f"{SHARD}: emission of {number} is not allowed because it is {why};"
        with pytest.raises(IllegalTrackerEventError, match=told):
            tracker.emit(seq(number))


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


def test_what_is_awaited_is_a_failed_record_that_may_come_again_with_its_failures() -> None:
    """The first pending one is looked for, whatever was acked or failed before it."""
    tracker = make_tracker(1, 2, 3, 4)
    assert (tracker.oldest_pending, tracker.last_read) == (seq(1), seq(4))
    tracker.fail(seq(1), 1, 5, reason="why")
    tracker.fail(seq(3), 1, 5, retry=False)
    tracker.ack(seq(4), 1)
    stored = tracker.queued(seq(1))
    assert stored is not None
    assert (tracker.awaited(seq(1)), tracker.oldest_pending) == (stored, seq(2))
    assert [tracker.awaited(seq(number)) for number in (2, 3, 4, 9)] == [None] * 4
    assert [tracker.queued(seq(number)) for number in (2, 3, 4, 9)] == [None] * 4
    tracker.postpone(seq(1), 500)
    assert (take_retry(tracker, 499), tracker.snapshot().unresolved[0].due_ms) == (None, 105)
    assert take_retry(tracker, 500) is not None
    assert (tracker.awaited(seq(1)), tracker.queued(seq(1))) == (stored, None)
    tracker.ack(seq(1), 2)
    tracker.ack(seq(2), 1)
    assert (tracker.oldest_pending, tracker.last_read) == (None, seq(4))
    with pytest.raises(IllegalTrackerEventError, match=f"{SHARD}: postpone of 3 .*exhausted"):
        tracker.postpone(seq(3), 9)
    with pytest.raises(IllegalTrackerEventError, match=f"{SHARD}: retry of 9 .*unknown"):
        tracker.postpone(seq(9), 9)


def test_a_record_past_its_maximum_age_is_exhausted_when_it_fails_or_its_retry_is_due() -> None:
    """However few attempts it had. The next record that is due is emitted."""
    policy = RetryPolicy(retry_limit=9, first_delay_ms=100, jitter=0, max_age_ms=500)
    tracker = make_tracker(1, 2, 3, policy=policy)
    for number, now_ms in ((1, 1_000), (2, 1_000), (3, 1_300)):
        tracker.fail(seq(number), 1, now_ms)
    take_retry(tracker, 1_100)
    assert tracker.fail(seq(1), 2, 1_501) is Effect.EXHAUSTED
    assert take_retry(tracker, 1_501) == (seq(3), 2)
    assert [record.first for record in tracker.exhausted] == seqs(1, 2)
    assert nodes(tracker) == [(1, EXHAUSTED), (2, EXHAUSTED), (3, PENDING)]
    assert tracker.next_retry_ms is None


def test_an_emission_times_out_at_its_deadline_unless_that_is_moved_or_met() -> None:
    """A retry has a deadline of its own."""
    tracker = make_tracker()
    for number, deadline_ms in ((1, 300), (2, 200), (3, 100), (4, 100), (5, 100)):
        tracker.emit(seq(number), deadline_ms=deadline_ms)
    assert tracker.extend(seq(3), 1, None)
    tracker.ack(seq(4), 1)
    tracker.fail(seq(5), 1, 99)
    assert (tracker.next_deadline_ms, tracker.expire(199)) == (200, [])
    assert tracker.expire(300) == [(seq(2), 1), (seq(1), 1)]
    record = tracker.awaited(seq(1))
    assert record is not None
    assert (record.reason, record.last_failure_ms) == (TIMED_OUT, 300)
    tracker.retry(seq(1), deadline_ms=900)
    assert tracker.next_deadline_ms == 900
    assert tracker.expire(900) == [(seq(1), 2)]


def test_an_announced_delivery_is_stored_as_a_failure_until_it_has_its_outcome() -> None:
    tracker = make_tracker(1, 2)
    tracker.fail(seq(1), 1, 10)
    for number in (1, 3):
        with pytest.raises(IllegalTrackerEventError, match=rf"(announcement|fail) of {number} is"):
            tracker.announce(seq(number), 50)
    with pytest.raises(IllegalTrackerEventError, match=f"{SHARD}: announcement of 1 .* is queued;"):
        tracker.announce(seq(1), 50)
    tracker.retry(seq(1))
    tracker.announce(seq(1), 50)
    (stored,) = tracker.snapshot().unresolved
    assert (stored.attempts, stored.due_ms, stored.reason) == (2, 50, UNANSWERED)
    assert (stored.first_failure_ms, stored.last_failure_ms) == (10, 50)
    tracker.fail(seq(1), 2, 60, reason="no")
    (stored,) = tracker.snapshot().unresolved
    assert (stored.attempts, stored.reason) == (2, "no")
    tracker.retry(seq(1))
    tracker.announce(seq(1), 70)
    tracker.withdraw(seq(1))
    assert [one.reason for one in tracker.snapshot().unresolved] == ["no"]
    tracker.announce(seq(2), 70)
    tracker.announce(seq(1), 70)
    tracker.ack(seq(1), 3)
    assert [one.first for one in tracker.snapshot().unresolved] == seqs(2)
    check_structure(tracker)


def test_a_message_id_names_the_emission() -> None:
    """The shard may have its stream before it, which may be an ARN."""
    for shard in (SHARD, f"arn:aws:kinesis:eu-west-1:1:stream/s/{SHARD}"):
        for number in (seq(7), seq(7, 2)):
            assert parse_message_id(f"{shard}:{number}:12") == (shard, number, 12)
    for text in ("7:1", f"{SHARD}:7", f"{SHARD}:7:x", f"{SHARD}:7:²", f"{SHARD}:7:٣"):
        with pytest.raises(ValueError, match=f"'{text}' is not a message id"):
            parse_message_id(text)


# spans, and what is stored and restored ----------------------------------------------------------
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


@pytest.mark.parametrize(("first", "last", "count"), [(9, 5, 2), (5, 9, 0), (5, 9, 1), (5, 5, 2)])
def test_a_span_that_contradicts_itself_is_refused(first: int, last: int, count: int) -> None:
    """Descending numbers, no records, one record with two numbers, two records with one number."""
    tracker = make_tracker()
    with pytest.raises(IllegalTrackerEventError, match="is not a span"):
        tracker.emit_span(seq(first), seq(last), count)
    assert nodes(tracker) == []


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
        tracker.ack_except(seq(10), left)
    assert tracker.snapshot() == before
    check_structure(tracker)


def test_the_records_of_a_span_that_fail_are_records_of_their_own() -> None:
    """They are stored as given. Of the acked rest, the known ends are kept."""
    tracker = make_tracker()
    tracker.emit_span(seq(1), seq(3), 3)
    tracker.emit(seq(5))
    tracker.ack(seq(5), 1)
    tracker.emit_span(seq(10), seq(99), 50)
    failed = [waiting(20), waiting(30, 31, count=2)]
    tracker.ack_except(seq(10), failed)
    assert nodes(tracker) == [(1, PENDING), (10, ACKED), (20, QUEUED), (30, QUEUED), (99, ACKED)]
    assert tracker.count(ACKED) == 1 + 47
    never_failed = waiting(1, 3, count=3, attempts=0, due_ms=0)
    assert tracker.snapshot().unresolved == (never_failed, *failed)
    check_structure(tracker)


def test_trailing_first_attempts_are_read_again_instead_of_being_stored() -> None:
    """A million records in flight are not a million entries in the store. Within an aggregate the
    read begins at its first user record that is not acked.
    """
    tracker = make_tracker(1, 3, 7)
    tracker.emit(seq(7, 1))
    for acked, position in (
        (seq(3), Position.after(seq(3))),
        (seq(7), Position.at(seq(7, 1))),
    ):
        tracker.ack(acked, 1)
        state = tracker.snapshot()
        assert [record.first for record in state.unresolved] == seqs(1)
        assert state.read_position == position


def test_a_restored_range_is_split_and_what_was_acked_behind_it_is_not_read_again() -> None:
    """A range may cover acked records, and acked ones may follow it: only the read position tells
    of them.
    """
    state = replace(
        fresh_state(),
        checkpoint=seq(5),
        read_position=Position.at(seq(30)),
        unresolved=(waiting(10), waiting(12, 20, count=2)),
    )
    tracker = make_tracker(state=state)
    assert tracker.retry(seq(12)) == 2
    found = [waiting(number, attempts=2) for number in (12, 15, 20)]
    tracker.ack_except(seq(12), found)
    assert nodes(tracker) == [(10, QUEUED), (12, QUEUED), (15, QUEUED), (20, QUEUED)]
    assert tracker.count(ACKED) == 0
    tracker.ack(seq(20), 2)
    tracker.emit(seq(30))
    again = tracker.snapshot()
    assert [record.first for record in again.unresolved] == seqs(10, 12, 15)
    assert again.read_position == Position.at(seq(30))
    whole = make_tracker(state=replace(state, read_position=Position.after(seq(30))))
    for number in (10, 12):
        whole.ack(seq(number), 1)
    assert whole.checkpoint == seq(30)


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
    assert (successor.read_position, successor.last_read) == (SHARD_END, seq(1))
    take_retry(successor, 1_000)
    successor.ack(seq(1), 2)
    assert successor.snapshot().lifecycle is Lifecycle.FINISHED
    assert successor.snapshot().checkpoint_text == "SHARD_END"


def test_a_record_whose_failures_never_counted_does_not_age_until_one_counts() -> None:
    """A Spark job that reads the stream under the same name has stored it so, in an outage."""
    stored = UnresolvedRecord(
        first=seq(1), last=seq(1), attempts=0, due_ms=0, first_failure_ms=0, last_failure_ms=0
    )
    state = replace(fresh_state(), read_position=Position.after(seq(1)), unresolved=(stored,))
    tracker = make_tracker(
        state=state, policy=RetryPolicy(first_delay_ms=100, jitter=0, max_age_ms=500)
    )
    assert take_retry(tracker, 9_000) is not None
    assert tracker.fail(seq(1), 1, 9_000) is Effect.QUEUED
    assert tracker.snapshot().unresolved[0].first_failure_ms == 9_000


TWO_TO_THREE = waiting(2, 3, count=2)


@pytest.mark.parametrize(
    ("checkpoint", "unresolved", "position", "told"),
    [
        (
            seq(2),
            [TWO_TO_THREE],
            Position.after(seq(3)),
            "unresolved records 2 to 3 overlap .* before 2",
        ),
        (None, [TWO_TO_THREE, waiting(3)], Position.after(seq(4)), "3 to 3 overlap .* before 3"),
        (seq(7), [waiting(7)], Position.after(seq(9)), "7 to 7 overlap .* before 7"),
        (seq(9), [], Position.after(seq(5)), "read position AFTER:5 lies before 9"),
        (seq(9), [], Position.at(seq(9)), "read position AT:9 lies before 9"),
        (None, [TWO_TO_THREE], Position.after(seq(2)), "read position AFTER:2 lies before 3"),
    ],
)
def test_a_stored_state_that_contradicts_itself_is_refused(
    checkpoint: SequenceNumber | None,
    unresolved: list[UnresolvedRecord],
    position: Position,
    told: str,
) -> None:
    """A stale owner has corrupted it: reading on from there would ack records unseen, or move the
    checkpoint back.
    """
    state = replace(
        fresh_state(), checkpoint=checkpoint, read_position=position, unresolved=tuple(unresolved)
    )
    with pytest.raises(StoredDataError, match=f"shard {SHARD} .*{told}"):
        make_tracker(state=state)


def test_a_tracker_emits_only_after_its_stored_checkpoint() -> None:
    """Also when the position that it had read to has expired, and it starts at the oldest record
    left.
    """
    tracker = make_tracker(state=replace(fresh_state(), checkpoint=seq(9)))
    assert tracker.read_position == TRIM_HORIZON
    with pytest.raises(IllegalTrackerEventError, match=f"{SHARD}: emission of 9 .*not after 9"):
        tracker.emit(seq(9))
    tracker.emit(seq(10))
    tracker.ack(seq(10), 1)
    assert tracker.checkpoint == seq(10)


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


def test_a_restart_with_a_higher_limit_tries_what_ran_out_of_retries_again() -> None:
    """Unlike a record that was rejected. With the same limit, both wait for their dead letters."""
    tracker = make_tracker(1, 2, policy=RetryPolicy(retry_limit=0))
    tracker.fail(seq(1), 1, 0)
    tracker.fail(seq(2), 1, 0, retry=False)
    for limit, first in ((0, EXHAUSTED), (1, QUEUED)):
        again = restart(tracker, RetryPolicy(retry_limit=limit))
        assert nodes(again) == [(1, first), (2, EXHAUSTED)]
