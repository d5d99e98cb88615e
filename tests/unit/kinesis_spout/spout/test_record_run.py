"""A run of emitted records, and the byte of state per record."""

from __future__ import annotations

from kinesis_spout.spout.record_run import ACKED, PENDING, RecordRun
from tests.support.spout.spout_pages import page_of, payload, run_of
from tests.support.state.tracker import seq


def emitted(count: int, *, of: int = 4, deadline_ms: int | None = None) -> RecordRun:
    """A run with the first `count` records emitted, as `TrackedShard.emit` does it."""
    run = run_of(*range(1, of + 1))
    for index in range(count):
        run.states[index] = PENDING
        run.emitted += 1
        if deadline_ms is not None:
            run.deadlines.append(deadline_ms + index)
    return run


def resolve(run: RecordRun, *indices: int) -> None:
    for index in indices:
        run.states[index] = ACKED
        run.unacked -= 1


def test_a_run_has_the_records_of_its_page() -> None:
    run = RecordRun(*page_of([7, 8]).columns.lists())
    assert (run.texts, run.data, run.keys, run.arrivals) == (
        ["7", "8"],
        [payload(7), payload(8)],
        ["key 7", "key 8"],
        [7, 8],
    )
    assert (run.size, run.emitted, run.unacked, run.payload_bytes) == (2, 0, 2, 16)


def test_stretches_are_records_of_one_state_that_follow_each_other() -> None:
    run = emitted(4)
    resolve(run, 1, 2)
    assert list(run.stretches()) == [
        (PENDING, range(1)),
        (ACKED, range(1, 3)),
        (PENDING, range(3, 4)),
    ]


def test_stretches_leave_out_records_that_were_not_emitted() -> None:
    assert list(emitted(1).stretches()) == [(PENDING, range(1))]
    assert list(emitted(0).stretches()) == []


def test_cut_keeps_the_emitted_records_and_returns_the_rest() -> None:
    run = emitted(1)
    rest = run.cut()
    assert (run.texts, run.size, run.emitted, run.unacked) == (["1"], 1, 1, 1)
    assert (rest.texts, rest.data, rest.emitted, rest.size) == (
        ["2", "3", "4"],
        [payload(2), payload(3), payload(4)],
        0,
        3,
    )


def test_the_earliest_deadline_is_that_of_the_first_pending_record() -> None:
    run = emitted(3, deadline_ms=100)
    assert run.next_deadline_ms() == 100
    resolve(run, 0, 1)
    assert (run.oldest_pending(), run.next_deadline_ms()) == (2, 102)
    resolve(run, 2)
    assert (run.oldest_pending(), run.next_deadline_ms()) == (None, None)
    assert emitted(2).next_deadline_ms() is None


def test_a_record_is_found_by_its_number_once_it_was_emitted() -> None:
    run = emitted(2)
    assert [run.index_of(seq(number)) for number in (1, 2, 3, 99)] == [0, 1, None, None]


def test_extend_appends_the_records_of_another_run() -> None:
    run = run_of(1)
    run.extend(run_of(2, 3))
    assert (run.texts, run.size, len(run.states), run.unacked) == (["1", "2", "3"], 3, 3, 3)
