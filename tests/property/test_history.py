"""The history of positions is bounded, and thinned without getting ahead. That whoever goes back
lands after no record that was not acked then is a promise of the simulation.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from state.moves import (
    MAX_ENTRIES,
    earlier,
    max_entries,
    past_at,
    to_drop,
)
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.store.history import HistoryEntry
from state.znodes.history import mark_of

RETENTION_MS = 3_600_000


def position(number: int) -> Position:
    return Position.after(SequenceNumber(number)) if number else TRIM_HORIZON


@given(
    gaps_ms=st.lists(st.integers(1, 100_000), min_size=1, max_size=700),
    moves=st.sets(st.integers(0, 700), max_size=40),
    kept=st.integers(4, 60),
)
def test_the_history_is_bounded_and_thinned_without_getting_ahead(
    gaps_ms: list[int], moves: set[int], kept: int
) -> None:
    """A position counts from a later time on, or not at all any more; and the retention is kept."""
    entries: list[HistoryEntry] = []
    time_ms, number = 0, 0
    truth: list[tuple[int, int]] = []
    for at, gap_ms in enumerate(gaps_ms):
        time_ms += gap_ms
        number = number // 2 if at in moves else number + 1
        moved = at in moves
        entries.append(
            HistoryEntry(
                time_ms=time_ms,
                positions={"a": position(number + 1)},
                full=True,
                cause="set" if moved else None,
            )
        )
        truth.append((time_ms, number + 1))
        marks = [mark_of(index, one) for index, one in enumerate(entries)]
        drops = to_drop(marks, now_ms=time_ms, horizon_ms=time_ms - RETENTION_MS, max_kept=kept)
        entries = [one for one, mark in zip(entries, marks, strict=True) if mark not in drops]
        assert len(entries) <= kept + 1
    for at_ms, number in truth:
        past = past_at(entries, at_ms)
        if past is not None:
            assert earlier(past.positions["a"], position(number)) == past.positions["a"]
        if not moves and len(truth) <= kept and at_ms >= truth[-1][0] - RETENTION_MS:
            assert past is not None
            assert past.positions["a"] == position(number)
    assert max_entries(1) == MAX_ENTRIES
