"""Spans that fail in part, and what is stored of a tracker and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.errors import IllegalTrackerEventError, StoredDataError
from state.position import SHARD_END, TRIM_HORIZON, Position
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
