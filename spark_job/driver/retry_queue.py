"""All shards' queued records, as the driver sees them between two batches. Worked out anew only
where a state has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_job.driver.retry_planner import DueRetry, QueuedRetry, due_retries, queued_retries
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from state.report import OutcomePolicy
    from state.shard_state import ShardState, UnresolvedRecord


@dataclass(slots=True)
class _ShardQueue:
    unresolved: tuple[UnresolvedRecord, ...]
    queue: list[QueuedRetry]
    records: int
    next_ms: int


@dataclass(slots=True)
class RetryQueue:
    """`update` it with every change of the states. Pure but for that memory; times are milliseconds
    since 1970.
    """

    policy: OutcomePolicy | None = None
    _shards: dict[str, _ShardQueue] = field(default_factory=dict)

    def update(self, states: Mapping[str, ShardState], policy: OutcomePolicy | None) -> None:
        known = self._shards if policy == self.policy else {}
        self.policy = policy
        self._shards = {
            shard: _queue_of(state.unresolved, policy, known.get(shard))
            for shard, state in states.items()
            if state.unresolved
        }

    @property
    def in_order(self) -> bool:
        """Whether later records wait for earlier ones that failed."""
        return self.policy is not None and self.policy.on_failure is not OnFailure.CONTINUE

    def is_due(self, now_ms: int) -> bool:
        """Whether a retry may come now."""
        return any(shard.next_ms <= now_ms for shard in self._shards.values())

    def next_ms(self) -> int | None:
        """When the next retry may come; None when nothing is queued."""
        return min((shard.next_ms for shard in self._shards.values()), default=None)

    def due(self, now_ms: int) -> dict[str, list[DueRetry]]:
        """What may come now, by shard, ascending."""
        ready = {shard: one.queue for shard, one in self._shards.items() if one.next_ms <= now_ms}
        return {shard: due_retries(queue, self.policy, now_ms) for shard, queue in ready.items()}

    def holds(self, shard_id: str, max_unresolved: int) -> bool:
        """Whether nothing new of the shard may be read: its allowance is used up, or it has to go
        in order.
        """
        shard = self._shards.get(shard_id)
        if shard is None:
            return False
        in_order = self.policy is not None and self.policy.on_failure is OnFailure.BLOCK_SHARD
        return in_order or shard.records >= max_unresolved

    def records(self) -> int:
        """Queued records in all."""
        return sum(shard.records for shard in self._shards.values())

    def waiting(self) -> int:
        """Those of them that failed, as against those that wait for one that did."""
        return sum(
            record.count
            for shard in self._shards.values()
            for record in shard.unresolved
            if not record.blocked
        )

    def oldest_failure_ms(self) -> int | None:
        """When the first of them failed that failed first."""
        times = (
            record.first_failure_ms
            for shard in self._shards.values()
            for record in shard.unresolved
        )
        return min((time_ms for time_ms in times if time_ms is not None), default=None)


def _queue_of(
    unresolved: tuple[UnresolvedRecord, ...],
    policy: OutcomePolicy | None,
    known: _ShardQueue | None,
) -> _ShardQueue:
    if known is not None and known.unresolved is unresolved:
        return known
    queue = queued_retries(unresolved, policy)
    return _ShardQueue(
        unresolved,
        queue,
        sum(record.count for record in unresolved),
        min(queued.ready_ms for queued in queue),
    )
