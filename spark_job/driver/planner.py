"""Makes a plan of the shards and retries that are due, within the limits of a batch. Pure: no I/O,
no clock, no randomness. Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from state.codec.values import MAX_VALUE_BYTES, encode_unchecked
from state.plan import (
    ChildShard,
    Fallback,
    Plan,
    PlannedRetry,
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
    from collections.abc import Iterable, Iterator, Mapping

    from state.shard_state import ShardState

_T = TypeVar("_T")
Retries = Sequence[tuple[str, PlannedRetry]]  # with their shards, the most urgent one first

# A task's plan takes one znode, and what it appends to its log at once half of one. In the
# service's usual lengths both fit, but for the iterators, which are hints; `_that_fit` divides the
# tasks that do not.
MAX_SHARDS_PER_TASK = 250
# Sequence numbers of retries that fit into a task's znode beside its shards; a range has two.
MAX_ENTRIES_PER_TASK = 2_000
# A log is sealed once it has half of a znode, so another round needs the other half.
MAX_ROUND_BYTES = MAX_VALUE_BYTES // 2
_LONGEST = SequenceNumber(10**55)  # the service's numbers have 56 digits
_LONGEST_COUNT, _LONGEST_TIME_MS = 10**9, 10**13
_LONGEST_FALLBACK = max(Fallback, key=len)


def new_records(state: ShardState, most: int, max_unresolved: int | None) -> int:
    """How many new records of a shard a plan may read: `most`, and no more than leave the shard
    with `max_unresolved` unresolved ones; None for no limit, where batches are acked as a whole.
    """
    if max_unresolved is None:
        return most
    return max(0, min(most, max_unresolved - state.unresolved_count))


def make_plan(
    empty: Plan,
    task: TaskPlan,
    shards: Sequence[str],
    slices: Mapping[str, ShardSlice],
    *,
    max_tasks: int,
    max_records: int | None,
    turn: int,
    retries: Retries = (),
    in_order: bool = False,
) -> Plan:
    """The `empty` plan with tasks for new records of `shards` and for `retries`, which may be of
    other shards. `task`: what all tasks have in common, without shards.

    `slices`: of each shard, without retries, with the most new records that it may give.
    `max_records`: of the plan; None for no limit.
    `turn` rotates which shards come first. A small record limit leaves out shards, and the shards
    of a task fill its bytes in that order. Without the rotation one shard could starve the others.
    `retries`: the most urgent one first. Those that do not fit stay queued, as all retries do until
    they settle. `in_order`: a shard's retries and its new records alternate between plans, since
    new records would overtake retries that did not fit.
    """
    total = max_records
    if total is not None and retries:
        # Retries get at most half of the limit while shards have new records to read.
        retries = _within(retries, max(1, total // 2 if shards else total))
        total = max(0, total - sum(retry.max_rows for _, retry in retries))
    new = {shard: slices[shard].max_records for shard in sorted(shards)}
    if total is not None:
        shared = shares(list(new), total, turn)
        new = {shard: min(most, new[shard]) for shard, most in shared.items()}
    new = {shard: most for shard, most in new.items() if most}
    due = {shard for shard, _ in retries}
    if in_order and turn % 2:
        new = {shard: records for shard, records in new.items() if shard not in due}
    elif in_order:
        due.difference_update(new)
    members = {*new, *due}
    groups = assign(members, max(max_tasks, -(-len(members) // MAX_SHARDS_PER_TASK)))
    planned = _within_tasks([(shard, retry) for shard, retry in retries if shard in due], groups)
    tasks: list[TaskPlan] = []
    for group in groups:
        chosen = (
            _slice(slices[shard], new.get(shard), planned.get(shard, ()))
            for shard in _rotated(group, turn)
            if shard in new or shard in planned
        )
        tasks.extend(_that_fit(replace(task, shards=tuple(chosen))))
    return replace(empty, tasks=tuple(tasks))


def _slice(
    of_shard: ShardSlice, max_records: int | None, retries: Sequence[PlannedRetry]
) -> ShardSlice:
    """The shard's part of its task. `max_records` None: nothing but these retries."""
    planned = replace(of_shard, retries=tuple(sorted(retries, key=lambda retry: retry.first)))
    if max_records is not None:
        # Its reading shows whether it is gone; only retries need not be asked for.
        return replace(planned, max_records=max_records, gone=False)
    return replace(
        planned,
        max_records=0,
        iterator=None,
        next_subscribe_ms=None,
        ending_sequence=None,
        verified_until_ms=None,
    )


def _that_fit(task: TaskPlan) -> Iterator[TaskPlan]:
    """The task, as tasks that fit into a znode each, and so do their results: without the hints if
    need be, and with fewer shards.
    """
    results_fit = len(encode_unchecked(longest_round(task))) <= MAX_ROUND_BYTES
    if results_fit and len(encode_unchecked(task)) <= MAX_VALUE_BYTES:
        yield task
    elif results_fit and any(shard.iterator for shard in task.shards):
        shards = tuple(replace(shard, iterator=None) for shard in task.shards)
        yield from _that_fit(replace(task, shards=shards))
    elif len(task.shards) > 1:
        half = len(task.shards) // 2
        for shards in (task.shards[:half], task.shards[half:]):
            yield from _that_fit(replace(task, shards=shards))
    else:
        yield task  # MAX_ENTRIES_PER_TASK of the longest numbers fit


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


def _within(retries: Retries, records: int) -> Retries:
    """The first of these retries, with so many records at most. Of a range no more are read than
    are left when it is chosen, so the last one may be read in part.
    """
    chosen: list[tuple[str, PlannedRetry]] = []
    for shard, retry in retries:
        if not records:
            break
        limited = retry if retry.last is None else replace(retry, max_records=records)
        chosen.append((shard, limited))
        records -= limited.max_rows
    return chosen


def _within_tasks(
    retries: Retries, groups: Sequence[Sequence[str]]
) -> dict[str, list[PlannedRetry]]:
    """The retries that fit into the tasks of these shards, by shard. Behind the first one that does
    not fit, none of its task is chosen: it may wait for that one.
    """
    task_of = {shard: task for task, group in enumerate(groups) for shard in group}
    room = [MAX_ENTRIES_PER_TASK] * len(groups)
    chosen: dict[str, list[PlannedRetry]] = {}
    for shard, retry in retries:
        task, entries = task_of[shard], 1 if retry.last is None else 2
        if room[task] < entries:
            room[task] = 0
        else:
            room[task] -= entries
            chosen.setdefault(shard, []).append(retry)
    return chosen


def shares(members: Sequence[_T], total: int, turn: int) -> dict[_T, int]:
    """The members of a batch (streams, or shards), and how many records each may give, so that
    together they never exceed `total`.

    How much a member has is not known before it is read, so all of them get equal parts. With a
    lower limit than there are members, they take turns.
    """
    chosen = _rotated(members, turn * total)[:total]
    each, rest = divmod(total, max(1, len(chosen)))
    return {member: each + (place < rest) for place, member in enumerate(chosen)}


def assign(shards: Iterable[str], tasks: int) -> list[tuple[str, ...]]:
    """Groups of shard ids: at most `tasks` groups, none empty, their sizes at most one apart.

    The ids are assigned to the groups in turn, in sorted order. So the order of the argument does
    not matter, and neighbours, such as the children of one split, get different groups.
    """
    ordered = sorted(shards)
    return [tuple(ordered[first::tasks]) for first in range(min(tasks, len(ordered)))]


def _rotated(members: Sequence[_T], by: int) -> list[_T]:
    first = by % max(1, len(members))
    return [*members[first:], *members[:first]]
