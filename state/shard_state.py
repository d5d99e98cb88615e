"""What is kept of one shard: how far it was read, how far it is acked, and what is unresolved
between the two.

Invariant: every record before `read_position` (and from the start on) is acked, or in `unresolved`.
`checkpoint` is the greatest known sequence number up to which everything is acked: for people and
for the ancestor's tools. Redelivery goes by `read_position` and `unresolved`, which are exact.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from state.position import Position, PositionKind
from state.sequence_number import SequenceNumber

STATE_FORMAT = 1


class Lifecycle(StrEnum):
    """`ACTIVE`: there is, or will be, more to read. `DRAINED`: end read, records unresolved.
    `FINISHED`: end read, all acked.
    """

    ACTIVE = "active"
    DRAINED = "drained"
    FINISHED = "finished"


class UnresolvedRecord(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A record that failed and waits for its retry, or (`count` > 1) a collapsed range of such
    records.

    `attempts` counts the deliveries so far that had an outcome; `due_ms` is when the next may come
    (ms since 1970). `key` is a hash of the partition key (None: not known) and `blocked` says that
    it did not fail itself but waits for an earlier record of its key or shard: only where order
    matters more than going on (`state.report.OnFailure`). `rejected`: it may not be tried again
    whatever the policy says, and waits for its dead letter.
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


class ShardState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One shard's state, as stored at `<shardId>/state` (the shard id is in the path, not in the
    value).

    - `checkpoint`: None as long as nothing is acked. A finished shard's is stored and shown as
      SHARD_END (`checkpoint_text`).
    - `read_position`: where the next plan starts to read; SHARD_END once the end was read.
    - `settled_plan`: the last plan that was settled into this state; settling it again changes
      nothing.
    - `verified_until_ms`: service time up to which nothing can have been missed: the later of the
      last record's arrival and the last time the shard was seen at its tip. None as long as neither
      is known.
    - `at_tip`: whether the last read ended at the tip.
    """

    shard_id: str
    checkpoint: SequenceNumber | None = None
    read_position: Position
    unresolved: tuple[UnresolvedRecord, ...] = ()
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    parents: tuple[str, ...] = ()
    settled_plan: str | None = None
    verified_until_ms: int | None = None
    at_tip: bool = False
    format: int = STATE_FORMAT

    @property
    def checkpoint_text(self) -> str | None:
        """The checkpoint as stored and shown: a sequence number, SHARD_END of a finished shard, or
        None.
        """
        if self.lifecycle is Lifecycle.FINISHED:
            return PositionKind.SHARD_END.value
        return None if self.checkpoint is None else str(self.checkpoint)

    @property
    def unresolved_count(self) -> int:
        """How many records wait for their retry."""
        return sum(record.count for record in self.unresolved)

    @property
    def finished(self) -> bool:
        return self.lifecycle is Lifecycle.FINISHED

    @property
    def end_was_read(self) -> bool:
        """Whether its children may be read: the end was read and that plan is settled (queued
        retries do not hold them).
        """
        return self.read_position.is_end
