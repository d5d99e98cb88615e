"""What a plan contains, given the shard list, the shard states and the limits."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.shard_info import ShardInfo
from spark_job.planner import (
    PlanLimits,
    lapsed_shards,
    make_plan,
    new_shards,
    readable_shards,
    share_records,
    start_position,
    vanished_shards,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState
from state.state_store import StartPin

LIMITS = PlanLimits(
    max_records_per_trigger=None,
    max_records_per_shard=100,
    max_bytes_per_task=1_000,
    max_fetch_time_ms=5_000,
    max_search_time_ms=60_000,
    max_tasks=4,
)
LATER = Position.at_timestamp(1_000_000)
PIN = StartPin(time_ms=1_002_000, wish="LATEST", position=LATER, shards=("a", "b"), shard_positions={"b": TRIM_HORIZON})


def shard(shard_id: str, *parents: str) -> ShardInfo:
    return ShardInfo(
        shard_id=shard_id, parents=parents, hash_key_range=(0, 1), starting_sequence=SequenceNumber(1), ending_sequence=None
    )


def state(shard_id: str, *parents: str, ended: bool = False, verified_until_ms: int | None = None) -> ShardState:
    return ShardState(
        shard_id=shard_id,
        parents=parents,
        read_position=SHARD_END if ended else TRIM_HORIZON,
        lifecycle=Lifecycle.FINISHED if ended else Lifecycle.ACTIVE,
        verified_until_ms=verified_until_ms,
    )


def by_id(*states: ShardState) -> dict[str, ShardState]:
    return {one.shard_id: one for one in states}


def test_a_child_waits_until_its_parent_was_read_to_its_end() -> None:
    listing = [shard("p"), shard("c", "p")]
    assert readable_shards(listing, by_id(state("p"), state("c", "p"))) == ["p"]
    assert readable_shards(listing, by_id(state("p", ended=True), state("c", "p"))) == ["c"]


def test_a_merged_child_waits_for_both_parents() -> None:
    listing = [shard("p"), shard("q"), shard("c", "p", "q")]
    assert readable_shards(listing, by_id(state("p", ended=True), state("q"), state("c", "p", "q"))) == ["q"]
    assert readable_shards(listing, by_id(state("p", ended=True), state("q", ended=True), state("c", "p", "q"))) == ["c"]


def test_queued_retries_of_a_drained_parent_do_not_hold_its_children() -> None:
    drained = msgspec.structs.replace(state("p", ended=True), lifecycle=Lifecycle.DRAINED)
    assert readable_shards([shard("p"), shard("c", "p")], by_id(drained, state("c", "p"))) == ["c"]


def test_a_parent_past_retention_that_has_no_state_is_not_waited_for() -> None:
    assert readable_shards([shard("c", "p")], by_id(state("c", "p"))) == ["c"]


def test_a_listed_parent_without_a_state_holds_its_child() -> None:
    assert readable_shards([shard("p"), shard("c", "p")], by_id(state("c", "p"))) == []


def test_a_shard_that_is_no_longer_listed_is_not_read_but_reported() -> None:
    states = by_id(state("a"), state("b", ended=True))
    assert readable_shards([], states) == []
    assert vanished_shards([], states) == ["a"]


def test_shards_listed_at_the_pin_start_there_and_later_ones_at_trim_horizon() -> None:
    assert [start_position(one, PIN) for one in ("a", "b", "c")] == [LATER, TRIM_HORIZON, TRIM_HORIZON]


def test_only_listed_shards_without_a_state_get_one_with_their_parents_kept() -> None:
    fresh = new_shards([shard("a"), shard("c", "a")], by_id(state("a")), PIN, 5)
    assert fresh == [ShardState(shard_id="c", read_position=TRIM_HORIZON, parents=("a",), verified_until_ms=5)]


def test_a_child_of_a_parent_that_was_finished_long_ago_is_verified_up_to_then() -> None:
    """Found late, after a long downtime: what it held in between may have expired."""
    (child,) = new_shards([shard("c", "a")], by_id(state("a", ended=True, verified_until_ms=3)), PIN, 5)
    assert child.verified_until_ms == 3


def test_a_shard_has_lapsed_when_nothing_is_known_of_it_for_longer_than_the_retention() -> None:
    states = by_id(state("a", verified_until_ms=99), state("b", verified_until_ms=100), state("c"))
    assert lapsed_shards(["a", "b", "c"], states, 1_100, 1_000) == ["a"]


def test_a_plan_reads_each_shard_from_its_position_in_balanced_tasks() -> None:
    names = [f"s{n}" for n in range(6)]
    plan = make_plan(
        "1-a", names, by_id(*map(state, names)), LIMITS, endings={}, iterators={"s1": "hint"}, now_ms=7, until_ms=8, turn=1
    )
    slices = [piece for task in plan.tasks for piece in task.shards]
    assert sorted(piece.shard_id for piece in slices) == names
    assert [len(task.shards) for task in plan.tasks] == [2, 2, 1, 1]
    assert {piece.shard_id: piece.iterator for piece in slices}["s1"] == "hint"
    assert (plan.until_ms, plan.created_ms, plan.tasks[0].fetch_cap_ms) == (8, 7, 60_000)


@given(st.integers(1, 40), st.integers(1, 200), st.integers(1, 50), st.integers(0, 1_000))
def test_what_the_shards_may_give_together_never_exceeds_the_trigger_limit(
    shards: int, total: int, per_shard: int, turn: int
) -> None:
    limits = replace(LIMITS, max_records_per_trigger=total, max_records_per_shard=per_shard)
    chosen, each = share_records([f"{n:03}" for n in range(shards)], limits, turn)
    assert len(chosen) * each <= total
    assert 1 <= each <= max(1, per_shard)


@pytest.mark.parametrize("total", [1, 2, 3, 5])
def test_a_trigger_limit_below_the_number_of_shards_starves_none(total: int) -> None:
    names = [f"s{n}" for n in range(7)]
    limits = replace(LIMITS, max_records_per_trigger=total)
    assert {one for turn in range(14) for one in share_records(names, limits, turn)[0]} == set(names)
