"""Makes a plan, and says which retries it takes: pure functions over the shard list, the shard
states and the limits, and the queue of the records that wait for their retry. No I/O, no clock, no
randomness: `coordinator` passes in what they need. Times are milliseconds since 1970.

A queued record is due when its backoff is over. An exhausted record is due at once, for the dead
letter only. With `OnFailure.BLOCK_KEY` or `BLOCK_SHARD`, a record also waits for the earlier queued
records of its key or of its shard. Earlier are also all unresolved records of the shard's
ancestors: they are read by other tasks, so a record that waits for one of them is not due at all
until that one is settled.

A shard's due times depend neither on the current time nor on the limits of a batch. So they are
computed again only when its state has changed, or that of an ancestor for which its records wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import is_, itemgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.reading.fallback import Fallback
from kinesis_spout.service.shard_info import HashRange
from kinesis_spout.shards.lineage import unresolved_ancestors
from state.codec.values import MAX_VALUE_BYTES, encode_unchecked
from state.plan import (
    ChildShard,
    Plan,
    PlannedRetry,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
    TaskPlan,
)
from state.position import Position
from state.report import OnFailure
from state.sequence_number import SequenceNumber
from state.shard_state import by_the_time
from state.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from state.report import OutcomePolicy
    from state.shard_state import ShardState, UnresolvedRecord

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
_NEVER_MS = 1 << 62  # later than every due time; it does not leave this module


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """The limits of a plan.

    `task`: what all tasks have in common, without shards. `max_records_per_trigger`: None for no
    limit. `max_unresolved_per_shard` bounds the unresolved records of a shard, including the plan's
    new ones; None for no limit, where batches are acked as a whole.
    """

    task: TaskPlan
    max_tasks: int
    max_records_per_trigger: int | None
    max_records_per_shard: int
    max_unresolved_per_shard: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardHints:
    """What the driver knows of shards beside their states, as far as it does. The fields of
    `ShardSlice` say what each is for. `gone`: shards that are proven gone, so that nobody asks for
    their retries. `hash_keys`: the first and the last ones.
    """

    endings: Mapping[str, SequenceNumber] = field(default_factory=dict)
    iterators: Mapping[str, str] = field(default_factory=dict)
    next_reads: Mapping[str, int] = field(default_factory=dict)
    next_subscribes: Mapping[str, int] = field(default_factory=dict)
    hash_keys: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    gone: Collection[str] = ()


def make_plan(
    empty: Plan,
    shards: Sequence[str],
    states: Mapping[str, ShardState],
    limits: PlanLimits,
    *,
    turn: int,
    hints: ShardHints,
    retries: Retries = (),
    in_order: bool = False,
) -> Plan:
    """The `empty` plan with tasks for new records of `shards` and for `retries`, which may be of
    other shards, within the limits.

    `turn` rotates which shards come first. A small record limit leaves out shards, and the shards
    of a task fill its bytes in that order. Without the rotation one shard could starve the others.
    `retries`: the most urgent one first. Those that do not fit stay queued, as all retries do until
    they settle. `in_order`: a shard's retries and its new records alternate between plans, since
    new records would overtake retries that did not fit.
    """
    total = limits.max_records_per_trigger
    if total is not None and retries:
        # Retries get at most half of the limit while shards have new records to read.
        retries = _within(retries, max(1, total // 2 if shards else total))
        total = max(0, total - sum(retry.max_rows for _, retry in retries))
    chosen, per_shard = share_records(shards, total, limits.max_records_per_shard, turn)
    new = dict.fromkeys(chosen, per_shard)
    if (allowance := limits.max_unresolved_per_shard) is not None:
        room = {shard: allowance - states[shard].unresolved_count for shard in new}
        new = {shard: min(most, room[shard]) for shard, most in new.items() if room[shard] > 0}
    due = {shard for shard, _ in retries}
    if in_order and turn % 2:
        new = {shard: records for shard, records in new.items() if shard not in due}
    elif in_order:
        due.difference_update(new)
    members = {*new, *due}
    groups = assign(members, max(limits.max_tasks, -(-len(members) // MAX_SHARDS_PER_TASK)))
    planned = _within_tasks([(shard, retry) for shard, retry in retries if shard in due], groups)
    tasks: list[TaskPlan] = []
    for group in groups:
        slices = (
            _slice(states[shard], new.get(shard), planned.get(shard, ()), hints)
            for shard in _rotated(group, turn)
            if shard in new or shard in planned
        )
        tasks.extend(_that_fit(replace(limits.task, shards=tuple(slices))))
    return replace(empty, tasks=tuple(tasks))


def _slice(
    state: ShardState, max_records: int | None, retries: Sequence[PlannedRetry], hints: ShardHints
) -> ShardSlice:
    """The shard's part of its task. `max_records` None: nothing but these retries."""
    shard, keys = state.shard_id, hints.hash_keys.get(state.shard_id)
    planned = ShardSlice(
        shard_id=shard,
        position=state.read_position,
        max_records=max_records or 0,
        next_read_ms=hints.next_reads.get(shard),
        retries=tuple(sorted(retries, key=lambda retry: retry.first)),
        hash_keys=None
        if keys is None or HashRange(*keys).is_whole
        else (str(keys[0]), str(keys[1])),
    )
    if max_records is None:
        return replace(planned, gone=shard in hints.gone)
    return replace(
        planned,
        iterator=hints.iterators.get(shard),
        next_subscribe_ms=hints.next_subscribes.get(shard),
        ending_sequence=hints.endings.get(shard),
        verified_until_ms=state.verified_until_ms,
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


def share_records(
    shards: Sequence[str], total: int | None, per_shard: int, turn: int
) -> tuple[list[str], int]:
    """The shards of a plan and the records that each may give, so that the trigger's limit holds
    however many records they have.
    """
    if total is None or not shards:
        return sorted(shards), per_shard
    if total < len(shards):
        return sorted(_rotated(sorted(shards), turn * total)[:total]), 1
    return sorted(shards), min(per_shard, total // len(shards))


def assign(shards: Iterable[str], tasks: int) -> list[tuple[str, ...]]:
    """Groups of shard ids: at most `tasks` groups, none empty, their sizes at most one apart.

    The ids are assigned to the groups in turn, in sorted order. So the order of the argument does
    not matter, and neighbours, such as the children of one split, get different groups.
    """
    ordered = sorted(shards)
    return [tuple(ordered[first::tasks]) for first in range(min(tasks, len(ordered)))]


def _rotated(shards: Sequence[str], by: int) -> list[str]:
    first = by % len(shards)
    return [*shards[first:], *shards[:first]]


@dataclass(slots=True)
class _ShardQueue:
    """`inherited`: the unresolved records of each ancestor that has any. `due_times`: as
    `due_times`. `next_ms`: None when all records wait for the inherited ones.
    """

    unresolved: tuple[UnresolvedRecord, ...]
    inherited: tuple[tuple[UnresolvedRecord, ...], ...]
    due_times: list[tuple[int, UnresolvedRecord]]
    records: int
    next_ms: int | None
    has_keyless: bool


@dataclass(slots=True)
class RetryQueue:
    """All queued records, by shard. Call `update` after every change of the states."""

    policy: OutcomePolicy | None = None
    _delayed_until_ms: dict[str, int] = field(default_factory=dict)
    _shards: dict[str, _ShardQueue] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)
    _updated_ms: int = 0

    def update(
        self, states: Mapping[str, ShardState], policy: OutcomePolicy | None, now_ms: int
    ) -> None:
        """`now_ms`: what this process has for the time. Failures that are stored as later ones came
        by a clock that was ahead, and their retries are due that much earlier.
        """
        known = self._shards if policy == self.policy else {}
        if now_ms < self._updated_ms:
            known, self._delayed_until_ms = {}, {}
        self._updated_ms = now_ms
        self.policy = policy
        ancestors = unresolved_ancestors(states) if self.in_order else {}
        self._shards = {
            shard: _queue_of(
                state.unresolved,
                tuple(states[ancestor].unresolved for ancestor in ancestors.get(shard, ())),
                policy,
                known.get(shard),
                now_ms,
            )
            for shard, state in states.items()
            if state.unresolved
        }
        self._held = {
            shard
            for shard, found in ancestors.items()
            if self._blocks_shards or any(self._shards[ancestor].has_keyless for ancestor in found)
        }

    @property
    def in_order(self) -> bool:
        """Whether later records wait for earlier ones that failed."""
        return self.policy is not None and self.policy.on_failure is not OnFailure.CONTINUE

    def delay(self, shards: Iterable[str], until_ms: int) -> None:
        """Let no retry of these shards be due before `until_ms`: the service did not know them."""
        self._delayed_until_ms |= dict.fromkeys(shards, until_ms)

    def end_delay(self, shards: Collection[str]) -> None:
        """Their retries are due again when they say."""
        self._delayed_until_ms = {
            shard: until_ms
            for shard, until_ms in self._delayed_until_ms.items()
            if shard not in shards
        }

    def is_due(self, now_ms: int) -> bool:
        """Whether at least one retry is due."""
        next_ms = self.next_ms()
        return next_ms is not None and next_ms <= now_ms

    def next_ms(self) -> int | None:
        """When the next retry is due; None when nothing is queued."""
        return _earliest(map(self._next_ms, self._shards))

    def due(self, now_ms: int) -> list[tuple[str, PlannedRetry]]:
        """The retries that are due, with their shards: what a plan takes first stands first.

        Where order matters, that is the place in its shard's queue, so a plan without room for all
        leaves out the last ones. Otherwise it is the due time.
        """
        found = [
            (place if self.in_order else ready_ms, record.first, shard_id, record)
            for shard_id, shard in self._shards.items()
            if (next_ms := self._next_ms(shard_id)) is not None and next_ms <= now_ms
            for place, (ready_ms, record) in enumerate(
                one for one in shard.due_times if one[0] <= now_ms
            )
        ]
        found.sort(key=itemgetter(0, 1, 2))
        return [(shard_id, self._planned(record, now_ms)) for _, _, shard_id, record in found]

    def _planned(self, record: UnresolvedRecord, now_ms: int) -> PlannedRetry:
        return PlannedRetry(
            first=record.first,
            last=None if record.last == record.first else record.last,
            count=record.count,
            attempts=record.attempts,
            exhausted=self.policy is not None
            and (
                record.rejected
                or self.policy.retry.exhausted(
                    record.attempts, record.first_counted_failure_ms, now_ms
                )
            ),
            whole=record.whole,
        )

    def _next_ms(self, shard_id: str) -> int | None:
        """When the shard's next retry may be planned; None while none may be."""
        next_ms = self._shards[shard_id].next_ms
        return None if next_ms is None else max(next_ms, self._delayed_until_ms.get(shard_id, 0))

    def is_full(self, shard_id: str, max_unresolved: int) -> bool:
        """Whether no new records of the shard may be read: its allowance of unresolved records is
        used up, or its failed records or those of an ancestor block the shard.

        With `OnFailure.BLOCK_KEY`, an ancestor's record without a known key blocks the shard.
        """
        if shard_id in self._held:
            return True
        shard = self._shards.get(shard_id)
        if shard is None:
            return False
        return self._blocks_shards or shard.records >= max_unresolved

    @property
    def _blocks_shards(self) -> bool:
        return self.policy is not None and self.policy.on_failure is OnFailure.BLOCK_SHARD

    def is_empty(self) -> bool:
        """Whether no record of any shard is queued: nothing is due, and no shard is held."""
        return not self._shards

    def records(self) -> int:
        """The number of queued records."""
        return sum(shard.records for shard in self._shards.values())

    def records_of(self, shard_id: str) -> int:
        """The number of queued records of a shard."""
        return self._shards[shard_id].records if shard_id in self._shards else 0

    def waiting(self) -> int:
        """The number of queued records that failed themselves; the others are blocked by one that
        failed.
        """
        return sum(
            record.count
            for shard in self._shards.values()
            for record in shard.unresolved
            if not record.blocked
        )

    def oldest_failure_ms(self) -> int | None:
        """The earliest first failure of a queued record; None when no record has one."""
        return _earliest(
            record.first_failure_ms
            for shard in self._shards.values()
            for record in shard.unresolved
        )


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time_ms for time_ms in times if time_ms is not None), default=None)


def _queue_of(
    unresolved: tuple[UnresolvedRecord, ...],
    inherited: tuple[tuple[UnresolvedRecord, ...], ...],
    policy: OutcomePolicy | None,
    known: _ShardQueue | None,
    now_ms: int,
) -> _ShardQueue:
    # Identity is enough: a state that was not written again is the same object.
    if (
        known is not None
        and known.unresolved is unresolved
        and len(known.inherited) == len(inherited)
        and all(map(is_, known.inherited, inherited))
    ):
        return known
    times = due_times(
        by_the_time(unresolved, now_ms),
        policy,
        by_the_time(tuple(chain.from_iterable(inherited)), now_ms),
    )
    return _ShardQueue(
        unresolved,
        inherited,
        times,
        sum(record.count for record in unresolved),
        min((ready_ms for ready_ms, _ in times), default=None),
        any(record.key is None for record in unresolved),
    )


def due_times(
    unresolved: Sequence[UnresolvedRecord],
    policy: OutcomePolicy | None,
    inherited: Sequence[UnresolvedRecord] = (),
) -> list[tuple[int, UnresolvedRecord]]:
    """A shard's queue in ascending sequence order, each record with the time at which it is due
    together with all that it waits for; without those that wait for `inherited`, the unresolved
    records of the shard's ancestors.

    A record without a known key, such as a range, waits for all earlier records, and all later ones
    wait for it. Without a policy (the application does not track its records), a record is due
    after its backoff and never exhausted.
    """
    records = sorted(unresolved, key=lambda record: record.first)
    own = [(_ready_ms(record, policy), record) for record in records]
    if policy is None or policy.on_failure is OnFailure.CONTINUE:
        return own
    by_key: dict[str, int] = {}
    all_ms = unknown_ms = 0
    found: list[tuple[int, UnresolvedRecord]] = []
    for own_ms, record in chain(((_NEVER_MS, record) for record in inherited), own):
        if policy.on_failure is OnFailure.BLOCK_SHARD or record.key is None:
            ready_ms = unknown_ms = max(own_ms, all_ms)
        else:
            ready_ms = by_key[record.key] = max(own_ms, unknown_ms, by_key.get(record.key, 0))
        all_ms = max(all_ms, ready_ms)
        if ready_ms < _NEVER_MS:
            found.append((ready_ms, record))
    return found


def _ready_ms(record: UnresolvedRecord, policy: OutcomePolicy | None) -> int:
    """When the record is due by itself: after its backoff, or at once when it is exhausted."""
    if policy is None:
        return record.due_ms
    if record.rejected or policy.retry.exhausted(record.attempts, None, 0):
        return 0
    first_ms = record.first_counted_failure_ms
    if policy.retry.max_age_ms is None or first_ms is None:
        return record.due_ms
    # Past the maximum age it is exhausted, so it need not wait for its backoff.
    return min(record.due_ms, first_ms + policy.retry.max_age_ms + 1)
