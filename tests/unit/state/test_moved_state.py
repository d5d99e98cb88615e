"""A shard's state after an operator has moved it."""

from __future__ import annotations

import pytest

from state.moves import moved_state, never_settling
from state.plan import Plan, ShardSlice, TaskPlan
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord

SHARD = "shardId-000000000003"


def unresolved(first: str, last: str | None = None, *, whole: bool = False) -> UnresolvedRecord:
    return UnresolvedRecord(
        first=SequenceNumber.parse(first),
        last=SequenceNumber.parse(last or first),
        count=1 if last is None else 2,
        attempts=2,
        due_ms=7,
        whole=whole,
    )


# Read up to 20. 12 failed, and so did user record 2 of 14, and something from 16 to 18.
STATE = ShardState(
    shard_id=SHARD,
    checkpoint=SequenceNumber(11),
    read_position=Position.after(SequenceNumber(20)),
    unresolved=(unresolved("12"), unresolved("14.2"), unresolved("16", "18")),
    verified_until_ms=100,
    at_tip=True,
)


@pytest.mark.parametrize(
    ("to", "kept", "checkpoint"),
    [
        ("TRIM_HORIZON", 0, None),
        ("AFTER:5", 0, 5),
        ("AT:12", 0, 11),
        ("AFTER:12", 1, 11),
        ("AT:14.2", 1, 11),
        ("AFTER:14.2", 2, 11),
        ("AT:14.3", 2, 11),
        ("AFTER:18", 3, 11),
        ("2026-01-01T00:00:00Z", 3, 11),
        ("SHARD_END", 3, 11),
    ],
)
def test_what_was_unresolved_before_the_position_stays(
    to: str, kept: int, checkpoint: int | None
) -> None:
    """Whatever is read again is dropped, and the checkpoint is what is still known."""
    after = moved_state(STATE, Position.parse(to), verified_until_ms=50)
    assert after.unresolved == STATE.unresolved[:kept]
    assert after.checkpoint == (None if checkpoint is None else SequenceNumber(checkpoint))
    assert (after.verified_until_ms, after.at_tip) == (50, False)
    assert after.lifecycle is (Lifecycle.DRAINED if to == "SHARD_END" else Lifecycle.ACTIVE)


def test_a_plan_that_read_from_where_the_shard_is_moved_to_counts_as_settled() -> None:
    """It would fit the state otherwise, and what it read would not be read again. A plan from
    another position is refused by settling.
    """
    slices = (ShardSlice(shard_id=SHARD, position=STATE.read_position, max_records=10),)
    plan = Plan(
        plan_id="7-aa",
        created_ms=0,
        tasks=(TaskPlan(shards=slices, max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1),),
    )
    assert never_settling(STATE, plan).settled_plan == "7-aa"
    moved = moved_state(STATE, Position.parse("AT:5"), verified_until_ms=1)
    assert never_settling(moved, plan) is moved
    assert never_settling(STATE, None) is STATE
