"""The report of a tracked batch: what of the plan stays unresolved. Everything else that the plan's
tasks read is acked.

A report is open before the batch's function starts and done when its sinks and dead letters are
written. A plan of an application that tracks its records is settled by a done report only; without
one, what it read is delivered again.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from state.retry_policy import RetryPolicy
from state.shard_state import UnresolvedRecord

REPORT_FORMAT = 1


class OnFailure(StrEnum):
    """What goes on while a failed record waits: everything, all but its partition key, or nothing
    of its shard.
    """

    CONTINUE = "continue"
    BLOCK_KEY = "block_key"
    BLOCK_SHARD = "block_shard"


class OutcomePolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How an application treats failed records; stored as the mark of one that tracks its records.
    The planner goes by it.
    """

    retry: RetryPolicy = RetryPolicy()
    on_failure: OnFailure = OnFailure.CONTINUE
    format: int = REPORT_FORMAT


class ReportStatus(StrEnum):
    OPEN = "open"
    DONE = "done"


class OpenReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report that this process has opened: `finish_report` succeeds only while nobody else has
    opened it since.

    `reopened`: the plan had a report before, so its batch (or its dead letters) may have been
    written already.
    """

    plan_id: str
    token: str
    version: int
    reopened: bool


class ShardOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What stays unresolved of what the plan read of a shard, ascending: each as it is to be stored
    in the shard's state.
    """

    shard_id: str
    unresolved: tuple[UnresolvedRecord, ...] = ()


class PlanReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcomes of a plan. Shards without an outcome are acked as read. The counts are of
    records, for people.

    - `outage`: so many failed that it is an outage, not the records: their attempts did not count,
      and reading pauses.
    - `failed`: deliveries that failed, `retried` those of them that are queued again, `exhausted`
      those that may not be.
    """

    shards: tuple[ShardOutcome, ...] = ()
    outage: bool = msgspec.field(default=False, name="storm")  # the name in ZooKeeper stays
    failed: int = 0
    retried: int = 0
    exhausted: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    done_ms: int = 0
    format: int = REPORT_FORMAT
