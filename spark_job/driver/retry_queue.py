"""The queued retries of all shards, as the driver sees them between two batches.

A shard's queue is computed again only when its state has changed, or that of an ancestor for which
its records wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING

from kinesis_spout.shards.ancestors import unresolved_ancestors
from spark_job.driver.retry_planner import DueRetry, QueuedRetry, due_retries, queued_retries
from state.report import OnFailure
from state.shard_state import by_the_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from state.report import OutcomePolicy
    from state.shard_state import ShardState, UnresolvedRecord


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
    _held_until_ms: dict[str, int] = field(default_factory=dict)
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
            known, self._held_until_ms = {}, {}
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
        return None if next_ms is None else max(next_ms, self._held_until_ms.get(shard_id, 0))

    def holds(self, shard_id: str, max_unresolved: int) -> bool:
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
