"""Settles a plan: applies what its tasks read to the shard states. Each step can be repeated after
a crash.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.failpoint import failpoint
from state.settle import children_first, settle_shard, settle_tracked
from state.state_store import StateChange, StateStore, StoredState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from state.plan import Plan, ShardReadResult, ShardSlice
    from state.report import OutcomePolicy, PlanReport

log = logging.getLogger("kinesis_spout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of settling a plan.

    - `states`: the states of all shards now.
    - `ends`: the ends of the shards that the plan was to read new records of.
    - `report`: the outcomes of a tracked batch, or None.
    - `policy`: the mark of an application that tracks its records, or None.
    - `redelivered`: there is a mark but no done report, so no state was written, and all records of
      the plan are delivered again.
    - `outages`: how many plans in a row, up to this one, were outages.
    - `delivery_limit`: the limit of the next plan (`state.plan.Plan`).
    """

    states: dict[str, StoredState]
    ends: tuple[ShardReadResult, ...]
    report: PlanReport | None = None
    policy: OutcomePolicy | None = None
    redelivered: bool = False
    outages: int = 0
    delivery_limit: int | None = None


def settle(
    store: StateStore, plan_id: str, *, states_per_write: int, tracked_since_ms: int | None = None
) -> Settled:
    """Close the plan, read its ends and its report, write the shard states and mark the plan
    settled, in this order.

    A shard or a retry without a published end was not read and stays as it was. All records of an
    untracked batch are acked; of a tracked batch, all that its report does not name. New children
    get their first states with `tracked_since_ms` (see `state.settle.child_states`).

    Blocks on the store and raises what it raises. Idempotent: stopped anywhere and called again, it
    gives the same states.
    """
    store.close_plan(plan_id)
    failpoint("plan-closed")
    ends = tuple(end for _, task in sorted(store.read_ends(plan_id).items()) for end in task.shards)
    plan, policy, report = store.read_plan(plan_id), store.read_policy(), store.read_report(plan_id)
    planned = (
        {}
        if plan is None
        else {shard.shard_id: shard for task in plan.tasks for shard in task.shards}
    )
    states = dict(store.load_states())
    redelivered = policy is not None and report is None and any(_has_records(end) for end in ends)
    if not redelivered:
        _say_gone(ends, report)
        changes = children_first(
            _changes(states, planned, ends, report, plan_id),
            (end for end in ends if end.shard_id in states),
            states.keys(),
            tracked_since_ms=tracked_since_ms,
        )
        store.save_states(changes, cache=states, max_per_write=states_per_write)
    store.mark_settled(plan_id)
    failpoint("plan-settled")
    return Settled(
        states=states,
        ends=tuple(
            end for end in ends if end.shard_id not in planned or planned[end.shard_id].max_records
        ),
        report=report,
        policy=policy,
        redelivered=redelivered,
        outages=outages_after(plan, report, is_tracked=policy is not None),
        delivery_limit=delivery_limit_after(plan, report, is_tracked=policy is not None),
    )


def outages_after(plan: Plan | None, report: PlanReport | None, *, is_tracked: bool) -> int:
    """How many plans in a row, up to this one, were outages.

    A plan without known outcomes neither ends the row nor adds to it.
    """
    if plan is None or (report is None and not is_tracked):
        return 0
    if report is None:
        return plan.outages
    return plan.outages + 1 if report.outage else 0


def delivery_limit_after(
    plan: Plan | None, report: PlanReport | None, *, is_tracked: bool
) -> int | None:
    """The delivery limit of the plan after this one. A plan without known outcomes leaves it as it
    was.
    """
    if report is not None:
        return report.delivery_limit
    return plan.delivery_limit if plan is not None and is_tracked else None


def _has_records(end: ShardReadResult) -> bool:
    return bool(end.count or end.retry_rows or end.retries_gone)


def _say_gone(ends: Sequence[ShardReadResult], report: PlanReport | None) -> None:
    """Warn of retries past the stream's retention. A tracked batch has dead-lettered them."""
    gone = {end.shard_id: end.retries_gone for end in ends if end.retries_gone}
    if report is None and gone:
        named = "; ".join(
            f"shard {shard}: {', '.join(map(str, numbers))}" for shard, numbers in gone.items()
        )
        log.warning(
            "records that waited for their retry are past the stream's retention, and are acked: "
            "%s",
            named,
        )


def _changes(
    states: Mapping[str, StoredState],
    planned: Mapping[str, ShardSlice],
    ends: Sequence[ShardReadResult],
    report: PlanReport | None,
    plan_id: str,
) -> list[StateChange]:
    outcomes = {} if report is None else {outcome.shard_id: outcome for outcome in report.shards}
    changes: list[StateChange] = []
    for end in ends:
        before = states.get(end.shard_id)
        if before is None:
            continue  # a reset removed the state while the plan was open
        shard = planned.get(end.shard_id)
        if report is None or shard is None:
            after = settle_shard(before.state, end, plan_id, shard)
        else:
            after = settle_tracked(before.state, shard, end, outcomes.get(end.shard_id), plan_id)
        if after != before.state:
            changes.append(StateChange(before=before, after=after))
    return changes
