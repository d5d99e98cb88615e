"""The table of transitions, and an ack between any neighbours; what is refused; and states that
only another process can have stored. What a tracker does over any history is in its property.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.errors import IllegalTrackerEventError, StoredDataError
from state.position import Position
from state.retry_policy import RetryPolicy
from state.shard_state import UnresolvedRecord
from state.tracker.inflight_record_tracker import parse_message_id
from state.tracker.transitions import TRANSITIONS, Effect, Event, NodeState
from tests.support.state.shard_values import waiting
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
    from state.tracker.inflight_record_tracker import InflightRecordTracker

PENDING, QUEUED, EXHAUSTED, ACKED = (
    NodeState.PENDING,
    NodeState.QUEUED,
    NodeState.EXHAUSTED,
    NodeState.ACKED,
)

# (before, after): records emitted, records acked first, record acked then; nodes left, checkpoint.
NEIGHBOURS: dict[tuple[str, str], tuple[list[int], list[int], int, list[int], int | None]] = {
    ("none", "acked"): ([1, 2], [2], 1, [], 2),
    ("none", "unresolved"): ([1, 2], [], 1, [2], 1),
    ("none", "none"): ([1], [], 1, [], 1),
    ("unresolved", "acked"): ([1, 2, 3], [3], 2, [1, 3], None),
    ("unresolved", "unresolved"): ([1, 2, 3], [], 2, [1, 2, 3], None),
    ("unresolved", "none"): ([1, 2], [], 2, [1, 2], None),
    ("acked", "acked"): ([1, 2, 3, 4], [2, 4], 3, [1, 4], None),
    ("acked", "unresolved"): ([1, 2, 3, 4], [2], 3, [1, 3, 4], None),
    ("acked", "none"): ([1, 2, 3], [2], 3, [1, 3], None),
}


def bring_to(tracker: InflightRecordTracker, number: int, state: NodeState) -> None:
    """Bring a pending record into another unresolved state."""
    if state is not PENDING:
        tracker.fail(seq(number), 1, 0, retry=state is QUEUED)


@pytest.mark.parametrize("unresolved", [PENDING, QUEUED, EXHAUSTED], ids=lambda state: state.value)
@pytest.mark.parametrize("between", NEIGHBOURS, ids="-".join)
def test_an_ack_keeps_the_last_of_a_run_and_none_at_the_front(
    between: tuple[str, str], unresolved: NodeState
) -> None:
    """Nodes and checkpoint after an ack, for each of the nine pairs of neighbours and each
    unresolved state.
    """
    emitted, acked_first, acked_then, left, checkpoint = NEIGHBOURS[between]
    tracker = make_tracker(*emitted)
    for number in acked_first:
        tracker.ack(seq(number), 1)
    for number in set(emitted) - {*acked_first, acked_then}:
        bring_to(tracker, number, unresolved)
    node = tracker._nodes._by_first[seq(acked_then)]
    at = {unresolved: "unresolved", ACKED: "acked", NodeState.NONE: "none"}
    assert (at[node.before.state], at[node.after.state]) == between, "the case is another one"

    assert tracker.ack(seq(acked_then), 1) is Effect.ACKED

    assert [number for number, _ in nodes(tracker)] == left
    assert tracker.checkpoint == (None if checkpoint is None else seq(checkpoint))
    check_structure(tracker)


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
        IllegalTrackerEventError, match=f"{SHARD}: {event.value} of record 5 .*{state.value}"
    ):
        tracker._move(node, event)
    assert (nodes(tracker), tracker.snapshot()) == before
    check_structure(tracker)


def test_a_rest_of_another_kinesis_record_is_refused() -> None:
    """It would let the checkpoint pass an aggregate that was emitted in part."""
    tracker = make_tracker(5)
    for rest in (seq(5), seq(6)):
        told = f"rest of record {rest} .* the record is not in the same Kinesis record after 5;"
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


def test_a_message_id_names_the_emission() -> None:
    """The shard may have its stream before it, which may be an ARN."""
    for shard in (SHARD, f"arn:aws:kinesis:eu-west-1:1:stream/s/{SHARD}"):
        for number in (seq(7), seq(7, 2)):
            assert parse_message_id(f"{shard}:{number}:12") == (shard, number, 12)
    for text in ("7:1", f"{SHARD}:7", f"{SHARD}:7:x", f"{SHARD}:7:²", f"{SHARD}:7:٣"):
        with pytest.raises(ValueError, match=f"'{text}' is not a message id"):
            parse_message_id(text)


# spans, and what is stored and restored ----------------------------------------------------------
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
        (seq(9), [], Position.after(seq(5)), "read position AFTER:5 is before 9"),
        (seq(9), [], Position.at(seq(9)), "read position AT:9 is before 9"),
        (None, [TWO_TO_THREE], Position.after(seq(2)), "read position AFTER:2 is before 3"),
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
