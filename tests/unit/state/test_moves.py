"""An operator's moves, and the history to go back in."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from state.moves import (
    changes,
    earlier,
    held_since_ms,
    moved_state,
    never_settling,
    newest_move,
    past_at,
    to_drop,
)
from state.plan import Plan, ShardSlice, TaskPlan
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.history import HistoryEntry, HistoryMark, OperatorMove

SHARD = "shardId-000000000003"


STATE = ShardState(shard_id=SHARD, read_position=Position.after(SequenceNumber(20)))


def test_a_plan_of_before_a_move_counts_as_settled_in_the_moved_shards() -> None:
    """It would fit the state otherwise as soon as the shard is where the plan began, and what it
    read would not be read again.
    """
    slices = (ShardSlice(shard_id=SHARD, position=STATE.read_position, max_records=10),)
    plan = Plan(
        plan_id="7-aa",
        created_ms=0,
        tasks=(TaskPlan(shards=slices, max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1),),
    )
    assert never_settling(STATE, plan).settled_plan == "7-aa"
    moved = moved_state(STATE, Position.parse("AT:5"), verified_until_ms=1)
    assert never_settling(moved, plan) == replace(moved, settled_plan="7-aa")
    other = replace(STATE, shard_id="other")
    assert never_settling(other, plan) is other
    assert never_settling(STATE, None) is STATE


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
        (99_000, {"a": after(4), "c": TRIM_HORIZON}),
    ],
)
def test_the_last_entry_up_to_the_time_tells_where_a_shard_was(
    time_ms: int, told: dict[str, Position] | None
) -> None:
    """After a move its entry counts, though a shard was further once; and what was removed is not
    there any more. So it is just before it: its time may be late. It is known until when a shard
    was not there.
    """
    past = past_at(ENTRIES, time_ms)
    assert (None if past is None else past.positions) == told
    if past is not None and time_ms < 40_000:
        assert past.absent_until_ms == {"c": 20_000}
        assert past.later == frozenset() if "c" in past.positions else frozenset("c")


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


@pytest.mark.parametrize(
    ("times_ms", "moved", "kept", "horizon_ms", "dropped"),
    [
        ((0, 10_000, 20_000, 80_000, 90_000), None, 5, None, []),
        ((0, 10_000, 20_000, 80_000, 90_000), None, 4, None, [1]),
        ((0, 10_000, 20_000, 80_000, 90_000), None, 3, None, [1, 3]),
        ((0, 10, 20, 30, 40), 2, 4, None, [3]),
        ((0, 10, 20), 1, 2, None, [0]),
        ((0, 10_000, 20_000, 30_000), None, 9, 9_999, []),
        ((0, 10_000, 20_000, 30_000), None, 9, 10_000, [0]),
    ],
)
def test_the_entry_is_dropped_whose_gap_is_smallest_for_its_age(
    times_ms: tuple[int, ...], moved: int | None, kept: int, horizon_ms: int, dropped: list[int]
) -> None:
    """Nothing while there is room; two that follow each other stay apart. Neither a move nor the
    entry before it: one goes back to just before it. Of those before the retention the last stays.
    """
    marks = [mark(*each, moved=each[0] == moved) for each in enumerate(times_ms)]
    now_ms = times_ms[-1] + 1
    drops = to_drop(marks, now_ms=now_ms, horizon_ms=horizon_ms, max_kept=kept)
    assert [each.number for each in drops] == dropped


def mark(number: int, time_ms: int, *, full: bool = True, moved: bool = False) -> HistoryMark:
    return HistoryMark(number=number, time_ms=time_ms, full=full, moved=moved)


@pytest.mark.parametrize(("horizon_ms", "dropped"), [(39, [4]), (40, [0, 1, 2, 3])])
def test_entries_with_some_shards_stay_with_the_one_before_them_until_they_are_over(
    horizon_ms: int, dropped: list[int]
) -> None:
    """Earlier versions wrote them, and each needs those before it."""
    marks = [mark(at, 10 * at, full=at not in {1, 2, 3}) for at in range(8)]
    drops = to_drop(marks, now_ms=80, horizon_ms=horizon_ms, max_kept=4)
    assert [each.number for each in drops] == dropped


def test_the_newest_move_tells_which_shards_it_has_set_back() -> None:
    """Shard b is removed by it, and c stays where it is."""
    assert newest_move(ENTRIES) == OperatorMove(cause="set", time_ms=40_000, back=frozenset({"a"}))
    assert newest_move(ENTRIES[:3]) is None
    both_ways = [
        entry(1, full=True, a=after(5), b=after(5)),
        *(entry(at, full=True, cause="set", a=after(2), b=after(at + 3)) for at in (2, 6)),
    ]
    assert newest_move(both_ways) == OperatorMove(
        cause="set", time_ms=6, back=frozenset({"a"}), forward=frozenset({"b"})
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
