"""The report of a tracked batch: the records that stay unresolved. All other records that the
plan's tasks read are acked. It is opened before the batch's function starts, and done when its
sinks and dead letters are written. Without a done report, its records are delivered again.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from state.retry_policy import RetryPolicy
from state.shard_state import UnresolvedRecord, as_whole

REPORT_FORMAT = 1


class OnFailure(StrEnum):
    """The records that are held back while a failed record waits for its retry: none, those of its
    partition key, or those of its whole shard.
    """

    CONTINUE = "continue"
    BLOCK_KEY = "block_key"
    BLOCK_SHARD = "block_shard"


class OutcomePolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How an application treats failed records. Its znode marks an application that tracks its
    records, and the planner plans by it.
    """

    retry: RetryPolicy = RetryPolicy()
    on_failure: OnFailure = OnFailure.CONTINUE
    format: int = REPORT_FORMAT


class ReportStatus(StrEnum):
    OPEN = "open"
    DONE = "done"


class OpenReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report that this process has opened. `ReportStore.finish` succeeds only if no other
    process has opened it since.

    - `version`: the version of the report's znode.
    - `openings`: how many earlier openings never answered. Their processes died, of whatever cause.
    """

    plan_id: str
    token: str
    version: int
    openings: int = 0

    @property
    def reopened(self) -> bool:
        """Whether the plan had a report before: its batch may have been written already."""
        return self.version > 0


class PlanReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcomes of a plan.

    - `unresolved`: by shard, the records that the plan read and that stay unresolved, ascending.
      Each is stored as given in the shard's state. All others that were read are acked.
    - `tasks`: the tasks whose results the batch has seen. The records of all other tasks are
      delivered again. None in a report of an earlier version, which has seen all.
    - `delivery_limit`: earlier deliveries of the batch, or of one before it, never answered, so the
      next plan may have at most so many records; None: any.
    - `outage`: so many records failed, or so few succeeded, that an outage is the cause and not the
      records. Their attempts did not count, and reading pauses.
    - `failed`, `retried`, `exhausted`, `dead_lettered`, `dropped`: numbers of records, for people
      to read. `failed` are all deliveries that failed; of those, `retried` are queued again and
      `exhausted` may not be.
    """

    unresolved: dict[str, tuple[UnresolvedRecord, ...]] = {}
    tasks: tuple[int, ...] | None = None
    delivery_limit: int | None = None
    outage: bool = msgspec.field(default=False, name="storm")  # the name in ZooKeeper stays
    failed: int = 0
    retried: int = 0
    exhausted: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    done_ms: int = 0
    format: int = REPORT_FORMAT

    @property
    def of_whole_records(self) -> PlanReport:
        """The report of a batch that was delivered without unpacking aggregates."""
        return replace(
            self, unresolved={shard: as_whole(left) for shard, left in self.unresolved.items()}
        )
