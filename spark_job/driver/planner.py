"""Makes a plan from the shards and retries that are due, within the limits of a batch. Pure: no
I/O, no clock, no randomness. Times are milliseconds since 1970.
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
Retries = Sequence[tuple[str, PlannedRetry]]  # with their shards, the most urgent retry first

# A task's plan must fit into one znode, and one append to its log into half a znode. With Kinesis's
# usual lengths both fit, except for the iterators, which are hints. `_that_fit` divides tasks that
# do not fit.
MAX_SHARDS_PER_TASK = 250
# Sequence numbers of retries that fit into a task's znode beside its shards; a range has two.
MAX_ENTRIES_PER_TASK = 2_000
# A log is sealed once it takes half a znode, so the next append needs the other half.
MAX_ROUND_BYTES = MAX_VALUE_BYTES // 2
_LONGEST = SequenceNumber(10**55)  # the service's numbers have 56 digits
_LONGEST_COUNT, _LONGEST_TIME_MS = 10**9, 10**13
_LONGEST_FALLBACK = max(Fallback, key=len)


def new_records(state: ShardState, most: int, max_unresolved: int | None) -> int:
    """Return how many new records of a shard a plan may read: at most `most`, and at most as many
    as keep the shard's unresolved records within `max_unresolved`. None: no such limit, because
    batches are acked as a whole.
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
    """Return the `empty` plan with tasks for new records of `shards` and for `retries`, which may
    belong to other shards.

    - `task`: a task without shards, with the settings of all tasks.
    - `slices`: the slice of each shard, without retries, with its limit of new records.
    - `max_records`: the limit of the plan; None for no limit.
    - `turn` rotates which shards come first. A small record limit omits shards, and the shards of a
      task use up its bytes in their order. Without rotation, one shard could starve the others.
    - `retries`: the most urgent retry first. Retries that do not fit stay queued.
    - `in_order`: a shard's retries and its new records are never in the same plan; they alternate.
      New records could otherwise overtake retries that did not fit.
    """
    total = max_records
    if total is not None and retries:
        # While shards have new records, retries get at most half of the limit.
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
    """Return the shard's part of its task. `max_records` None: only these retries are read."""
    planned = replace(of_shard, retries=tuple(sorted(retries, key=lambda retry: retry.first)))
    if max_records is not None:
        # The read itself shows whether the shard is gone. Retries alone would not.
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
    """Divide the task into tasks of which each fits into a znode, as do its results. Iterators,
    which are hints, are dropped first; then the shards are divided.
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
        yield task  # it fits: MAX_ENTRIES_PER_TASK allows for the longest numbers


def longest_round(task: TaskPlan) -> TaskLog:
    """Return a log that is at least as long as any single append of the task, without the hints,
    which are dropped first (`spark_job.executor.task_reader`).
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
    """Return the first of these retries, with at most this number of records in total. Of the last
    retry, a range, only a part may be read.
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
    """Return the retries that fit into the tasks of these shards, by shard. After the first retry
    that does not fit, no later one of its task is chosen: it may have to wait for that retry.
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
    """Return the members of a batch (streams or shards), each with its number of records. Together
    the numbers never exceed `total`.

    All members get equal shares, because the number of their records is not known before the read.
    If `total` is below the number of members, they take turns.
    """
    chosen = _rotated(members, turn * total)[:total]
    each, rest = divmod(total, max(1, len(chosen)))
    return {member: each + (place < rest) for place, member in enumerate(chosen)}


def assign(shards: Iterable[str], tasks: int) -> list[tuple[str, ...]]:
    """Return groups of shard ids: at most `tasks` groups, none empty, with sizes that differ by at
    most one.

    The sorted ids go to the groups in turn. So the order of the argument does not matter, and
    neighbours, such as the children of one split, are in different groups.
    """
    ordered = sorted(shards)
    return [tuple(ordered[first::tasks]) for first in range(min(tasks, len(ordered)))]


def _rotated(members: Sequence[_T], by: int) -> list[_T]:
    first = by % max(1, len(members))
    return [*members[first:], *members[:first]]
