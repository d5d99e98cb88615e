"""The stored state of one shard: how far it was read, how far it is acked, and which records are
unresolved in between.

Invariant: every record from the start to before `read_position` is acked or in `unresolved`, which
names the user records of an aggregate one by one. `checkpoint` is the greatest known sequence
number up to which every record is acked, inclusive. It is for people, and for the tools of the
Kinesis Storm spout. It and a read position AFTER a record count Kinesis records: an aggregate is
one, with all of its user records.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from state.position import SHARD_END, Position, PositionKind
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterable

STATE_FORMAT = 1

FIRST_READ_GRACE_MS = 300_000

TIMED_OUT = "no outcome until its deadline"
"""The stored reason of a record that had no outcome in time."""


class Lifecycle(StrEnum):
    """`ACTIVE`: the end was not read. `DRAINED`: the end was read, some records are unresolved.
    `FINISHED`: the end was read, all records are acked.
    """

    ACTIVE = "active"
    DRAINED = "drained"
    FINISHED = "finished"


class UnresolvedRecord(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A record that failed and waits for its retry; with `count` > 1, a range of such records.

    - `first`, `last`: both inclusive. Equal for a single record. Those of user records have
      sub-sequence numbers.
    - `attempts`: the deliveries so far that had an outcome.
    - `due_ms`: when the next delivery is due (milliseconds since 1970).
    - `first_failure_ms`, `last_failure_ms`: also of failures that did not count as attempts.
    - `key`: a hash of the partition key; None if it is not known.
    - `blocked`: the record did not fail itself, and was not tried. It waits for an earlier record
      of its key or shard, because the application prefers order to progress
      (`state.report.OnFailure`); or earlier deliveries of its batch never answered.
    - `rejected`: it may not be tried again, whatever the policy says. It waits for its dead letter.
    - `whole`: it was delivered while aggregates were not unpacked. So a number without a
      sub-sequence number names a Kinesis record, and not the first user record of an aggregate.
    """

    first: SequenceNumber
    last: SequenceNumber
    count: int = 1
    attempts: int
    due_ms: int
    first_failure_ms: int | None = None
    last_failure_ms: int | None = None
    reason: str | None = None
    key: str | None = None
    blocked: bool = False
    rejected: bool = False
    whole: bool = False

    @property
    def first_counted_failure_ms(self) -> int | None:
        """When it first failed, from which on it ages; None while no failure of it counts."""
        return self.first_failure_ms if self.attempts else None


def as_whole(records: Iterable[UnresolvedRecord]) -> tuple[UnresolvedRecord, ...]:
    """The same records, delivered while aggregates were not unpacked."""
    return tuple(record if record.whole else replace(record, whole=True) for record in records)


def by_the_time(records: tuple[UnresolvedRecord, ...], now_ms: int) -> tuple[UnresolvedRecord, ...]:
    """The same records, by a clock that says `now_ms`. A record that failed later than that was
    stored by a clock that was ahead: its times are set back, so that it waits no longer than it was
    to wait. Returns `records` itself when there is none.
    """
    if not any((record.last_failure_ms or 0) > now_ms for record in records):
        return records
    return tuple(_set_back(record, (record.last_failure_ms or 0) - now_ms) for record in records)


def _set_back(record: UnresolvedRecord, ahead_ms: int) -> UnresolvedRecord:
    if ahead_ms <= 0:
        return record
    first_ms, last_ms = record.first_failure_ms, record.last_failure_ms
    return replace(
        record,
        due_ms=max(0, record.due_ms - ahead_ms),
        first_failure_ms=None if first_ms is None else max(0, first_ms - ahead_ms),
        last_failure_ms=None if last_ms is None else last_ms - ahead_ms,
    )


class ShardState(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One shard's state, as stored at `<shardId>/state`. The shard id is in the path only.

    - `checkpoint`: None until the first record is acked. For a finished shard, SHARD_END is stored
      and shown instead (`checkpoint_text`).
    - `read_position`: where the next read starts; SHARD_END once the end was read.
    - `settled_plan`: the last plan that was settled into this state.
    - `verified_until_ms`: the service time before which no record can have been missed. It is the
      later of the last record's arrival and the last time at which the shard was at its tip; of a
      shard of which no record was read yet, the time of the start; None if none is known, and of a
      shard that was given up.
    - `at_tip`: whether the last read ended at the tip.
    """

    shard_id: str
    checkpoint: SequenceNumber | None = None
    read_position: Position
    unresolved: tuple[UnresolvedRecord, ...] = ()
    parents: tuple[str, ...] = ()
    settled_plan: str | None = None
    verified_until_ms: int | None = None
    at_tip: bool = False
    format: int = STATE_FORMAT

    @property
    def lifecycle(self) -> Lifecycle:
        """The shard's progress in one word, which is stored for operators to read."""
        if not self.end_was_read:
            return Lifecycle.ACTIVE
        return Lifecycle.DRAINED if self.unresolved else Lifecycle.FINISHED

    @property
    def checkpoint_text(self) -> str | None:
        """The checkpoint as stored and shown: a number, SHARD_END of a finished shard, or None."""
        if self.finished:
            return PositionKind.SHARD_END.value
        return None if self.checkpoint is None else str(self.checkpoint)

    @property
    def unresolved_count(self) -> int:
        """The number of unresolved records; a range counts with all of its records."""
        return sum(record.count for record in self.unresolved)

    @property
    def finished(self) -> bool:
        return self.lifecycle is Lifecycle.FINISHED

    @property
    def end_was_read(self) -> bool:
        """Whether the shard was read to its end and that read is settled. Its children may be read
        then; queued retries do not hold them back.
        """
        return self.read_position.kind is PositionKind.SHARD_END


def given_up(state: ShardState) -> ShardState:
    """The state of a shard that is gone, and whose loss was reported: nothing can be read of it, no
    child waits for it, and nobody asks for its children, which may be gone as well.
    """
    return replace(state, read_position=SHARD_END, verified_until_ms=None)


def verified_by_first_read(verified_ms: int, position: Position, arrival_ms: int) -> int:
    """`verified_until_ms` of a shard after its first read, from `position`, whose last record
    arrived at `arrival_ms`. Later reads do not change it.

    What is behind is a backlog, and may expire unread. What expires of it within
    `FIRST_READ_GRACE_MS` is not missed: at the edge of the retention, records expire while an
    application begins.
    """
    if position.sequence is not None or position.is_end:
        return verified_ms
    return min(verified_ms, arrival_ms + FIRST_READ_GRACE_MS)
