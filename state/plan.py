"""Plans (what the tasks of one Spark batch read) and task results (what they did read).

A plan says where the read of each shard starts and what limits it. The task that reads publishes
what it read (`state.task_log`). A plan is open (results may be published), then closed (no result
may be published any more), then settled (its outcomes are in the shard states).
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from state.position import Position
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from state.shard_state import UnresolvedRecord

PLAN_FORMAT = 1
_PLAN_ID = re.compile(r"([0-9]{1,18})-([0-9a-z]{1,32})", re.ASCII)


class PlanStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    SETTLED = "settled"


class PlanPointer(msgspec.Struct, frozen=True):
    """The content of `/plan`: the newest plan and its status."""

    id: str
    status: PlanStatus


class PlannedRetry(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A queued record to read again by its number; with `last` (inclusive), a range of `count`.

    `attempts`: the attempts that it had before. `exhausted`: it may not be tried again, so it is
    read only to be dead-lettered. `max_records`: at most so many records of the range are read with
    this plan; the rest stays queued. None: all of them. `whole`: as in `UnresolvedRecord`.
    """

    first: SequenceNumber
    last: SequenceNumber | None = None
    count: int = 1
    attempts: int
    exhausted: bool = False
    max_records: int | None = None
    whole: bool = False

    @classmethod
    def of(cls, record: UnresolvedRecord, *, exhausted: bool = False) -> PlannedRetry:
        return cls(
            first=record.first,
            last=None if record.last == record.first else record.last,
            count=record.count,
            attempts=record.attempts,
            exhausted=exhausted,
            whole=record.whole,
        )

    @property
    def end(self) -> SequenceNumber:
        """The last number that it covers; of a single record, its own."""
        return self.first if self.last is None else self.last

    @property
    def max_rows(self) -> int:
        """How many records this plan reads of it, as far as its count says."""
        return self.count if self.max_records is None else min(self.count, self.max_records)


class ShardSlice(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One shard's part of a task: read at most `max_records` from `position`, after the retries.

    - `retries`: ascending, all before `position`; they are read first; alone with `max_records` 0.
    - `iterator`: a shard iterator for `position`, as a hint. It may have expired.
    - `next_read_ms`, `next_subscribe_ms`: when the last reader's clock says that the service allows
      the next read of the shard, or subscription to it, as a hint; None if it does by now.
    - `ending_sequence`: the last sequence number of a closed shard, as the shard list says. It is
      evidence of the end besides the service's own answer, never the only evidence.
    - `verified_until_ms`: that of the shard's state when the plan was made.
    - `gone`: the service no longer has the shard, so its retries are gone, and nobody asks for
      them. Proven by two listings and a direct question before the plan was made.
    - `hash_keys`: the shard's first and last hash key, as decimal numbers. User records of
      aggregates outside them are left out, of new records and of ranges of retries. None: none is.
    """

    shard_id: str
    position: Position
    max_records: int
    iterator: str | None = None
    next_read_ms: int | None = None
    next_subscribe_ms: int | None = None
    ending_sequence: SequenceNumber | None = None
    retries: tuple[PlannedRetry, ...] = ()
    verified_until_ms: int | None = None
    gone: bool = False
    hash_keys: tuple[str, str] | None = None


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The shards that one task reads, in the order in which their rows leave it, and its limits.

    - `max_bytes`: how much payload the task reads.
    - `fetch_time_ms`: after this time, a shard that has returned records is read no further.
    - `fetch_cap_ms`: after this time, so is a shard that is behind its tip and has returned none.
    - `retention_ms`: the stream's; None if it is not known.
    - `aggregated_records`: the option of that name, which every attempt goes by
      (`spark_job.rows.mode_of`); None in a plan of an earlier version.
    - `consumer_arn`: the registered consumer with which the first attempt may subscribe to the
      shards; None: they are polled.
    """

    shards: tuple[ShardSlice, ...]
    max_bytes: int
    fetch_time_ms: int
    fetch_cap_ms: int
    retention_ms: int | None = None
    aggregated_records: str | None = None
    consumer_arn: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The tasks of one batch.

    - `until_ms`: the service time that an AvailableNow run has pinned; None for other runs.
    - `outages`: how many plans in a row, up to this one, were outages (`state.report.PlanReport`).
    - `delivery_limit`: it has only queued records, and at most so many, because an earlier batch
      never answered (`state.report.PlanReport`). None: there is no such limit.
    """

    plan_id: str
    created_ms: int
    tasks: tuple[TaskPlan, ...]
    until_ms: int | None = None
    outages: int = msgspec.field(default=0, name="storms")  # the name in ZooKeeper stays
    delivery_limit: int | None = None
    format: int = PLAN_FORMAT

    @property
    def slices(self) -> dict[str, ShardSlice]:
        """The slices of all tasks by shard, in the order of the tasks."""
        return {shard.shard_id: shard for task in self.tasks for shard in task.shards}

    @property
    def aggregated_records(self) -> str | None:
        """That of its tasks, which are all made at once."""
        return next((task.aggregated_records for task in self.tasks), None)


class ChildShard(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A shard that continues its parents' hash keys: of one after a split, two after a merge."""

    shard_id: str
    parents: tuple[str, ...]


class ShortRange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A planned range, from `first` on, of which `missing` records are past the retention."""

    first: SequenceNumber
    missing: int


class RangePart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a planned range that was read: `count` records up to `last`, inclusive. The
    others, from `rest` on, stay queued.
    """

    last: SequenceNumber
    rest: SequenceNumber
    count: int


class UserRecords(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The user records of a read range in which aggregates were unpacked, and its plain records:
    their number, and the first and the last of them. Both are None if the shard owns none of them.
    """

    count: int
    first: SequenceNumber | None = None
    last: SequenceNumber | None = None


def users_of_all(parts: Iterable[UserRecords]) -> UserRecords:
    """The records of parts that follow each other."""
    ranges = list(parts)
    return UserRecords(
        count=sum(part.count for part in ranges),
        first=next((part.first for part in ranges if part.first is not None), None),
        last=next((part.last for part in reversed(ranges) if part.last is not None), None),
    )


class Fallback(StrEnum):
    """Why a shard is polled that was to be read by subscription.

    REFUSED   the service did not open the subscription
    IN_USE    another subscription of the consumer to the shard is open, was opened less than five
              seconds before, or has replaced this one
    MISSING   the service does not know the consumer, or the shard
    BROKEN    the connection broke, the service ended it with an error, or an event is no event
    SILENT    no record was pushed in time; it may push again
    ENDED     the subscription lived its five minutes
    """

    REFUSED = "refused"
    IN_USE = "in_use"
    MISSING = "missing"
    BROKEN = "broken"
    SILENT = "silent"
    ENDED = "ended"


class ShardReadResult(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A task's read of one shard, or a part of it as an entry of the task's log: exactly the
    `count` records from `first` to `last`, both inclusive. Both are None without records.

    - `at_tip`: the last fetch reached the tip. `tip_ms`: the service's time then, or when the read
      reached the shard's end.
    - `at_shard_end`: the shard ends after `last`. `children`: the shards that continue it, as far
      as the service named them.
    - `gone`: the service no longer knows the shard, so nothing after `last` was read.
    - `last_arrival_ms`: the arrival time of the record `last`.
    - `iterator`, `next_read_ms`, `next_subscribe_ms`: hints for the next read (`ShardSlice`).
    - `throttled`: how many reads the service refused because the shard's limits were used up.
    - `pushed`: how many of the records came by a subscription. `fallback`: a `Fallback`, where the
      shard was polled at the end, though it was to be subscribed to.
    - `retries_done`: the number of the slice's retries that were looked for, from the first on.
      `retry_rows`: the number of their records that were found, not included in `count`.
      `retries_gone`: the first numbers of those of which no record is left in the stream.
      `retries_short`: those ranges of which only the later records are left.
    - `retry_part`: the part that was read of the range after these; None if nothing of it was. Its
      records count in `retry_rows`.
    - `position`: that it was read from; None in a result of an earlier version.
    - `payload_bytes`: length of the data of these records, retries included.
    - `users`: where aggregates of the range were unpacked, the records that were handed over; None
      where they are those that were read.
    - `lapsed_ms`: the service time of a page that came more than the retention after the shard was
      last verified, so that records may have expired unread before it; None if there was none.
    """

    shard_id: str
    first: SequenceNumber | None = None
    last: SequenceNumber | None = None
    count: int = 0
    at_tip: bool = False
    tip_ms: int | None = None
    at_shard_end: bool = msgspec.field(default=False, name="shardEnd")  # its stored name stays
    gone: bool = False
    children: tuple[ChildShard, ...] = ()
    last_arrival_ms: int | None = None
    millis_behind_latest: int = 0
    iterator: str | None = None
    next_read_ms: int | None = None
    next_subscribe_ms: int | None = None
    throttled: int = 0
    pushed: int = 0
    fallback: str | None = None
    retries_done: int = 0
    retry_rows: int = 0
    retries_gone: tuple[SequenceNumber, ...] = ()
    retries_short: tuple[ShortRange, ...] = ()
    retry_part: RangePart | None = None
    position: Position | None = None
    lapsed_ms: int | None = None
    users: UserRecords | None = None
    payload_bytes: int = msgspec.field(default=0, name="bytes")

    @property
    def in_user_records(self) -> ShardReadResult:
        """The result with the count and the numbers of the records that were handed over, as
        outcomes name them. With a count of 0, `first` and `last` are what was read.
        """
        users = self.users
        if users is None or self.first is None or self.last is None:
            return self
        # Where the read began within an aggregate, the user records before that were not read.
        start = None if self.position is None else self.position.sequence
        begin = self.first if start is None else max(start, self.first)
        return msgspec.structs.replace(
            self,
            first=users.first or begin,
            last=users.last or max(begin, self.last),
            count=users.count,
            users=None,
        )


class TaskResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A task's log (`state.task_log`), folded. `sealed`: nothing is added to it any more."""

    shards: tuple[ShardReadResult, ...]
    sealed: bool = True
    format: int = PLAN_FORMAT


def missing_records(count: int, found: int, *, has_first: bool) -> int:
    """How many of a range's `count` records are gone, of which `found` are left."""
    return 0 if has_first and found >= count else max(count - found, 1)


def rest_of_range(record: UnresolvedRecord, first: SequenceNumber, left: int) -> UnresolvedRecord:
    """The part of a record or range from `first` on, of which `left` records are left by the
    range's count. It counts its own ends at least: the range may have more records than that.
    """
    count = 1 if first == record.last else max(2, left)
    return msgspec.structs.replace(record, first=first, count=count)


class RetryRead(NamedTuple):
    """What a task read of one planned retry.

    The count of a range is the number of its unresolved records. A range that was collapsed for
    lack of room also covers acked records, so more may be found in it. A range is short if its
    first record, or as many records as it counts, were not found. The others are past the stream's
    retention: at least one, since expiry removes the oldest first.

    - `found`: its records that were delivered, as far as its count says.
    - `missing`: its records that are past the stream's retention.
    - `is_gone`: none of its records is left.
    - `part`: the part that was read of it; None if it was read to its end.
    """

    retry: PlannedRetry
    found: int
    missing: int
    is_gone: bool
    part: RangePart | None

    @property
    def last(self) -> SequenceNumber:
        """The number up to which it was read, inclusive."""
        return self.retry.end if self.part is None else self.part.last

    @property
    def as_retry(self) -> PlannedRetry:
        """The retry of exactly what was read."""
        last = None if self.last == self.retry.first else self.last
        count = self.retry.count if self.part is None else self.part.count
        return msgspec.structs.replace(self.retry, last=last, count=count, max_records=None)

    def rest_of(self, stored: UnresolvedRecord) -> UnresolvedRecord | None:
        """What stays queued of `stored`, the record that was read; None if nothing does."""
        if self.part is None:
            return None
        left = stored.count - self.found - self.missing
        return rest_of_range(stored, self.part.rest, left)


def retries_read(retries: Sequence[PlannedRetry], read: ShardReadResult) -> list[RetryRead]:
    """What `read` says was read of the planned `retries`, in their order. The others were not."""
    gone = set(read.retries_gone)
    missing = {short.first: short.missing for short in read.retries_short}
    missing |= {retry.first: retry.count for retry in retries if retry.first in gone}
    reads = []
    for index, retry in enumerate(retries):
        part = read.retry_part if index == read.retries_done else None
        if index >= read.retries_done and part is None:
            continue
        lost = missing.get(retry.first, 0)
        found = max(0, retry.count - lost) if part is None else part.count
        reads.append(RetryRead(retry, found, lost, retry.first in gone, part))
    return reads


def retries_with_rows(retries: Sequence[PlannedRetry], read: ShardReadResult) -> list[PlannedRetry]:
    """The planned `retries` of which `read` has rows, each cut to the part that was read."""
    return [found.as_retry for found in retries_read(retries, read) if not found.is_gone]


def make_plan_id(number: int, nonce: str) -> str:
    """`<number>-<nonce>`: the number orders plans, the nonce (lower-case hex) makes it unique."""
    plan_id = f"{number}-{nonce}"
    plan_number(plan_id)
    return plan_id


@lru_cache(maxsize=1024)  # the few plans that there are, at each step
def plan_number(plan_id: str) -> int:
    """The number of a plan id; raises ValueError for a text that is not a plan id."""
    match = _PLAN_ID.fullmatch(plan_id)
    if match is None:
        raise ValueError(f"{plan_id!r} is not a plan id; expected <number>-<nonce>")
    return int(match[1])
