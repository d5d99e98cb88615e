"""One shard of the spout, event by event. Random histories are in
tests/property/test_tracked_shard.py.
"""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from kinesis_spout.spout.tracked_shard import RETRIES_IN_A_ROW, TrackedShard
from state.position import TRIM_HORIZON, Position
from state.retry_policy import RetryPolicy
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.tracker.transitions import Effect
from tests.support.spout.spout_pages import (
    FakePages,
    page_of,
    payload,
    run_of,
    tracked,
    tracked_from,
)
from tests.support.state.tracker import SHARD, seq

NO_RETRY = RetryPolicy(retry_limit=0)
DUE_MS = 100  # when the first retry of a failure at 0 is due


def emit(shard: TrackedShard, count: int = 1, *, now_ms: int = 0) -> list[int]:
    """The numbers of the next records."""
    deliveries = [shard.emit(now_ms, None, new=True) for _ in range(count)]
    return [one.sequence.sequence for one in deliveries if one is not None]


def ack(shard: TrackedShard, number: int, attempt: int = 1) -> int | None:
    found = shard.find(seq(number), attempt)
    assert found is not None
    return shard.ack(found)


def fail(
    shard: TrackedShard,
    number: int,
    attempt: int = 1,
    *,
    now_ms: int = 0,
    max_held_bytes: int = 1 << 20,
) -> Effect:
    found = shard.find(seq(number), attempt)
    assert found is not None
    return shard.fail(found, now_ms, reason="no", max_held_bytes=max_held_bytes)


def checkpoint(shard: TrackedShard) -> str | None:
    return shard.snapshot().checkpoint_text


def waiting(
    first: int, last: int | None = None, *, attempts: int = 1, rejected: bool = False
) -> UnresolvedRecord:
    last = first if last is None else last
    return UnresolvedRecord(
        first=seq(first),
        last=seq(last),
        count=last - first + 1,
        attempts=attempts,
        due_ms=0,
        rejected=rejected,
    )


def stored(*records: UnresolvedRecord, read_to: int = 9) -> ShardState:
    return ShardState(
        shard_id=SHARD, read_position=Position.after(seq(read_to)), unresolved=records
    )


# the checkpoint -----------------------------------------------------------------------------------
def test_the_checkpoint_stays_at_its_start_until_the_first_record_is_acked() -> None:
    shard = tracked(page_of([1, 2]))
    emit(shard, 2)
    assert checkpoint(shard) is None
    ack(shard, 1)
    assert checkpoint(shard) == "1"


def test_the_checkpoint_stops_at_a_gap_and_jumps_when_the_gap_is_acked() -> None:
    shard = tracked(page_of([1, 2, 3, 4]))
    emit(shard, 4)
    ack(shard, 2)
    ack(shard, 3)
    assert checkpoint(shard) is None
    ack(shard, 1)
    assert checkpoint(shard) == "3"


def test_a_snapshot_between_two_acks_does_not_affect_the_second() -> None:
    """An outcome between two snapshots is in the second one."""
    shard = tracked(page_of([1, 2, 3]))
    emit(shard, 3)
    ack(shard, 2)
    assert [one.first for one in shard.snapshot().unresolved] == [seq(1)]
    ack(shard, 1)
    ack(shard, 3)
    assert checkpoint(shard) == "3"
    assert shard.snapshot().unresolved == ()


def test_no_memory_is_held_when_all_records_are_acked() -> None:
    shard = tracked(page_of(range(1, 1201)))
    emit(shard, 1200)
    for number in range(1200, 0, -1):
        ack(shard, number)
    assert (
        len(shard._runs),
        shard.tracker.node_count,
        shard.held.held_bytes,
        shard.unresolved,
    ) == (0, 0, 0, 0)
    assert checkpoint(shard) == "1200"


# outcomes -----------------------------------------------------------------------------------------
def test_a_failed_record_is_delivered_again_when_due_and_its_ack_moves_the_checkpoint() -> None:
    shard = tracked(page_of([1, 2]))
    emit(shard, 2)
    assert fail(shard, 1) is Effect.QUEUED
    ack(shard, 2)
    assert emit(shard, now_ms=DUE_MS - 1) == []
    assert emit(shard, now_ms=DUE_MS) == [1]
    assert ack(shard, 1, 2) == 1
    assert checkpoint(shard) == "2"


def test_a_late_ack_removes_the_record_from_the_retry_queue() -> None:
    shard = tracked(page_of([1]))
    emit(shard)
    fail(shard, 1)
    assert ack(shard, 1) == 0
    assert emit(shard, now_ms=10_000) == []
    assert shard.unresolved == 0


def test_the_second_outcome_of_an_emission_does_not_count() -> None:
    shard = tracked(page_of([1, 2]))
    deliveries = [shard.emit(0, None, new=True) for _ in range(2)]
    assert deliveries[0] is not None
    assert deliveries[1] is not None
    assert shard.fail(deliveries[0], 0, reason=None, max_held_bytes=0) is Effect.QUEUED
    assert shard.fail(deliveries[0], 0, reason=None, max_held_bytes=0) is Effect.IGNORED
    assert shard.ack(deliveries[1]) == 1
    assert shard.ack(deliveries[1]) is None
    assert shard.fail(deliveries[1], 0, reason=None, max_held_bytes=0) is Effect.UNKNOWN
    assert shard.unresolved == 1


def test_a_late_failure_of_an_earlier_attempt_is_ignored_and_a_late_ack_counts() -> None:
    shard = tracked(page_of([1]))
    first = shard.emit(0, None, new=True)
    assert first is not None
    fail(shard, 1)
    second = shard.emit(DUE_MS, None, new=True)
    assert second is not None
    assert shard.fail(first, DUE_MS, reason=None, max_held_bytes=0) is Effect.IGNORED
    assert shard.ack(first) == 1
    assert shard.ack(second) is None
    assert (shard.pending, shard.unresolved) == (0, 0)


def test_a_late_failure_of_an_earlier_attempt_leaves_the_payload_of_the_next_one() -> None:
    """Nothing is over its limit then: what is pending is in the hands of the user."""
    shard = tracked(page_of([1]))
    first = shard.emit(0, None, new=True)
    assert first is not None
    fail(shard, 1)
    second = shard.emit(DUE_MS, None, new=True)
    assert second is not None
    assert second.attempt == 2
    assert shard.fail(first, DUE_MS, reason=None, max_held_bytes=0) is Effect.IGNORED
    assert fail(shard, 1, 2, now_ms=DUE_MS) is Effect.QUEUED
    assert seq(1) in shard.held


def test_without_retries_a_failed_record_is_dead_lettered_and_the_checkpoint_moves() -> None:
    shard = tracked(page_of([1, 2]), policy=NO_RETRY)
    emit(shard, 2)
    assert fail(shard, 1) is Effect.EXHAUSTED
    ack(shard, 2)
    assert checkpoint(shard) is None
    (letter,) = shard.held.letters()
    assert letter.run is not None
    assert (letter.record.first, letter.run.data) == (seq(1), [payload(1)])
    assert shard.dead_lettered(seq(1)) is Effect.ACKED
    assert shard.dead_lettered(seq(1)) is Effect.UNKNOWN
    assert checkpoint(shard) == "2"


def test_a_message_id_with_a_sub_sequence_names_no_plain_record() -> None:
    shard = tracked(page_of([1]))
    emit(shard)
    assert shard.find(seq(1, 5), 1) is None
    assert shard.find(seq(2), 1) is None


def test_a_delivery_times_out_at_its_exact_deadline_and_its_late_ack_counts() -> None:
    shard = tracked(page_of([1, 2]))
    first, second = (shard.emit(0, deadline_ms, new=True) for deadline_ms in (50, 60))
    assert first is not None
    assert second is not None
    assert (shard.next_deadline_ms(), shard.expire(49, max_held_bytes=1)) == (50, [])
    assert [one.run.texts for one in shard.expire(50, max_held_bytes=1 << 20)] == [["1"]]
    assert shard.extend(second, 80)
    assert not shard.extend(first, 80)
    assert shard.next_deadline_ms() == 80
    assert shard.ack(first) == 0
    assert shard.unresolved == 1


# order --------------------------------------------------------------------------------------------
def test_due_retries_go_before_new_records_but_do_not_starve_them() -> None:
    shard = tracked(page_of(range(1, 20)))
    emit(shard, 10)
    for number in range(1, 11):
        fail(shard, number)
    came = emit(shard, 7, now_ms=DUE_MS)
    assert came == [*range(1, RETRIES_IN_A_ROW + 1), 11, 5, 6]


def test_retries_before_the_last_new_record_do_not_count_as_retries_in_a_row() -> None:
    shard = tracked(page_of(range(1, 20)))
    emit(shard, RETRIES_IN_A_ROW)
    for number in range(1, RETRIES_IN_A_ROW + 1):
        fail(shard, number)
    for number in emit(shard, RETRIES_IN_A_ROW, now_ms=DUE_MS):
        ack(shard, number, 2)
    (new,) = emit(shard, now_ms=DUE_MS)
    fail(shard, new, now_ms=DUE_MS)
    assert emit(shard, now_ms=3 * DUE_MS) == [new]


def test_a_record_that_is_not_in_memory_is_wanted_and_blocks_no_other_retry() -> None:
    shard = tracked(page_of([1, 2]))
    emit(shard, 2)
    fail(shard, 1, max_held_bytes=0)
    fail(shard, 2)
    assert emit(shard, now_ms=DUE_MS) == [2]
    (wanted,) = shard.held.wanted(DUE_MS)
    assert wanted.first == seq(1)
    shard.restock(wanted, run_of(1), DUE_MS)
    assert emit(shard, now_ms=DUE_MS) == [1]


# the end, and restarts ----------------------------------------------------------------------------
def test_a_shard_is_finished_when_its_end_was_read_and_all_records_are_acked() -> None:
    shard = tracked(page_of([1], ended=True))
    emit(shard)
    assert shard.snapshot().lifecycle is Lifecycle.ACTIVE
    ack(shard, 1)
    assert shard.snapshot().finished


def test_an_interrupt_while_the_last_run_is_registered_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records are pending, and the tracker does not know them yet. A state with the end would
    pass over them.
    """
    shard = tracked(page_of([1, 2], ended=True))
    emit(shard)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(shard.tracker, "emit", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            emit(shard)
    state = shard.snapshot()
    assert (state.read_position, state.end_was_read) == (TRIM_HORIZON, False)


def test_an_empty_last_page_ends_a_shard() -> None:
    shard = tracked(page_of([1]), page_of([], ended=True))
    emit(shard)
    ack(shard, 1)
    assert shard.snapshot().finished


def test_the_end_is_stored_only_when_every_record_had_an_outcome() -> None:
    """A queued retry does not hold the children. A record in its first delivery does."""
    shard = tracked(page_of([1, 2, 3], ended=True))
    emit(shard, 3)
    assert not shard.snapshot().end_was_read
    ack(shard, 2)
    ack(shard, 3)
    state = shard.snapshot()
    assert (state.end_was_read, state.lifecycle, state.read_position) == (
        False,
        Lifecycle.ACTIVE,
        Position.after(seq(3)),
    )
    assert [(one.first, one.attempts) for one in state.unresolved] == [(seq(1), 0)]
    fail(shard, 1)
    assert (shard.snapshot().end_was_read, shard.snapshot().lifecycle) == (True, Lifecycle.DRAINED)
    assert emit(shard, now_ms=DUE_MS) == [1]
    assert shard.snapshot().end_was_read


def test_the_state_has_unresolved_records_with_their_attempts_and_no_acked_ones() -> None:
    shard = tracked(page_of([1, 2, 3, 4]))
    emit(shard, 3)
    ack(shard, 1)
    fail(shard, 2)
    ack(shard, 3)
    state = shard.snapshot()
    assert [(one.first, one.attempts) for one in state.unresolved] == [(seq(2), 1)]
    assert state.read_position == Position.after(seq(3))


def test_trailing_pending_records_are_read_again_instead_of_being_stored() -> None:
    shard = tracked(page_of([1, 2, 3]))
    emit(shard, 3)
    ack(shard, 1)
    assert (shard.snapshot().unresolved, shard.snapshot().read_position) == (
        (),
        Position.at(seq(2)),
    )


def test_a_restored_range_becomes_single_records() -> None:
    shard = tracked_from(FakePages(), state=stored(waiting(3, 6, attempts=2)))
    assert emit(shard) == []
    (wanted,) = shard.held.wanted(0)
    shard.restock(wanted, run_of(3, 5, 6), 0)
    deliveries = [shard.emit(0, None, new=True) for _ in range(4)]
    assert [(one.run.texts, one.attempt) for one in deliveries if one is not None] == [
        (["3"], 3),
        (["5"], 3),
        (["6"], 3),
    ]


def test_of_a_range_that_is_partly_gone_one_letter_stands_for_the_records_that_are_missing() -> (
    None
):
    shard = tracked_from(FakePages(), state=stored(waiting(3, 9, attempts=2)))
    emit(shard)
    (wanted,) = shard.held.wanted(0)
    shard.restock(wanted, run_of(6, 9), 0)
    deliveries = [shard.emit(0, None, new=True) for _ in range(3)]
    assert [one.run.texts for one in deliveries if one is not None] == [["6"], ["9"]]
    (letter,) = shard.held.letters()
    assert (letter.run, letter.record.first, letter.record.attempts) == (None, seq(3), 2)
    assert letter.record.reason is not None
    assert letter.record.reason.startswith("5 of 7 records up to 9 were past the stream's")
    assert shard.snapshot().unresolved[0].rejected
    shard.dead_lettered(seq(3))
    assert [one.first for one in shard.snapshot().unresolved] == [seq(6), seq(9)]


def test_a_record_that_is_gone_is_dead_lettered_without_its_payload() -> None:
    shard = tracked_from(FakePages(), state=stored(waiting(3)))
    emit(shard)
    (wanted,) = shard.held.wanted(0)
    shard.restock(wanted, None, 0)
    (letter,) = shard.held.letters()
    assert letter.run is None
    assert letter.record.reason is not None
    assert "retention" in letter.record.reason


def test_verified_until_is_never_later_than_the_arrival_of_a_pending_record() -> None:
    shard = tracked(page_of([10, 20, 30], at_tip=True, time_ms=500))
    emit(shard, 3)
    ack(shard, 10)
    ack(shard, 30)
    assert shard.snapshot().verified_until_ms == 20
    assert not shard.snapshot().at_tip
    ack(shard, 20)
    assert shard.snapshot().verified_until_ms == 500
    assert shard.snapshot().at_tip


def test_a_first_state_is_stored_unchanged_until_a_record_is_acked() -> None:
    state = ShardState(shard_id=SHARD, read_position=TRIM_HORIZON)
    shard = tracked(page_of([1]), state=state)
    assert shard.snapshot() == state
    emit(shard)
    assert replace(shard.snapshot(), verified_until_ms=None) == state
