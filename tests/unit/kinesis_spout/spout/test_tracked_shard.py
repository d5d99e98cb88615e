"""One shard of the spout, and the scheduler of several: what random histories do not meet. These
are in tests/property/test_tracked_shard.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from kinesis_spout.spout.scheduler import SpoutScheduler
from kinesis_spout.spout.tracked_shard import (
    LOOK_AGAIN_MS,
    RETRIES_IN_A_ROW,
    RecordRun,
    RetryBuffer,
    TrackedShard,
)
from state.position import TRIM_HORIZON, Position
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.tracker.transitions import Effect
from tests.support.spout.spout_pages import (
    FakePages,
    limits,
    page_of,
    run_of,
    tracked,
    tracked_from,
)
from tests.support.state.shard_values import waiting
from tests.support.state.tracker import POLICY, SHARD, make_tracker, seq

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.reading.page import Page
    from kinesis_spout.spout.emission import SpoutEmission

NO_RETRY = RetryPolicy(retry_limit=0)
DUE_MS = 100  # when the first retry of a failure at 0 is due
A, B = "shardId-0a", "shardId-0b"


def emit(shard: TrackedShard, count: int = 1, *, now_ms: int = 0) -> list[int]:
    """The numbers of the next records."""
    deliveries = [shard.emit(now_ms, None, new=True) for _ in range(count)]
    return [one.sequence.sequence for one in deliveries if one is not None]


def ack(shard: TrackedShard, number: int) -> int | None:
    found = shard.find(seq(number), 1)
    assert found is not None
    return shard.mark_acked(found)


def fail(shard: TrackedShard, number: int) -> Effect:
    found = shard.find(seq(number), 1)
    assert found is not None
    return shard.mark_failed(found, 0, reason="no", max_held_bytes=1 << 20)


def stored(*records: UnresolvedRecord, read_to: int = 9) -> ShardState:
    return ShardState(
        shard_id=SHARD, read_position=Position.after(seq(read_to)), unresolved=records
    )


def test_a_record_that_was_postponed_or_acked_while_it_was_being_read_is_not_read_again() -> None:
    """Reading took so long that the retry was due and postponed again before its payload came."""
    state = stored(waiting(1), waiting(2), read_to=99)
    records = RetryBuffer(make_tracker(state=state))
    wanted = records.wanted(0)
    assert records.due_retry(LOOK_AGAIN_MS) is None
    records._tracker.ack(seq(1), 1)
    for record in wanted:
        records.restock(record, run_of(record.first.sequence), LOOK_AGAIN_MS)
    assert records.wanted(LOOK_AGAIN_MS) == []
    assert seq(1) not in records.runs
    assert records.due_retry(LOOK_AGAIN_MS) == seq(2)


def test_due_retries_go_before_new_records_but_do_not_starve_them() -> None:
    shard = tracked(page_of(range(1, 20)))
    emit(shard, 10)
    for number in range(1, 11):
        fail(shard, number)
    came = emit(shard, 7, now_ms=DUE_MS)
    assert came == [*range(1, RETRIES_IN_A_ROW + 1), 11, 5, 6]


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
    assert (state.end_was_read, state.lifecycle) == (False, Lifecycle.ACTIVE)
    assert state.read_position == Position.after(seq(3))
    assert [(one.first, one.attempts) for one in state.unresolved] == [(seq(1), 0)]
    fail(shard, 1)
    assert (shard.snapshot().end_was_read, shard.snapshot().lifecycle) == (True, Lifecycle.DRAINED)
    assert emit(shard, now_ms=DUE_MS) == [1]
    assert shard.snapshot().end_was_read


@pytest.mark.parametrize("left", [(3, 5, 6), (5, 6)])
def test_a_restored_range_becomes_single_records_and_a_letter_for_those_that_are_gone(
    left: tuple[int, ...],
) -> None:
    """One stands for all that are missing, where the first of them is."""
    shard = tracked_from(FakePages(), state=stored(waiting(3, 6, attempts=2)))
    assert emit(shard) == []
    (wanted,) = shard.held.wanted(0)
    shard.held.restock(wanted, run_of(*left), 0)
    deliveries = [shard.emit(0, None, new=True) for _ in range(4)]
    assert [(one.run.texts, one.attempt) for one in deliveries if one is not None] == [
        ([str(number)], 3) for number in left
    ]
    letters = shard.held.letters()
    assert len(letters) == (3 not in left)
    for letter in letters:
        assert (letter.first, letter.attempts, shard.held.runs[seq(3)].size) == (seq(3), 2, 0)
        assert "2 of 4 records up to 6 were past the stream's" in (letter.reason or "")
        assert shard.snapshot().unresolved[0].rejected
        shard.mark_dead_lettered(seq(3))
    assert [one.first for one in shard.snapshot().unresolved] == [*map(seq, left)]


def scheduled(
    *pages: Page,
    restored: tuple[UnresolvedRecord, ...] = (),
    policy: RetryPolicy = POLICY,
    now_ms: Callable[[], float] = lambda: 0,
) -> SpoutScheduler:
    """A scheduler of shard A, with records that wait for a retry, if any."""
    spout = SpoutScheduler(limits(), now_ms)
    position = Position.after(seq(9 if restored else 0))
    state = ShardState(shard_id=A, read_position=position, unresolved=restored)
    spout.add(tracked_from(FakePages(*pages), state=state, policy=policy))
    return spout


def out(spout: SpoutScheduler, count: int = 1) -> list[SpoutEmission]:
    deliveries = (spout.emit() for _ in range(count))
    return [delivery for delivery in deliveries if delivery is not None]


def test_a_retry_of_an_earlier_page_goes_before_new_records_of_the_next() -> None:
    """Although the new records were granted before it failed."""
    now = [0]
    spout = scheduled(page_of([1, 2]), page_of([3, 4, 5]), now_ms=lambda: now[0])
    first, *_ = out(spout, 3)
    spout.record_failure(first, "no")
    now[0] = DUE_MS
    assert [one.sequence for one in out(spout, 2)] == [seq(1), seq(4)]


@pytest.mark.parametrize("policy", [POLICY, NO_RETRY], ids=["queued", "exhausted"])
def test_an_ack_of_the_first_record_of_a_range_does_not_ack_the_others(policy: RetryPolicy) -> None:
    """The id names one record. The others that were collapsed into its range were not processed."""
    spout = scheduled(restored=(waiting(3, 6),), policy=policy)
    assigned = spout.assigned[A]
    assert not spout.answer_unheld(A, seq(3), 1, acked=True)
    held = assigned.shard.held
    for record in [*held.wanted(0), *held.wanted_letters()]:
        held.restock(record, run_of(3, 4, 5, 6), 0)
    if policy is NO_RETRY:
        assert assigned.shard.find(seq(3), 1) is None
    assert assigned.shard.unresolved == 4


def test_outcomes_of_a_released_shard_are_ignored_and_its_counts_are_kept() -> None:
    spout = scheduled(page_of([1, 2]))
    first, second = out(spout, 2)
    spout.remove(A)
    assert not spout.resolve(first)
    assert spout.record_failure(second, "no") is Effect.UNKNOWN
    assert (spout.rotation.pending, spout.released_counts.emitted, spout.released_counts.acked) == (
        0,
        2,
        0,
    )


def test_a_payload_that_comes_after_its_shard_was_released_is_dropped() -> None:
    """It was read again for its retry while the shard was given up. The next call for a record
    finds no shard of that name.
    """
    spout = scheduled(restored=(waiting(1),))
    ((assigned, wanted),) = spout.wanted(letters=False)
    spout.remove(A)
    spout.restock(assigned, [(record, run_of(1)) for record in wanted])
    assert spout.emit() is None


def test_payloads_of_many_letters_are_taken_without_a_search_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No record goes out meanwhile. After a restart a shard may have all of them to read again."""
    count = 500
    records = tuple(map(waiting, range(1, count + 1)))
    shard = tracked_from(FakePages(), state=stored(*records, read_to=count), policy=NO_RETRY)
    wanted = shard.held.wanted_letters()
    compare = SequenceNumber.__eq__
    comparisons = 0

    def counting(one: SequenceNumber, other: object) -> bool:
        nonlocal comparisons
        comparisons += 1
        return compare(one, other)

    with monkeypatch.context() as counted:
        counted.setattr(SequenceNumber, "__eq__", counting)
        for number, record in enumerate(wanted, start=1):
            shard.held.restock(record, run_of(number), 0)
    assert len(shard.held.letters()) == count
    assert comparisons < 10 * count


def test_the_payload_of_a_refused_range_is_kept_where_no_other_letter_needs_its_room() -> None:
    """A range has one letter, however many records it has. Else it would be read again and again
    from Kinesis.
    """
    spout = scheduled(restored=(waiting(3, 6),), policy=NO_RETRY)
    half_bytes = limits().prefetch_bytes // 2
    full = RecordRun(*page_of([3, 4, 5, 6], size=half_bytes // 4).columns.lists())
    ((assigned, (letter,)),) = spout.wanted(letters=True)
    spout.restock(assigned, [(letter, full)])
    assert spout.room_bytes(letters=True) == 0
    spout.letter_refused(assigned, letter.first)
    assert spout.wanted(letters=True) == [(assigned, [])]


def test_an_isolated_delivery_of_a_released_shard_does_not_hold_up_the_others() -> None:
    spout = scheduled(page_of([1]))
    other = ShardState(shard_id=B, read_position=TRIM_HORIZON)
    spout.add(tracked_from(FakePages(page_of([2])), state=other))
    spout.rotation.isolate(5)
    assert out(spout) == []
    spout.remove(A)
    assert spout.rotation.pending == 0
    assert out(spout) == []
    isolated = spout.rotation.isolation.emission
    assert isolated is not None
    assert isolated.shard_id == B
