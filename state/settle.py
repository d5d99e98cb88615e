"""Settling: applying what a finished plan's task did read of a shard to the shard's state.

A batch that is not tracked record by record is acked as a whole when it has finished.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.inflight_record_tracker import InflightRecordTracker
from state.plan import plan_number
from state.position import TRIM_HORIZON
from state.retry_policy import RetryPolicy
from state.shard_state import ShardState

if TYPE_CHECKING:
    from collections.abc import Collection

    from state.plan import ShardEnd


def settle_shard(state: ShardState, end: ShardEnd, plan_id: str) -> ShardState:
    """The state after all records of `end` are acked. Idempotent: a state that has this plan or a later one comes back as it is.

    Raises ValueError for an end that contradicts itself or is of another shard, and `IllegalTrackerEventError` for one that does
    not lie behind what the state says was read: settling never moves anything back.
    """
    if _has_settled(state, plan_id):
        return state
    _check(state, end)
    # Nothing fails here, so neither the policy nor chance has a say.
    tracker = InflightRecordTracker(state, retry_policy=RetryPolicy(), random=Random(0))  # noqa: S311  # never drawn from
    if end.first is not None and end.last is not None:
        emission = tracker.emit_span(end.first, end.last, end.count)
        tracker.ack_span(emission.sequence, emission.attempt)
    if end.shard_end:
        tracker.reach_end()
    known_times = (state.verified_until_ms, end.last_arrival_ms, end.tip_ms)
    verified_until_ms = max((time_ms for time_ms in known_times if time_ms is not None), default=None)
    return replace(tracker.snapshot(), settled_plan=plan_id, verified_until_ms=verified_until_ms, at_tip=end.at_tip)


def child_states(end: ShardEnd, known: Collection[str]) -> list[ShardState]:
    """First states of the shards that continue this one, except for those that are known: they start at their oldest record.

    Nothing of them can have been missed before the parent's end was read, so that is how far they are verified.
    """
    children = {child.shard_id: child for child in end.children if child.shard_id not in known}
    return [
        ShardState(shard_id=child.shard_id, read_position=TRIM_HORIZON, parents=child.parents, verified_until_ms=end.tip_ms)
        for child in children.values()
    ]


def _has_settled(state: ShardState, plan_id: str) -> bool:
    number = plan_number(plan_id)
    return state.settled_plan is not None and (state.settled_plan == plan_id or plan_number(state.settled_plan) > number)


def _check(state: ShardState, end: ShardEnd) -> None:
    if end.shard_id != state.shard_id:
        raise ValueError(f"the end of shard {end.shard_id} cannot be settled into the state of shard {state.shard_id}")
    if end.count < 0 or (end.first is not None) != (end.count > 0) or (end.last is not None) != (end.count > 0):
        raise ValueError(
            f"the end of shard {end.shard_id} contradicts itself: {end.count} records from {end.first} to {end.last}"
        )
