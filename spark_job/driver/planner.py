"""Makes a plan: pure functions over the shard list, the shard states and the limits.

No I/O, no clock, no randomness: `coordinator` passes in what they need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kinesis_spout.aggregation.hash_range import HashRange
from kinesis_spout.reading.fallback import Fallback
from kinesis_spout.shards.assignment import assign
from spark_job.driver.retry_planner import MAX_ENTRIES_PER_TASK, DueRetry, most_urgent
from state.codec.values import MAX_VALUE_BYTES, encode_unchecked
from state.plan import (
    ChildShard,
    Plan,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
    TaskPlan,
)
from state.position import Position
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from state.shard_state import ShardState


# A task's plan takes one znode, and what it appends to its log at once half of one. In the
# service's usual lengths both fit, but for the iterators, which are hints; `_that_fit` divides the
# tasks that do not.
MAX_SHARDS_PER_TASK = 250
# A log is sealed once it has half of a znode, so another round needs the other half.
MAX_ROUND_BYTES = MAX_VALUE_BYTES // 2
_LONGEST = SequenceNumber(10**55)  # the service's numbers have 56 digits
_LONGEST_COUNT, _LONGEST_TIME_MS = 10**9, 10**13
_LONGEST_FALLBACK = max(Fallback, key=len)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """The limits of a plan: records per trigger and shard, bytes per task, time per fetch loop.

    `max_unresolved_per_shard` bounds the unresolved records of a shard, including the plan's new
    ones. `retention_ms`: the stream's retention, which a task compares its reads with; None if it
    is not known. `aggregated_records`: the option, which the tasks go by. `consumer_arn`: the
    consumer with which they may subscribe; None: they poll.
    """

    max_records_per_trigger: int | None
    max_records_per_shard: int
    max_bytes_per_task: int
    max_fetch_time_ms: int
    max_search_time_ms: int
    max_tasks: int
    max_unresolved_per_shard: int = 100_000
    retention_ms: int | None = None
    aggregated_records: str | None = None
    consumer_arn: str | None = None


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
    next_reads: Mapping[str, int] | None = None,
    next_subscribes: Mapping[str, int] | None = None,
    retries: Mapping[str, Sequence[DueRetry]] | None = None,
    hash_keys: Mapping[str, tuple[int, int]] | None = None,
    gone: Collection[str] = (),
    in_order: bool = False,
    outages: int = 0,
    delivery_limit: int | None = None,
) -> Plan:
    """A plan for new records of `shards` and for `retries`, which may be of other shards, grouped
    into tasks within the limits.

    `turn` rotates which shards come first. A small record limit leaves out shards, and the shards
    of a task fill its bytes in that order. Without the rotation one shard could starve the others.
    Retries that do not fit stay queued, as all retries do until they settle. `in_order`: a shard's
    retries and its new records alternate between plans, since new records would overtake retries
    that did not fit. `gone`: shards that are proven gone, so that nobody asks for their retries.
    `hash_keys`: the shards' first and last ones, as far as they are known.
    """
    due, records_left = _share_with_retries(shards, retries or {}, limits.max_records_per_trigger)
    new = _new_records(shards, states, replace(limits, max_records_per_trigger=records_left), turn)
    if in_order:
        due, new = _in_turn(due, new, turn)
    members = sorted({*new, *due})
    hints = _Hints(
        endings, iterators, next_reads or {}, next_subscribes or {}, hash_keys or {}, gone
    )
    tasks: list[TaskPlan] = []
    for group in assign(members, max(limits.max_tasks, -(-len(members) // MAX_SHARDS_PER_TASK))):
        planned = most_urgent(
            {shard: due[shard] for shard in group if shard in due}, entries=MAX_ENTRIES_PER_TASK
        )
        slices = (
            hints.slice(shard, states[shard], new.get(shard), planned.get(shard, ()))
            for shard in _rotated(group, turn)
            if shard in new or shard in planned
        )
        tasks.extend(_that_fit(_task(tuple(slices), limits)))
    return Plan(
        plan_id=plan_id,
        created_ms=now_ms,
        tasks=tuple(tasks),
        until_ms=until_ms,
        outages=outages,
        delivery_limit=delivery_limit,
    )


class _Hints(NamedTuple):
    """What the driver knows of the shards beside their states."""

    endings: Mapping[str, SequenceNumber]
    iterators: Mapping[str, str]
    next_reads: Mapping[str, int]
    next_subscribes: Mapping[str, int]
    hash_keys: Mapping[str, tuple[int, int]]
    gone: Collection[str]

    def slice(
        self, shard: str, state: ShardState, max_records: int | None, due: Iterable[DueRetry]
    ) -> ShardSlice:
        """The shard's part of its task. `max_records` None: nothing but these retries."""
        planned = ShardSlice(
            shard_id=shard,
            position=state.read_position,
            max_records=max_records or 0,
            next_read_ms=self.next_reads.get(shard),
            retries=tuple(one.retry for one in due),
            hash_keys=_texts(self.hash_keys.get(shard)),
        )
        if max_records is None:
            return msgspec.structs.replace(planned, gone=shard in self.gone)
        return msgspec.structs.replace(
            planned,
            iterator=self.iterators.get(shard),
            next_subscribe_ms=self.next_subscribes.get(shard),
            ending_sequence=self.endings.get(shard),
            verified_until_ms=state.verified_until_ms,
        )


def _texts(hash_keys: tuple[int, int] | None) -> tuple[str, str] | None:
    if hash_keys is None or HashRange(*hash_keys).is_whole:
        return None
    return str(hash_keys[0]), str(hash_keys[1])


def _task(slices: tuple[ShardSlice, ...], limits: PlanLimits) -> TaskPlan:
    return TaskPlan(
        shards=slices,
        max_bytes=limits.max_bytes_per_task,
        fetch_time_ms=limits.max_fetch_time_ms,
        fetch_cap_ms=max(limits.max_search_time_ms, limits.max_fetch_time_ms),
        retention_ms=limits.retention_ms,
        aggregated_records=limits.aggregated_records,
        consumer_arn=limits.consumer_arn,
    )


def _that_fit(task: TaskPlan) -> Iterator[TaskPlan]:
    """The task, as tasks that fit into a znode each, and so do their results: without the hints if
    need be, and with fewer shards.
    """
    plan_bytes, round_bytes = max_bytes(task)
    if plan_bytes <= MAX_VALUE_BYTES and round_bytes <= MAX_ROUND_BYTES:
        yield task  # nearly every task: nothing is encoded to find that out
        return
    results_fit = len(encode_unchecked(longest_round(task))) <= MAX_ROUND_BYTES
    if results_fit and len(encode_unchecked(task)) <= MAX_VALUE_BYTES:
        yield task
    elif results_fit and any(shard.iterator for shard in task.shards):
        shards = tuple(msgspec.structs.replace(shard, iterator=None) for shard in task.shards)
        yield from _that_fit(msgspec.structs.replace(task, shards=shards))
    elif len(task.shards) > 1:
        half = len(task.shards) // 2
        for shards in (task.shards[:half], task.shards[half:]):
            yield from _that_fit(msgspec.structs.replace(task, shards=shards))
    else:
        yield task  # MAX_ENTRIES_PER_TASK of the longest numbers fit


def max_bytes(task: TaskPlan) -> tuple[int, int]:
    """Bounds of the bytes of the task's plan, and of its longest round. Cheap."""
    shards = len(task.shards)
    names = sum(len(shard.shard_id) for shard in task.shards)
    hints = sum(len(shard.iterator or "") for shard in task.shards)
    retries = sum(len(shard.retries) for shard in task.shards)
    plan_bytes = 660 * shards + names + hints + 400 * retries + len(task.consumer_arn or "")
    return plan_bytes, 840 * shards + 7 * names + 200 * retries


def longest_round(task: TaskPlan) -> TaskLog:
    """A log that nothing which is appended at once exceeds in length, without the hints, which are
    dropped before (`spark_job.executor.task_reader`).
    """
    return TaskLog(entries=tuple(map(_longest_read, task.shards)))


def _longest_read(shard: ShardSlice) -> ShardReadResult:
    named = ChildShard(shard_id=shard.shard_id, parents=(shard.shard_id,) * 2)
    return ShardReadResult(
        shard_id=shard.shard_id,
        first=_LONGEST,
        last=_LONGEST,
        count=_LONGEST_COUNT,
        last_arrival_ms=_LONGEST_TIME_MS,
        at_tip=True,
        tip_ms=_LONGEST_TIME_MS,
        at_shard_end=True,
        children=(named, named),
        gone=True,
        millis_behind_latest=_LONGEST_TIME_MS,
        retries_done=_LONGEST_COUNT,
        retry_rows=_LONGEST_COUNT,
        retries_gone=tuple(retry.first for retry in shard.retries if retry.last is None),
        retries_short=tuple(
            ShortRange(first=retry.first, missing=_LONGEST_COUNT)
            for retry in shard.retries
            if retry.last is not None
        ),
        retry_part=RangePart(last=_LONGEST, rest=_LONGEST, count=_LONGEST_COUNT)
        if shard.retries
        else None,
        position=Position.after(_LONGEST),
        lapsed_ms=_LONGEST_TIME_MS,
        payload_bytes=_LONGEST_TIME_MS,
        pushed=_LONGEST_COUNT,
        fallback=_LONGEST_FALLBACK,
    )


def _share_with_retries(
    shards: Sequence[str], due: Mapping[str, Sequence[DueRetry]], max_records: int | None
) -> tuple[Mapping[str, Sequence[DueRetry]], int | None]:
    """The retries within a trigger's record limit, and the rest of it for new records.

    Retries get at most half of the limit while shards have new records to read.
    """
    if max_records is None or not due:
        return due, max_records
    kept = most_urgent(
        due, entries=2 * max_records, records=max(1, max_records // 2 if shards else max_records)
    )
    return kept, max(
        0, max_records - sum(one.retry.max_rows for retries in kept.values() for one in retries)
    )


def _in_turn(
    due: Mapping[str, Sequence[DueRetry]], new: dict[str, int], turn: int
) -> tuple[Mapping[str, Sequence[DueRetry]], dict[str, int]]:
    """Of a shard that has both, keep its retries in odd turns and its new records in even ones."""
    if turn % 2:
        return due, {shard: records for shard, records in new.items() if shard not in due}
    return {shard: retries for shard, retries in due.items() if shard not in new}, new


def _new_records(
    shards: Sequence[str], states: Mapping[str, ShardState], limits: PlanLimits, turn: int
) -> dict[str, int]:
    """The maximum number of new records to read, by shard, within the rest of each shard's
    allowance of unresolved records.
    """
    chosen, per_shard = share_records(shards, limits, turn)
    room = {
        shard: min(per_shard, limits.max_unresolved_per_shard - states[shard].unresolved_count)
        for shard in chosen
    }
    return {shard: records for shard, records in room.items() if records > 0}


def share_records(shards: Sequence[str], limits: PlanLimits, turn: int) -> tuple[list[str], int]:
    """The shards of a plan and the records that each may give, so that the trigger's limit holds
    however many records they have.
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
