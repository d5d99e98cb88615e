from __future__ import annotations

from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord, by_the_time


def failed(number: int, failed_ms: int | None, *, due_ms: int) -> UnresolvedRecord:
    one = SequenceNumber(number)
    return UnresolvedRecord(
        first=one,
        last=one,
        attempts=2,
        due_ms=due_ms,
        first_failure_ms=None if failed_ms is None else failed_ms - 10,
        last_failure_ms=failed_ms,
    )


def test_a_record_that_failed_by_a_clock_that_was_ahead_waits_as_long_as_it_was_to_wait() -> None:
    """One that failed by now keeps its times."""
    before = (failed(1, 900, due_ms=1_200), failed(2, 50_000, due_ms=50_300))
    assert by_the_time(before, 1_000) == (before[0], failed(2, 1_000, due_ms=1_300))
    by_now = (failed(1, 1_000, due_ms=9_000), failed(2, None, due_ms=0))
    assert by_the_time(by_now, 1_000) is by_now
