"""The driver's summary of outcomes between two batches: the retry queue, whether the application
tracks its records, outages, the delivery limit, and totals for the progress report.

A shard's queue is computed again only when its state has changed, or that of an ancestor for which
its records wait.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import ConfigError
from kinesis_spout.shards.ancestors import unresolved_ancestors
from spark_job.driver.retry_planner import DueRetry, QueuedRetry, due_retries, queued_retries
from spark_job.driver.settle_plan import delivery_limit_after, outages_after
from state.plan import PlanStatus
from state.report import OnFailure
from state.shard_state import by_the_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from spark_job.driver.settle_plan import Settled
    from spark_job.settings import SourceSettings
    from state.report import OutcomePolicy
    from state.shard_state import ShardState, UnresolvedRecord
    from state.store.plans import PlanReader
    from state.store.reports import ReportStore
    from state.store.shard_states import StoredState

log = logging.getLogger("kinesis_spout")
MAX_UNREPORTED = 2  # plans in a row: a single one may be an accident


@dataclass(slots=True)
class _ShardQueue:
    """`inherited`: the unresolved records of each ancestor that has any. `next_ms`: None when all
    records wait for those.
    """

    unresolved: tuple[UnresolvedRecord, ...]
    inherited: tuple[tuple[UnresolvedRecord, ...], ...]
    queue: list[QueuedRetry]
    records: int
    next_ms: int | None
    has_keyless: bool


@dataclass(slots=True)
class RetryQueue:
    """All queued records, by shard. Call `update` after every change of the states.

    Pure but for its own memory. Times are milliseconds since 1970.
    """

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
                tuple(states[one].unresolved for one in ancestors.get(shard, ())),
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
            if self._blocks_shards or any(self._shards[one].has_keyless for one in found)
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
        times = (self._next_ms(shard) for shard in self._shards)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def due(self, now_ms: int) -> dict[str, list[DueRetry]]:
        """The retries that are due, by shard, in ascending sequence order."""
        return {
            shard: due_retries(one.queue, self.policy, now_ms)
            for shard, one in self._shards.items()
            if (time_ms := self._next_ms(shard)) is not None and time_ms <= now_ms
        }

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
        shard = self._shards.get(shard_id)
        return 0 if shard is None else shard.records

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
        times = (
            record.first_failure_ms
            for shard in self._shards.values()
            for record in shard.unresolved
        )
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
    queue = queued_retries(
        by_the_time(unresolved, now_ms),
        policy,
        by_the_time(tuple(chain.from_iterable(inherited)), now_ms),
    )
    return _ShardQueue(
        unresolved,
        inherited,
        queue,
        sum(record.count for record in unresolved),
        min((queued.ready_ms for queued in queue), default=None),
        any(record.key is None for record in unresolved),
    )


class OutcomeSummary:
    """The outcomes of one query. `open` and `on_settled` keep them up to date; the other methods do
    no I/O.
    """

    def __init__(self, settings: SourceSettings, plans: PlanReader, reports: ReportStore) -> None:
        self.queue = RetryQueue()
        self.outages = 0
        self.delivery_limit: int | None = None
        self._settings = settings
        self._plans = plans
        self._reports = reports
        self._unreported = 0
        self._totals: Counter[str] = Counter()
        self._emitted: Counter[str] = Counter()  # by shard
        self._retried: Counter[str] = Counter()

    def open(self, states: Mapping[str, StoredState], now_ms: int) -> None:
        """Restore what an earlier run left in ZooKeeper. `now_ms`: by the machine's clock.

        With option `wholeBatchAck`, removes the mark of an application that tracks its records.
        """
        policy = self._reports.read_policy()
        if policy is not None and self._settings.whole_batch_ack:
            self._reports.clear_policy()
            policy = None
            log.warning(
                "application %s acks whole batches from now on, because wholeBatchAck is true",
                self._settings.application,
            )
        self.queue.update({shard: stored.state for shard, stored in states.items()}, policy, now_ms)
        pointer = self._plans.pointer()
        plan = None if pointer is None else self._plans.read(pointer.id)
        if pointer is not None and plan is not None:
            is_settled = pointer.status is PlanStatus.SETTLED
            report = self._reports.read(pointer.id) if is_settled else None
            is_tracked = policy is not None
            self.outages = outages_after(plan, report, is_tracked=is_tracked)
            self.delivery_limit = delivery_limit_after(plan, report, is_tracked=is_tracked)

    def on_settled(self, plan_id: str, settled: Settled, now_ms: int) -> None:
        """Take in a settled plan. `now_ms`: by the machine's clock. Raises `ConfigError` when
        several plans in a row ended without a report of their outcomes.
        """
        self.queue.update(
            {shard: stored.state for shard, stored in settled.states.items()},
            settled.policy,
            now_ms,
        )
        if settled.outages and not self.outages:
            log.warning(
                "most records of plan %s failed: no new records are read until their retries "
                "succeed",
                plan_id,
            )
        elif self.outages and not settled.outages:
            log.warning(
                "most records of plan %s were processed: new records are read again", plan_id
            )
        if settled.delivery_limit is not None and self.delivery_limit is None:
            log.warning(
                "deliveries of plan %s did not answer: no new records are read until the record "
                "that ends its process is found",
                plan_id,
            )
        self.outages = settled.outages
        self.delivery_limit = settled.delivery_limit
        if settled.report is not None:
            self._totals["failed"] += settled.report.failed
            self._totals["exhausted"] += settled.report.exhausted
            self._totals["deadLettered"] += settled.report.dead_lettered
            self._totals["dropped"] += settled.report.dropped
        self._totals["acked"] += settled.acked
        self._emitted.update(settled.emitted)
        self._retried.update(settled.retried)
        self._unreported = self._unreported + 1 if settled.unreported else 0
        if settled.unreported:
            log.warning(
                "plan %s ended without a report of its outcomes: its records are delivered again",
                plan_id,
            )
        if self._unreported >= MAX_UNREPORTED:
            raise ConfigError(
                f"application {self._settings.application} tracks its records, but "
                f"{self._unreported} batches in a row ended without a report of their outcomes, "
                "so their records would be delivered again for ever; give foreachBatch "
                "src.tracked(...) again, or set option wholeBatchAck to true to ack batches as a "
                "whole from now on"
            )

    @property
    def is_outage(self) -> bool:
        """Whether the last plan was an outage and its failed records still wait for their retry.

        No new records are read meanwhile.
        """
        return self.outages > 0 and self.queue.records() > 0

    @property
    def is_searching(self) -> bool:
        """Whether the last plan was delivered in part, because a record of it may end the process
        that gets it, and the other records still wait.

        No new records are read meanwhile, so that the search ends.
        """
        return self.delivery_limit is not None and self.queue.records() > 0

    def blocks_reading(self, shard_id: str) -> bool:
        """Whether no new records of this shard may be read now."""
        if self.queue.is_empty():  # nearly always; a waiting driver asks for each shard
            return False
        return (
            self.is_outage
            or self.is_searching
            or self.queue.is_full(shard_id, self._settings.max_unresolved_per_shard)
        )

    def report(self, now_ms: int) -> dict[str, Any]:
        """The outcomes' part of the progress report. Totals count from the start of this run."""
        oldest_ms = self.queue.oldest_failure_ms()
        return {
            "emitted": self._emitted.total(),
            "retried": self._retried.total(),
            "acked": self._totals["acked"],
            "failed": self._totals["failed"],
            "unresolved": self.queue.records(),
            "retriesWaiting": self.queue.waiting(),
            "exhausted": self._totals["exhausted"],
            "deadLettered": self._totals["deadLettered"],
            "dropped": self._totals["dropped"],
            "oldestUnresolvedMs": 0 if oldest_ms is None else max(0, now_ms - oldest_ms),
            "outage": self.is_outage,
        }

    def of_shard(self, shard_id: str) -> dict[str, int]:
        """The same of one shard."""
        return {
            "emitted": self._emitted[shard_id],
            "retried": self._retried[shard_id],
            "unresolved": self.queue.records_of(shard_id),
        }
