"""Settling: applying what a finished plan's tasks read to the shard states. Each step can be repeated after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.failpoint import failpoint
from state.settle import child_states, settle_shard
from state.shard_znodes import split_changes
from state.state_store import StateChange, StateStore, StoredState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from state.plan import ShardEnd, TaskEnd
    from state.shard_state import ShardState


@dataclass(frozen=True, slots=True)
class Settled:
    """What settling a plan gave: every shard's state now, and what was read of each shard in the plan."""

    states: dict[str, StoredState]
    ends: tuple[ShardEnd, ...]


def settle(store: StateStore, plan_id: str, *, states_per_write: int) -> Settled:
    """Close the plan, read the ends, write the shard states, say that it is settled: in this order.

    A shard without a published end was not read and stays as it was. Blocks on the store and raises what it raises;
    stopped anywhere and called again it gives the same states.
    """
    store.close_plan(plan_id)
    failpoint("plan-closed")
    ends = _shard_ends(store.read_ends(plan_id))
    states = dict(store.load_states())
    write_states(store, states, _changes(states, ends, plan_id), states_per_write=states_per_write)
    store.mark_settled(plan_id)
    failpoint("plan-settled")
    return Settled(states=states, ends=ends)


def _shard_ends(ends: Mapping[int, TaskEnd]) -> tuple[ShardEnd, ...]:
    return tuple(end for _, task in sorted(ends.items()) for end in task.shards)


def _changes(states: Mapping[str, StoredState], ends: Sequence[ShardEnd], plan_id: str) -> list[StateChange]:
    """Children first: when the write of their parents' ends is seen, their states are there."""
    children: dict[str, ShardState] = {}
    parents: list[StateChange] = []
    for end in ends:
        before = states.get(end.shard_id)
        if before is None:
            continue  # the state was removed by a reset while the plan was open: nothing to apply it to
        children |= {child.shard_id: child for child in child_states(end, states.keys() | children.keys())}
        after = settle_shard(before.state, end, plan_id)
        if after != before.state:
            parents.append(StateChange(before=before, after=after))
    return [*(StateChange(before=None, after=child) for child in children.values()), *parents]


def write_states(
    store: StateStore, states: dict[str, StoredState], changes: Sequence[StateChange], *, states_per_write: int
) -> None:
    """Write the changes, as many at a time as fit, and note in `states` what is stored now."""
    written = 0
    for chunk in split_changes(changes, states_per_write):
        for stored in store.save_states(chunk):
            states[stored.state.shard_id] = stored
        written += len(chunk)
        if written < len(changes):
            failpoint("shard-states-half-written")
