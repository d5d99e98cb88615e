"""What the next batch is to read: pure functions over the shard list, the shard states and the
limits.

No I/O, no clock, no randomness: they are passed in. `coordinator` does the talking.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kinesis_spout.shards.assignment import assign
from spark_job.driver.retry_planner import MAX_ENTRIES_PER_TASK, DueRetry, most_urgent
from state.plan import Plan, ShardSlice, TaskPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState


MAX_SHARDS_PER_TASK = (
    500  # so many shards' plan, and their ends, fit into one znode each, iterators and all
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """The limits that a plan carries. Records per trigger and shard, bytes held per task, time per
    fetch loop.

    `max_unresolved_per_shard`: so many records of a shard may wait for an outcome, its new ones of
    the plan included.
    """

    max_records_per_trigger: int | None
    max_records_per_shard: int
    max_bytes_per_task: int
    max_fetch_time_ms: int
    max_search_time_ms: int
    max_tasks: int
    max_unresolved_per_shard: int = 100_000


def make_plan(
    plan_id: str,
    shards: Sequence[str],
    states: Mapping[str, ShardState],
    limits: PlanLimits,
    *,
    endings: Mapping[str, SequenceNumber],
    iterators: Mapping[str, str],
    now_ms: int,
    until_ms: int | None,
    turn: int,
    retries: Mapping[str, Sequence[DueRetry]] | None = None,
    in_order: bool = False,
    outages: int = 0,
) -> Plan:
    """A plan over new records of `shards` and over `retries`, also of other shards, grouped to
    tasks, within the limits.

    `turn` rotates who comes first when a limit is small. In a task it is the order in which its
    shards may fill its bytes, so one that fills them alone starves no other. Retries that do not
    fit stay in the queue, as all of them do until they settle. `in_order`: a shard's retries and
    its new records take turns, or these would overtake what a task had no room for.
    """
    due, records_left = _share_with_retries(shards, retries or {}, limits.max_records_per_trigger)
    new = _new_records(shards, states, replace(limits, max_records_per_trigger=records_left), turn)
    if in_order:
        due, new = _in_turn(due, new, turn)
    members = sorted({*new, *due})
    tasks: list[TaskPlan] = []
    for group in assign(members, max(limits.max_tasks, -(-len(members) // MAX_SHARDS_PER_TASK))):
        planned = most_urgent(
            {shard: due[shard] for shard in group if shard in due}, entries=MAX_ENTRIES_PER_TASK
        )
        slices = (
            ShardSlice(
                shard_id=shard,
                position=states[shard].read_position,
                max_records=new.get(shard, 0),
                iterator=iterators.get(shard) if shard in new else None,
                ending_sequence=endings.get(shard) if shard in new else None,
                retries=tuple(one.retry for one in planned.get(shard, ())),
            )
            for shard in _rotated(group, turn)
            if shard in new or shard in planned
        )
        tasks.append(_task(tuple(slices), limits))
    return Plan(
        plan_id=plan_id, created_ms=now_ms, tasks=tuple(tasks), until_ms=until_ms, outages=outages
    )


def _task(slices: tuple[ShardSlice, ...], limits: PlanLimits) -> TaskPlan:
    return TaskPlan(
        shards=slices,
        max_bytes=limits.max_bytes_per_task,
        fetch_time_ms=limits.max_fetch_time_ms,
        fetch_cap_ms=max(limits.max_search_time_ms, limits.max_fetch_time_ms),
    )


def _share_with_retries(
    shards: Sequence[str], due: Mapping[str, Sequence[DueRetry]], max_records: int | None
) -> tuple[Mapping[str, Sequence[DueRetry]], int | None]:
    """The retries that a trigger's limit lets come, and what it leaves to new records: half of it,
    where there may be some.
    """
    if max_records is None or not due:
        return due, max_records
    kept = most_urgent(
        due, entries=2 * max_records, records=max(1, max_records // 2 if shards else max_records)
    )
    return kept, max(
        0, max_records - sum(one.retry.count for retries in kept.values() for one in retries)
    )


def _in_turn(
    due: Mapping[str, Sequence[DueRetry]], new: dict[str, int], turn: int
) -> tuple[Mapping[str, Sequence[DueRetry]], dict[str, int]]:
    if turn % 2:
        return due, {shard: records for shard, records in new.items() if shard not in due}
    return {shard: retries for shard, retries in due.items() if shard not in new}, new


def _new_records(
    shards: Sequence[str], states: Mapping[str, ShardState], limits: PlanLimits, turn: int
) -> dict[str, int]:
    """How many new records of which shards are read at most: what is left of their allowance of
    unresolved records counts too.
    """
    chosen, per_shard = share_records(shards, limits, turn)
    room = {
        shard: min(per_shard, limits.max_unresolved_per_shard - states[shard].unresolved_count)
        for shard in chosen
    }
    return {shard: records for shard, records in room.items() if records > 0}


def share_records(shards: Sequence[str], limits: PlanLimits, turn: int) -> tuple[list[str], int]:
    """Which shards take part and how many records each may give, so that the trigger's limit holds
    whatever they have.
    """
    total = limits.max_records_per_trigger
    if total is None or not shards:
        return sorted(shards), limits.max_records_per_shard
    if total < len(shards):
        return sorted(_rotated(sorted(shards), turn * total)[:total]), 1
    return sorted(shards), min(limits.max_records_per_shard, total // len(shards))


def _rotated(shards: Sequence[str], by: int) -> list[str]:
    first = by % len(shards)
    return [*shards[first:], *shards[:first]]
