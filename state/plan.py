"""A plan: what one Spark batch is to read, and the ends: what its tasks did read.

Nobody can ask Kinesis where a shard ends, so a plan says where each shard's read starts and what
limits it; the task that reads publishes the end, once, before its first row leaves. A plan is open
(ends may be published), closed (none may be any more) and settled (its outcomes are in the shard
states).
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from state.position import Position
from state.sequence_number import SequenceNumber

PLAN_FORMAT = 1
_PLAN_ID = re.compile(r"([0-9]{1,18})-([0-9a-z]{1,32})", re.ASCII)


class PlanStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    SETTLED = "settled"


class PlanPointer(msgspec.Struct, frozen=True):
    """The content of `/plan`: the newest plan and how far it has got."""

    id: str
    status: PlanStatus


class PlannedRetry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A queued record (or, with `last`, a range of `count` of them) to be read again, exactly by
    its number.

    `attempts` is what it had before; `exhausted`: it may not be tried again, so it is read for the
    dead letter only.
    """

    first: SequenceNumber
    last: SequenceNumber | None = None
    count: int = 1
    attempts: int
    exhausted: bool = False


class ShardSlice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a task is to read of one shard: from `position`, at most `max_records`. `iterator` is a
    hint that may have expired.

    `ending_sequence` is where a closed shard ends, as the shard list says: one more sign of the
    end, never the only one. `retries`, ascending, all before `position`, are read first; with
    `max_records` 0 nothing else is.
    """

    shard_id: str
    position: Position
    max_records: int
    iterator: str | None = None
    ending_sequence: SequenceNumber | None = None
    retries: tuple[PlannedRetry, ...] = ()


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one task is to read: its shards in the order in which their rows leave, and its limits.

    `max_bytes` bounds what the task holds before it publishes; `fetch_time_ms` is the time box
    after which a shard that has found something is left; `fetch_cap_ms` bounds the search of one
    that is behind and has found nothing.
    """

    shards: tuple[ShardSlice, ...]
    max_bytes: int
    fetch_time_ms: int
    fetch_cap_ms: int


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one batch is to read. `until_ms`: the service time that an AvailableNow run pinned, if
    it is one.

    `outages`: how many plans in a row, up to this one, were outages of failures (see
    `state.report.PlanReport`).
    """

    plan_id: str
    created_ms: int
    tasks: tuple[TaskPlan, ...]
    until_ms: int | None = None
    outages: int = msgspec.field(default=0, name="storms")  # the name in ZooKeeper stays
    format: int = PLAN_FORMAT


class ChildShard(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A shard that continues the hash-key range of its parents (one after a split, two after a
    merge).
    """

    shard_id: str
    parents: tuple[str, ...]


class ShardReadResult(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What a task read of one shard: exactly the `count` records from `first` to `last`, both
    inclusive (None if none).

    - `at_tip`: the last fetch reached the tip; `tip_ms` is the service's time then, or when it
      reached the shard's end.
    - `at_shard_end`: the shard ends after `last`; `children` continue it, as far as the service
      named them.
    - `gone`: the service does not know the shard (any more), so what was left of it after `last`
      was not read.
    - `last_arrival_ms`: arrival time of the record `last`; `iterator`: a hint for the next read.
    - `retries_done`: so many of the slice's retries, from the first on, were looked for;
      `retry_rows` records of them were found (not among `count`); `retries_gone` are the first
      numbers of those of which no record is left.
    """

    shard_id: str
    first: SequenceNumber | None = None
    last: SequenceNumber | None = None
    count: int = 0
    at_tip: bool = False
    tip_ms: int | None = None
    at_shard_end: bool = msgspec.field(
        default=False, name="shardEnd"
    )  # the name in ZooKeeper stays
    gone: bool = False
    children: tuple[ChildShard, ...] = ()
    last_arrival_ms: int | None = None
    millis_behind_latest: int = 0
    iterator: str | None = None
    retries_done: int = 0
    retry_rows: int = 0
    retries_gone: tuple[SequenceNumber, ...] = ()


class TaskResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a task published. `token` is the attempt's own, so that it knows its end again after a
    lost answer.
    """

    token: str
    shards: tuple[ShardReadResult, ...]
    format: int = PLAN_FORMAT


def make_plan_id(number: int, nonce: str) -> str:
    """`<number>-<nonce>`: the number orders plans, the nonce (lower-case hex) makes the id an
    identity.
    """
    plan_id = f"{number}-{nonce}"
    plan_number(plan_id)
    return plan_id


def plan_number(plan_id: str) -> int:
    """The number of a plan id; raises ValueError for a text that is none."""
    match = _PLAN_ID.fullmatch(plan_id)
    if match is None:
        raise ValueError(f"{plan_id!r} is not a plan id; expected <number>-<nonce>")
    return int(match[1])
