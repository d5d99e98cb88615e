"""Settles a plan: applies what its tasks read to the shard states. Each step can be repeated after
a crash.

What does not fit is not settled, and its records are delivered again: a shard whose state does not
stand where the plan read it from (`state.settle`), and a task that the batch's report has not seen.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from state.errors import PlanMismatchError
from state.failpoint import failpoint
from state.plan import retries_read
from state.settle import children_first, settle_shard
from state.store.shard_states import StateChange, StoredState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from state.plan import Plan, ShardReadResult, ShardSlice, TaskResult
    from state.report import OutcomePolicy, PlanReport
    from state.store.plans import PlanStore
    from state.store.reports import ReportStore
    from state.store.shard_states import ShardStateStore

log = logging.getLogger("kinesis_spout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of settling a plan.

    - `states`: the states of all shards now.
    - `ends`: the ends of the shards that the plan was to read new records of.
    - `redelivered`: the shards whose records, or a part of them, are delivered again: what was read
      of them is not in the states.
    - `report`: the outcomes of a tracked batch, or None.
    - `policy`: the mark of an application that tracks its records, or None.
    - `unreported`: there is a mark but no done report, so no state was written, and all records of
      the plan are delivered again.
    - `plan`: it; None if a part of it is gone.
    - `unknown_shards`: the shards that the service answered not to know.
    - `emitted`: how many rows the plan's tasks have read, by shard; `retried`: those of them that
      were retries. `acked`: how many of them are acked now.
    """

    states: dict[str, StoredState]
    ends: tuple[ShardReadResult, ...]
    redelivered: frozenset[str] = frozenset()
    report: PlanReport | None = None
    policy: OutcomePolicy | None = None
    unreported: bool = False
    plan: Plan | None = None
    unknown_shards: frozenset[str] = frozenset()
    emitted: Mapping[str, int] = field(default_factory=dict)
    retried: Mapping[str, int] = field(default_factory=dict)
    acked: int = 0


def settle(
    plans: PlanStore,
    shard_states: ShardStateStore,
    reports: ReportStore,
    plan_id: str,
    *,
    tracked_since_ms: int | None = None,
    on_lapsed: Callable[[Sequence[str]], None] = lambda _: None,
    plan: Plan | None = None,
    known: Mapping[str, StoredState] | None = None,
) -> Settled:
    """Close the plan, read its ends and its report, write the shard states and mark the plan
    settled, in this order.

    A shard or a retry without a published end was not read and stays as it was. All records of an
    untracked batch are acked; of a tracked batch, all that its report has seen and does not name.
    New children get their first states with `tracked_since_ms` (see `state.settle.child_states`).
    `on_lapsed` gets the shards of which a task found that records may have expired unread; it may
    raise, and then nothing is written. `plan` and `known`: the plan, and all states, as this
    process wrote them; None: they are read from the store. A state that has changed since raises
    `ConflictError`.

    Blocks on the store and raises what it raises. Idempotent: stopped anywhere and called again, it
    gives the same states.
    """
    plans.close(plan_id)
    failpoint("plan-closed")
    results = plans.read_ends(plan_id)
    plan = plan or plans.read(plan_id)
    policy, report = reports.read_policy(), reports.read(plan_id)
    states = dict(shard_states.load() if known is None else known)
    ends = tuple(end for _, task in sorted(results.items()) for end in task.shards)
    has_records = any(end.first is not None or end.retry_rows or end.retries_gone for end in ends)
    unreported = policy is not None and report is None and has_records
    seen = [] if unreported else _seen(results, report, plan_id)
    planned = {} if plan is None else plan.slices  # a part of the plan may be gone
    if lapsed := [end.shard_id for end in seen if end.lapsed_ms is not None]:
        on_lapsed(lapsed)
    _warn_of_gone(seen, planned, report)
    changes, settled = _changes(states, planned, seen, report, plan_id)
    shard_states.save(
        children_first(changes, settled, states.keys(), tracked_since_ms=tracked_since_ms),
        cache=states,
    )
    plans.mark_settled(plan_id)
    failpoint("plan-settled")
    return Settled(
        states=states,
        ends=tuple(
            end for end in ends if end.shard_id not in planned or planned[end.shard_id].max_records
        ),
        redelivered=frozenset(end.shard_id for end in ends)
        - frozenset(end.shard_id for end in settled),
        report=report,
        policy=policy,
        unreported=unreported,
        plan=plan,
        unknown_shards=frozenset(end.shard_id for end in ends if end.gone),
        emitted={end.shard_id: _rows(end) for end in ends},
        retried={end.shard_id: end.retry_rows for end in ends},
        acked=_acked(settled, planned, report),
    )


def _rows(end: ShardReadResult) -> int:
    """How many rows the shard's task gave to Spark."""
    return end.in_user_records.count + end.retry_rows


def _acked(
    settled: Sequence[ShardReadResult],
    planned: Mapping[str, ShardSlice],
    report: PlanReport | None,
) -> int:
    """How many of the rows that were settled are acked: all but those that stay unresolved, and
    those that were given up. A letter of a record that is not in the stream any more had no row.
    """
    rows = sum(map(_rows, settled))
    if report is None:
        return rows
    shards = {end.shard_id for end in settled}
    unresolved = sum(
        record.count
        for outcome in report.shards
        if outcome.shard_id in shards
        for record in outcome.unresolved
    )
    without_row = sum(
        read.missing
        for end in settled
        if end.shard_id in planned
        for read in retries_read(planned[end.shard_id].retries, end)
    )
    given_up = max(0, report.dead_lettered + report.dropped - without_row)
    return max(0, rows - unresolved - given_up)


def _seen(
    results: Mapping[int, TaskResult], report: PlanReport | None, plan_id: str
) -> list[ShardReadResult]:
    """What the tasks read whose results the report has seen; of an untracked batch, of all tasks.

    A task that published after the report was done has given its rows to no sink of the batch.
    """
    named = None if report is None else report.tasks
    late = [] if named is None else sorted(results.keys() - set(named))
    if late:
        log.warning(
            "plan %s: tasks %s published their read results after the batch had reported its "
            "outcomes, so their records are redelivered",
            plan_id,
            ", ".join(map(str, late)),
        )
    return [end for task in sorted(results.keys() - set(late)) for end in results[task].shards]


def _warn_of_gone(
    ends: Sequence[ShardReadResult], planned: Mapping[str, ShardSlice], report: PlanReport | None
) -> None:
    """Warn of retries past the stream's retention. A tracked batch has dead-lettered them."""
    if report is not None:
        return
    gone = {
        end.shard_id: [
            f"{read.retry.first}"
            if read.missing == 1
            else f"{read.missing} records from {read.retry.first} on"
            for read in retries_read(planned[end.shard_id].retries, end)
            if read.missing
        ]
        for end in ends
        if end.shard_id in planned
    }
    if any(gone.values()):
        log.warning(
            "records that waited for their retry are past the stream's retention and are acked: %s",
            "; ".join(f"shard {shard}: {', '.join(said)}" for shard, said in gone.items() if said),
        )


def _changes(
    states: Mapping[str, StoredState],
    planned: Mapping[str, ShardSlice],
    ends: Sequence[ShardReadResult],
    report: PlanReport | None,
    plan_id: str,
) -> tuple[list[StateChange], list[ShardReadResult]]:
    """The changes of the states, and the read results that are in the states then."""
    outcomes = {} if report is None else {outcome.shard_id: outcome for outcome in report.shards}
    changes: list[StateChange] = []
    settled: list[ShardReadResult] = []
    for end in ends:
        before = states.get(end.shard_id)
        if before is None:
            continue  # it was removed while the plan was open; the shard list brings it again
        shard = planned.get(end.shard_id)
        try:
            outcome = None if shard is None else outcomes.get(end.shard_id)
            after = settle_shard(before.state, end, plan_id, shard, outcome)
        except PlanMismatchError as exc:
            log.warning(
                "%s. Nothing is settled for this shard: its records are redelivered from its "
                "stored position, which `kinesis-spout shards` shows",
                exc,
            )
            continue
        settled.append(end)
        if after != before.state:
            changes.append(StateChange(before=before, after=after))
    return changes, settled
