"""The history of positions: what it tells of a time, and what is dropped of it."""

from __future__ import annotations

import dataclasses

import pytest

from state.moves.history import (
    MAX_ENTRIES,
    MAX_LOOKED_AT,
    MIN_ENTRIES,
    changes,
    earlier,
    held_since_ms,
    max_entries,
    merged,
    newest_move,
    past_at,
    to_drop,
    worth_reading,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.state_store import HistoryEntry, HistoryMark, OperatorMove


def after(number: int) -> Position:
    return Position.after(SequenceNumber(number))


def entry(
    time_ms: int, *, full: bool = False, cause: str | None = None, **positions: Position
) -> HistoryEntry:
    return HistoryEntry(time_ms=time_ms, positions=positions, full=full, cause=cause)


ENTRIES = [
    entry(10_000, full=True, a=after(1), b=TRIM_HORIZON),
    entry(20_000, a=after(5)),
    entry(30_000, a=SHARD_END, c=TRIM_HORIZON),
    entry(40_000, full=True, cause="set", a=after(3), c=TRIM_HORIZON),
    entry(50_000, a=after(4)),
]


@pytest.mark.parametrize(
    ("time_ms", "told"),
    [
        (9_000, None),
        (10_000, {"a": after(1), "b": TRIM_HORIZON}),
        (29_000, {"a": after(5), "b": TRIM_HORIZON}),
        (34_999, {"a": SHARD_END, "b": TRIM_HORIZON, "c": TRIM_HORIZON}),
        (35_000, {"a": after(3), "c": TRIM_HORIZON}),
        (49_000, {"a": after(3), "c": TRIM_HORIZON}),
        (99_000, {"a": after(4), "c": TRIM_HORIZON}),
    ],
)
def test_the_last_entry_up_to_the_time_tells_where_a_shard_was(
    time_ms: int, told: dict[str, Position] | None
) -> None:
    """After a move its entry counts, though a shard was further once; and what was removed is not
    there any more. So it is just before it: its time may be late.
    """
    past = past_at(ENTRIES, time_ms)
    assert (None if past is None else past.positions) == told


def test_how_long_a_shard_was_not_there_is_told() -> None:
    """By the last entry without it. One that is in all entries may be older than the history."""
    told = past_at(ENTRIES, 34_000)
    assert told is not None
    assert told.absent_until_ms == {"c": 20_000}
    before = past_at(ENTRIES, 10_000)
    assert before is not None
    assert before.absent_until_ms == {"c": 20_000}


def test_a_shard_that_is_in_later_entries_only_is_named() -> None:
    past = past_at(ENTRIES, 25_000)
    assert past is not None
    assert (past.time_ms, past.later) == (20_000, frozenset("c"))


def test_entries_count_in_the_order_in_which_they_were_written() -> None:
    """One of a clock that was ahead counts as soon as a later one does."""
    ahead = [ENTRIES[0], entry(90_000, a=after(5)), entry(20_000, b=after(2))]
    for time_ms, a, b in ((19_000, 1, None), (20_000, 5, 2)):
        past = past_at(ahead, time_ms)
        assert past is not None
        assert past.positions == {"a": after(a), "b": TRIM_HORIZON if b is None else after(b)}


def test_the_earlier_of_two_positions() -> None:
    """Of a time and a number nobody knows it, so it is the oldest record."""
    at = Position.at(SequenceNumber(5))
    user = Position.at(SequenceNumber(5, 2))
    ascending = [TRIM_HORIZON, after(4), at, user, Position.after(SequenceNumber(5, 2)), after(5)]
    for number, low in enumerate([*ascending, SHARD_END]):
        for high in [*ascending, SHARD_END][number:]:
            assert earlier(low, high) == earlier(high, low) == low
    times = Position.at_timestamp(1), Position.at_timestamp(2)
    assert earlier(*times) == earlier(*reversed(times)) == times[0]
    assert earlier(times[0], at) == earlier(at, times[0]) == TRIM_HORIZON


def test_changes_are_told_from_one_entry_to_the_next() -> None:
    """A full entry tells what is removed, too, and nothing of what has not changed."""
    told = [changed for _, changed in changes(ENTRIES)]
    assert told == [
        {"a": (None, after(1)), "b": (None, TRIM_HORIZON)},
        {"a": (after(1), after(5))},
        {"a": (after(5), SHARD_END), "c": (None, TRIM_HORIZON)},
        {"a": (SHARD_END, after(3)), "b": (TRIM_HORIZON, None)},
        {"a": (after(3), after(4))},
    ]


def test_a_merged_entry_tells_of_its_time_what_both_did() -> None:
    """So does the next one alone, if it is full. A shard may be older, as far as is known then."""
    for at in (0, 1, 3):
        one = merged(ENTRIES[at], ENTRIES[at + 1])
        left = [*ENTRIES[:at], one, *ENTRIES[at + 2 :]]
        for entry_ in ENTRIES[at + 1 :]:
            told, whole = past_at(left, entry_.time_ms), past_at(ENTRIES, entry_.time_ms)
            assert told is not None
            assert whole is not None
            assert dataclasses.replace(told, absent_until_ms={}) == dataclasses.replace(
                whole, absent_until_ms={}
            )
            for shard, absent_ms in told.absent_until_ms.items():
                assert absent_ms <= whole.absent_until_ms[shard]
    assert merged(ENTRIES[2], ENTRIES[3]) is ENTRIES[3]


def marks(*times_ms: int, moved: int | None = None) -> list[HistoryMark]:
    return [
        HistoryMark(number=number, time_ms=time_ms, full=not number, moved=number == moved)
        for number, time_ms in enumerate(times_ms)
    ]


def drops(found: list[HistoryMark], max_kept: int, horizon_ms: int | None = None) -> list[int]:
    return to_drop(found, now_ms=found[-1].time_ms + 1, horizon_ms=horizon_ms, max_kept=max_kept)


def test_the_entry_is_dropped_whose_gap_is_smallest_for_its_age() -> None:
    """Nothing while there is room; two that follow each other stay apart."""
    found = marks(0, 10_000, 20_000, 80_000, 90_000)
    assert drops(found, 5) == []
    assert drops(found, 4) == [1]
    assert drops(found, 3) == [1, 3]


def test_neither_a_move_nor_the_entry_before_it_is_dropped() -> None:
    """One goes back to just before it. If nothing else is left, the history begins later."""
    found = marks(0, 10, 20, 30, 40, moved=2)
    assert drops(found, 4) == [3]
    assert drops(marks(0, 10, 20, moved=1), 2) == [0]


def test_of_the_entries_before_the_retention_the_last_one_stays() -> None:
    found = marks(0, 10_000, 20_000, 30_000)
    assert drops(found, 9, horizon_ms=9_999) == []
    assert drops(found, 9, horizon_ms=10_000) == [0]


def test_fewer_entries_are_kept_of_many_shards() -> None:
    assert [max_entries(shards) for shards in (0, 1_000, 10_000, 10**6)] == [
        MAX_ENTRIES,
        MAX_ENTRIES,
        50,
        MIN_ENTRIES,
    ]


def test_the_newest_move_tells_which_shards_it_has_set_back() -> None:
    """Shard b is removed by it, and c stays where it is."""
    assert newest_move(ENTRIES) == OperatorMove(cause="set", time_ms=40_000, back=frozenset({"a"}))
    assert newest_move(ENTRIES[:3]) is None
    forward = [entry(1, full=True, a=after(1)), entry(2, full=True, cause="set", a=after(2))]
    assert newest_move(forward) == OperatorMove(cause="set", time_ms=2, forward=frozenset({"a"}))
    both_ways = [
        entry(1, full=True, a=after(5), b=after(5)),
        entry(2, full=True, cause="set", a=after(2), b=after(5)),
        entry(3, full=True, cause="set", a=after(2), b=after(9)),
    ]
    assert newest_move(both_ways) == OperatorMove(
        cause="set", time_ms=3, back=frozenset({"a"}), forward=frozenset({"b"})
    )


def test_since_when_a_record_is_unresolved_is_told_by_the_entries_that_have_it() -> None:
    """By then it was, and it may have been before. What was before a move tells nothing."""

    def held(number: int) -> ShardState:
        one = SequenceNumber(number)
        record = UnresolvedRecord(first=one, last=one, attempts=0, due_ms=0)
        return ShardState(shard_id="a", read_position=after(9), unresolved=(record,))

    at = Position.at(SequenceNumber(3))
    entries = [entry(5, a=at), entry(10, a=after(1)), entry(20, a=at), entry(30, b=after(1))]
    assert held_since_ms([*entries, entry(40, full=True, a=at)], {"a": held(3)}) == {"a": 20}
    assert held_since_ms([*entries, entry(40, a=after(4))], {"a": held(3)}) == {}
    assert held_since_ms([*entries, entry(40, full=True)], {"a": held(3)}) == {}
    moved = entry(40, full=True, cause="set", a=at)
    assert held_since_ms([*entries, moved], {"a": held(3)}) == {}


def test_who_only_looks_reads_few_entries() -> None:
    """The newest ones, and those that tell of the newest move."""
    marks = [
        HistoryMark(number=at, time_ms=at, full=at in {0, 2, 5}, moved=at == 5)
        for at in range(MAX_ENTRIES)
    ]
    read = [one.number for one in worth_reading(marks, 4)]
    assert read[:4] == [2, 3, 4, 5]
    assert read[4:] == list(range(MAX_ENTRIES - MAX_LOOKED_AT, MAX_ENTRIES))
    assert len(worth_reading(marks, 10_000)) == 9
    assert worth_reading([], 4) == []
