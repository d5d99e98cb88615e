"""Spans that fail in part, and what is stored of a tracker and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.errors import IllegalTrackerEventError, StoredDataError
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.retry_policy import RetryPolicy
from state.shard_state import Lifecycle, UnresolvedRecord
from state.tracker.emission import Emission
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
    take_retry,
)

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber

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


@pytest.mark.parametrize(("first", "last", "count"), [(9, 5, 2), (5, 9, 0), (5, 9, 1), (5, 5, 2)])
def test_a_span_that_contradicts_itself_is_refused(first: int, last: int, count: int) -> None:
    """Descending numbers, no records, one record with two numbers, two records with one number."""
    tracker = make_tracker()
    with pytest.raises(IllegalTrackerEventError, match="is not a span"):
        tracker.emit_span(seq(first), seq(last), count)
    assert tracker.node_count == 0


def test_the_records_of_a_span_that_fail_are_records_of_their_own() -> None:
    """They are stored as given. Of the acked rest, the known ends are kept."""
    tracker = make_tracker(1, 2)
    tracker.ack(seq(1), 1)
    assert tracker.emit_span(seq(10), seq(99), 50) == Emission(SHARD, seq(10), 1, seq(99), 50)
    tracker.fail(seq(10), 1, 0, reason="all")
    assert tracker.retry(seq(10)) == Emission(SHARD, seq(10), 2, seq(99), 50)
    failed = [waiting(20, attempts=2), waiting(30, attempts=2)]
    assert tracker.ack_except(seq(10), 2, failed) is Effect.ACKED
    assert nodes(tracker) == [(2, PENDING), (10, ACKED), (20, QUEUED), (30, QUEUED), (99, ACKED)]
    assert tracker.count(ACKED) == 1 + 48
    assert [tracker.awaited(record.first) for record in failed] == failed
    # a read from before 199 would deliver the acked records between 100 and 199 again
    tracker.emit_span(seq(100), seq(199), 3)
    tracker.ack_except(seq(100), 1, [waiting(199)])
    state = tracker.snapshot()
    assert [record.first for record in state.unresolved] == seqs(2, 20, 30, 199)
    assert state.read_position == Position.after(seq(199))
    tracker.ack(seq(2), 1)
    assert tracker.ack(seq(20), 2) is Effect.ACKED
    assert tracker.checkpoint == seq(20), "between 20 and 30 no number is known"
    check_structure(tracker)


def test_what_was_announced_of_a_span_is_not_said_of_the_part_that_is_left() -> None:
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 50)
    tracker.announce(seq(10), 7)
    tracker.ack_except(seq(10), 1, [waiting(10, attempts=0)])
    assert tracker.snapshot().unresolved == (waiting(10, attempts=0),)


def test_a_late_outcome_of_a_part_of_a_span_changes_nothing() -> None:
    """The span has failed since, so all of it is delivered again. An ack now would ack its failed
    records as well.
    """
    tracker = make_tracker()
    tracker.emit_span(seq(10), seq(99), 50)
    tracker.fail(seq(10), 1, 0)
    tracker.retry(seq(10))
    assert tracker.ack_except(seq(10), 1, [waiting(20)]) is Effect.IGNORED
    assert tracker.ack_except(seq(10), 3, [waiting(20)]) is Effect.UNKNOWN
    assert tracker.ack_except(seq(11), 1, [waiting(20)]) is Effect.UNKNOWN
    assert (nodes(tracker), tracker.unresolved_count) == ([(10, PENDING)], 50)
    assert tracker.ack_except(seq(10), 2, [waiting(10, 98, count=49)]) is Effect.ACKED


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


@pytest.mark.parametrize(
    ("acked", "failed", "stored", "position"),
    [
        (seq(3), seq(1), [1, 2], Position.after(seq(3))),
        (None, seq(1), [1], Position.at(seq(2))),
        (seq(7), seq(1), [1, 2, 3], Position.at(seq(7, 1))),
        (seq(3), seq(7, 1), [1, 2, 7, 7], Position.after(seq(7))),
    ],
    ids=["after an acked one", "at the first", "within an aggregate", "none: the last has failed"],
)
def test_trailing_pending_records_are_read_again_instead_of_being_stored(
    acked: SequenceNumber | None, failed: SequenceNumber, stored: list[int], position: Position
) -> None:
    """A million records in flight are not a million entries in the store. A failed one would come
    as a first attempt.
    """
    tracker = make_tracker(1, 2, 3, 7)
    tracker.emit(seq(7, 1))
    if acked is not None:
        tracker.ack(acked, 1)
    tracker.fail(failed, 1, 0)
    tracker.retry(failed)
    state = tracker.snapshot()
    assert [record.first.sequence for record in state.unresolved] == stored
    assert state.read_position == position
    assert tracker.read_position == Position.after(seq(7))


def test_a_restored_retry_in_flight_does_not_pull_the_read_position_back() -> None:
    """Acked records may lie between it and its neighbour in the list."""
    tracker = make_tracker(1, 2, 3)
    tracker.ack(seq(2), 1)
    state = replace(tracker.snapshot(), read_position=Position.at(seq(3)))
    successor = make_tracker(state=state)
    take_retry(successor, 0)
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
    first, second = (take_retry(successor, 0) for _ in range(2))
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
    assert (successor.read_position, successor.last_read) == (SHARD_END, seq(1))
    take_retry(successor, 1_000)
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
    emission = take_retry(tracker, 7)
    assert emission is not None
    assert (emission.sequence, emission.last, emission.attempt) == (seq(10), seq(20), 2)
    found = [waiting(number, attempts=2) for number in (10, 13, 20)]
    assert tracker.ack_except(seq(10), 2, found) is Effect.QUEUED
    assert nodes(tracker) == [(10, QUEUED), (13, QUEUED), (20, QUEUED), (30, ACKED)]
    assert tracker.count(QUEUED) == 3
    assert tracker.retry(seq(13)).attempt == 3
    assert tracker.fail(seq(13), 3, 0) is Effect.QUEUED
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
    assert take_retry(tracker, 9_000) is not None
    assert tracker.fail(seq(1), 1, 9_000) is Effect.QUEUED
    assert tracker.snapshot().unresolved[0].first_failure_ms == 9_000


TWO_TO_THREE = waiting(2, 3, count=2)


@pytest.mark.parametrize(
    ("checkpoint", "unresolved", "position", "told"),
    [
        (seq(2), [TWO_TO_THREE], Position.after(seq(3)), "unresolved 2 to 3 overlaps .* before 2"),
        (None, [TWO_TO_THREE, waiting(3)], Position.after(seq(4)), "3 to 3 overlaps .* before 3"),
        (seq(7), [waiting(7)], Position.after(seq(9)), "7 to 7 overlaps .* before 7"),
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


def test_a_record_that_ran_out_of_retries_is_not_rejected() -> None:
    """A restart with a higher limit tries it again."""
    tracker = make_tracker(1, policy=RetryPolicy(retry_limit=0))
    tracker.fail(seq(1), 1, 0)
    assert nodes(restart(tracker, RetryPolicy(retry_limit=1))) == [(1, QUEUED)]
