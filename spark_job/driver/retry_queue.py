"""The queued retries of all shards, as the driver sees them between two batches.

A shard's queue is computed again only when its state has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_job.driver.retry_planner import DueRetry, QueuedRetry, due_retries, queued_retries
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
    """All queued records, by shard. Call `update` after every change of the states.

    Pure but for its own memory. Times are milliseconds since 1970.
    """

    policy: OutcomePolicy | None = None
    _held_until_ms: dict[str, int] = field(default_factory=dict)
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

    def hold(self, shards: Iterable[str], until_ms: int) -> None:
        """Let no retry of these shards be due before `until_ms`: the service did not know them."""
        self._held_until_ms |= dict.fromkeys(shards, until_ms)

    def release(self, shards: Collection[str]) -> None:
        """End the hold of these shards."""
        self._held_until_ms = {
            shard: until_ms
            for shard, until_ms in self._held_until_ms.items()
            if shard not in shards
        }

    def is_due(self, now_ms: int) -> bool:
        """Whether at least one retry is due."""
        next_ms = self.next_ms()
        return next_ms is not None and next_ms <= now_ms

    def next_ms(self) -> int | None:
        """When the next retry is due; None when nothing is queued."""
        return min(map(self._next_ms, self._shards), default=None)

    def due(self, now_ms: int) -> dict[str, list[DueRetry]]:
        """The retries that are due, by shard, in ascending sequence order."""
        return {
            shard: due_retries(one.queue, self.policy, now_ms)
            for shard, one in self._shards.items()
            if self._next_ms(shard) <= now_ms
        }

    def _next_ms(self, shard_id: str) -> int:
        return max(self._shards[shard_id].next_ms, self._held_until_ms.get(shard_id, 0))

    def holds(self, shard_id: str, max_unresolved: int) -> bool:
        """Whether no new records of the shard may be read: its allowance of unresolved records is
        used up, or its failed records block the shard.
        """
        shard = self._shards.get(shard_id)
        if shard is None:
            return False
        in_order = self.policy is not None and self.policy.on_failure is OnFailure.BLOCK_SHARD
        return in_order or shard.records >= max_unresolved

    def records(self) -> int:
        """The number of queued records."""
        return sum(shard.records for shard in self._shards.values())

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
    policy: OutcomePolicy | None,
    known: _ShardQueue | None,
) -> _ShardQueue:
    # Identity is enough: a state that was not written again is the same object.
    if known is not None and known.unresolved is unresolved:
        return known
    queue = queued_retries(unresolved, policy)
    return _ShardQueue(
        unresolved,
        queue,
        sum(record.count for record in unresolved),
        min(queued.ready_ms for queued in queue),
    )
