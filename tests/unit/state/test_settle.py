from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from state.errors import PlanMismatchError
from state.plan import ChildShard, ShardReadResult
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.settle import child_states, children_first, settle_shard
from state.shard_state import FIRST_READ_GRACE_MS, ShardState
from state.store.shard_states import StateChange, StoredState
from tests.support.state.tracker import SHARD, fresh_state, seq

END = ShardReadResult(shard_id=SHARD, first=seq(10), last=seq(99), count=50, last_arrival_ms=7_000)
EMPTY = ShardReadResult(shard_id=SHARD, at_tip=True, tip_ms=9_000)
READ = ShardState(
    shard_id=SHARD,
    checkpoint=seq(99),
    read_position=Position.after(seq(99)),
    settled_plan="4-a",
    verified_until_ms=7_000,
)


def test_settling_again_changes_nothing() -> None:
    """A plan with the same number and another nonce is a different plan."""
    assert settle_shard(READ, END, "4-a") is READ
    assert settle_shard(READ, EMPTY, "4-b").settled_plan == "4-b"


def test_a_plan_before_the_last_settled_one_is_refused() -> None:
    """Plans are ordered by number, not as texts."""
    told = f"^plan 3-b does not fit the state of shard {SHARD}: plan 4-a is settled into it already"
    with pytest.raises(PlanMismatchError, match=told):
        settle_shard(READ, EMPTY, "3-b")
    with pytest.raises(PlanMismatchError, match="plan 10-a is settled into it already"):
        settle_shard(replace(READ, settled_plan="10-a"), EMPTY, "9-a")


def test_an_empty_read_leaves_the_position_and_verifies_up_to_its_tip() -> None:
    """No record can have been missed before the time at which the service reported the tip."""
    assert settle_shard(fresh_state(), EMPTY, "4-a") == replace(
        fresh_state(), settled_plan="4-a", verified_until_ms=9_000, at_tip=True
    )
    assert settle_shard(READ, EMPTY, "5-a") == replace(
        READ, settled_plan="5-a", verified_until_ms=9_000, at_tip=True
    )


def test_the_verified_time_never_moves_back() -> None:
    """Arrival times are not in order. A read that knows no time changes nothing."""
    assert (
        settle_shard(replace(fresh_state(), verified_until_ms=8_000), END, "4-a").verified_until_ms
        == 8_000
    )
    assert settle_shard(fresh_state(), replace(EMPTY, tip_ms=None), "4-a").verified_until_ms is None
    assert settle_shard(fresh_state(), replace(END, tip_ms=9_500), "4-a").verified_until_ms == 9_500


def test_the_first_read_of_a_backlog_verifies_what_it_has_read_and_some_minutes() -> None:
    """Of an application that has begun, the time of the start says nothing of records that are
    older: they may expire before they are read. Later reads are a shard's first no more.
    """
    begun = replace(fresh_state(), verified_until_ms=86_400_000)
    first = settle_shard(begun, END, "4-a")
    assert END.last_arrival_ms is not None
    assert first.verified_until_ms == END.last_arrival_ms + FIRST_READ_GRACE_MS
    assert settle_shard(begun, EMPTY, "4-a").verified_until_ms == begun.verified_until_ms
    tip = replace(END, at_tip=True, tip_ms=90_000_000)
    assert settle_shard(begun, tip, "4-a").verified_until_ms == 90_000_000
    late = replace(begun, read_position=Position.after(seq(9)))
    assert settle_shard(late, END, "4-a").verified_until_ms == late.verified_until_ms


@pytest.mark.parametrize(
    ("state", "refused"),
    [
        ({"read_position": Position.after(seq(10))}, True),
        ({"read_position": Position.at(seq(11))}, True),
        ({"read_position": SHARD_END}, True),
        ({"checkpoint": seq(10)}, True),
        ({"read_position": Position.after(seq(9))}, False),
        ({"read_position": Position.at(seq(10))}, False),
        ({"read_position": Position.at_timestamp(5)}, False),
    ],
)
def test_a_read_before_the_position_or_the_checkpoint_is_refused(
    state: dict[str, Any], *, refused: bool
) -> None:
    """It would move the checkpoint back, or ack records that were never read. AT includes its
    record, AFTER does not.
    """
    before = replace(fresh_state(), **state)
    if refused:
        with pytest.raises(PlanMismatchError, match=f"shard {SHARD}: emission of 10 .*not allowed"):
            settle_shard(before, END, "4-a")
    else:
        assert settle_shard(before, END, "4-a").checkpoint == seq(99)


def test_a_range_of_which_nothing_was_handed_over_is_passed() -> None:
    """The shard owns none of the user records of its aggregates."""
    for last in (seq(10), seq(99)):
        state = settle_shard(fresh_state(), replace(END, last=last, count=0), "4-a")
        assert (state.read_position, state.checkpoint) == (Position.after(last), last)


@pytest.mark.parametrize(
    "end",
    [
        replace(END, shard_id="shardId-1"),
        replace(END, count=-1),
        replace(END, first=None),
        replace(END, last=None),
        replace(EMPTY, count=1),
        replace(END, first=seq(99), last=seq(10)),
        replace(END, last=seq(10), count=2),
        replace(END, count=1),
    ],
)
def test_a_read_result_of_another_shard_or_that_contradicts_itself_is_refused(
    end: ShardReadResult,
) -> None:
    """Descending numbers, too, or more or fewer records than the numbers allow. The error names the
    shard.
    """
    with pytest.raises(
        ValueError if end.shard_id != SHARD else PlanMismatchError,
        match=f"shard {end.shard_id}[ :]",
    ):
        settle_shard(fresh_state(), end, "4-a")


def test_a_text_that_is_not_a_plan_id_is_refused() -> None:
    """Before it is written into a state that could then no longer be settled."""
    with pytest.raises(ValueError, match="is not a plan id"):
        settle_shard(fresh_state(), END, "four")


def test_children_start_at_their_oldest_record_with_their_parents_kept() -> None:
    """Whatever the application's start was. A known child keeps its state, and a child that is
    named twice gets one state.
    """
    left, right = (
        ChildShard(shard_id="shardId-1", parents=(SHARD,)),
        ChildShard(shard_id="shardId-2", parents=(SHARD, "shardId-9")),
    )
    end = replace(END, at_shard_end=True, children=(left, right, right))
    expected_right = ShardState(
        shard_id="shardId-2", read_position=TRIM_HORIZON, parents=(SHARD, "shardId-9")
    )
    assert child_states(end, {"shardId-1"}) == [expected_right]
    assert [state.shard_id for state in child_states(end, [])] == ["shardId-1", "shardId-2"]
    assert child_states(END, []) == []


def test_states_of_new_children_come_before_those_of_their_parents_once_each() -> None:
    """A child that two parents name, as after a merge, gets one state; a known child gets none."""
    merged = ChildShard(shard_id="shardId-3", parents=(SHARD, "shardId-1"))
    known = ChildShard(shard_id="shardId-2", parents=(SHARD,))
    ends = [
        replace(END, shard_id=shard_id, at_shard_end=True, children=children)
        for shard_id, children in ((SHARD, (known, merged)), ("shardId-1", (merged,)))
    ]
    stored = StoredState(state=fresh_state(), version=1)
    parent = StateChange(before=stored, after=replace(stored.state, settled_plan="p"))
    found = children_first([parent], ends, {SHARD, "shardId-1", "shardId-2"}, tracked_since_ms=7)
    child = ShardState(
        shard_id="shardId-3",
        read_position=TRIM_HORIZON,
        parents=(SHARD, "shardId-1"),
        verified_until_ms=7,
    )
    assert found == [StateChange(before=None, after=child), parent]
