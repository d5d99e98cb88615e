"""The records that wait for their retry, and which of them a plan takes now. Pure: the time is an
argument. Times are milliseconds since 1970.

A queued record is due when its backoff is over. An exhausted record is due at once, for the dead
letter only. With `OnFailure.BLOCK_KEY` or `BLOCK_SHARD`, a record also waits for the earlier queued
records of its key or of its shard. Earlier are also all unresolved records of the shard's
ancestors: they are read by other tasks, so a record that waits for one of them is not due at all
until that one is settled.

A shard's due times depend neither on the current time nor on the limits of a batch. So they are
computed again only when its state has changed, or that of an ancestor for which its records wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

from kinesis_spout.shards.lineage import unresolved_ancestors
from state.plan import PlannedRetry
from state.report import OnFailure
from state.shard_state import by_the_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from state.report import OutcomePolicy
    from state.shard_state import ShardState, UnresolvedRecord

_NEVER_MS = 1 << 62  # later than every due time; it does not leave this module


@dataclass(frozen=True, slots=True)
class _ShardQueue:
    """`sources`: the unresolved records of the shard, and of each ancestor that has any. `next_ms`:
    None when all records wait for those of ancestors.
    """

    sources: tuple[tuple[UnresolvedRecord, ...], ...]
    due_times: list[tuple[int, UnresolvedRecord]]
    records: int
    next_ms: int | None


class RetryQueue:
    """All queued records, by shard. Call `update` after every change of the states."""

    def __init__(self) -> None:
        self.policy: OutcomePolicy | None = None
        self._shards: dict[str, _ShardQueue] = {}
        self._blocked: set[str] = set()  # by records of ancestors
        self._delayed_until_ms: dict[str, int] = {}
        self._updated_ms = 0

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
        self._shards = {}
        for shard, state in states.items():
            if state.unresolved:
                of_ancestors = (states[other].unresolved for other in ancestors.get(shard, ()))
                sources = (state.unresolved, *of_ancestors)
                before = known.get(shard)
                # What is the same keeps its due times: a later time would put off failures of a
                # clock that was ahead, again and again.
                if before is None or before.sources != sources:
                    before = _queue_of(sources, policy, now_ms)
                self._shards[shard] = before
        self._blocked = {
            shard
            for shard, found in ancestors.items()
            if self._blocks_shards
            or any(record.key is None for other in found for record in states[other].unresolved)
        }

    @property
    def in_order(self) -> bool:
        """Whether later records wait for earlier ones that failed."""
        return self.policy is not None and self.policy.on_failure is not OnFailure.CONTINUE

    @property
    def _blocks_shards(self) -> bool:
        return self.policy is not None and self.policy.on_failure is OnFailure.BLOCK_SHARD

    def delay(self, shards: Iterable[str], until_ms: int) -> None:
        """Let no retry of these shards be due before `until_ms`: the service did not know them."""
        self._delayed_until_ms |= dict.fromkeys(shards, until_ms)

    def end_delay(self, shards: Collection[str]) -> None:
        """Their retries are due again when they say."""
        for shard in self._delayed_until_ms.keys() & set(shards):
            del self._delayed_until_ms[shard]

    def is_due(self, now_ms: int) -> bool:
        """Whether at least one retry is due."""
        next_ms = self.next_ms()
        return next_ms is not None and next_ms <= now_ms

    def next_ms(self) -> int | None:
        """When the next retry is due; None when nothing is queued."""
        return _earliest(map(self._next_ms, self._shards))

    def due(self, now_ms: int) -> list[tuple[str, PlannedRetry]]:
        """The retries that are due, with their shards: what a plan takes first stands first.

        Where order matters, that is the place in its shard's queue, so a plan without room for all
        leaves out the last ones. Otherwise it is the due time.
        """
        found = [
            (place if self.in_order else ready_ms, record.first, shard_id, record)
            for shard_id, shard in self._shards.items()
            if (next_ms := self._next_ms(shard_id)) is not None and next_ms <= now_ms
            for place, (ready_ms, record) in enumerate(
                one for one in shard.due_times if one[0] <= now_ms
            )
        ]
        found.sort(key=itemgetter(0, 1, 2))
        return [(shard_id, self._planned(record, now_ms)) for _, _, shard_id, record in found]

    def _planned(self, record: UnresolvedRecord, now_ms: int) -> PlannedRetry:
        is_exhausted = self.policy is not None and (
            record.rejected
            or self.policy.retry.exhausted(record.attempts, record.first_counted_failure_ms, now_ms)
        )
        return PlannedRetry.of(record, exhausted=is_exhausted)

    def _next_ms(self, shard_id: str) -> int | None:
        """When the shard's next retry may be planned; None while none may be."""
        next_ms = self._shards[shard_id].next_ms
        return None if next_ms is None else max(next_ms, self._delayed_until_ms.get(shard_id, 0))

    def is_full(self, shard_id: str, max_unresolved: int) -> bool:
        """Whether no new records of the shard may be read: its allowance of unresolved records is
        used up, or its failed records or those of an ancestor block the shard.

        With `OnFailure.BLOCK_KEY`, an ancestor's record without a known key blocks the shard.
        """
        if shard_id in self._blocked:
            return True
        shard = self._shards.get(shard_id)
        if shard is None:
            return False
        return self._blocks_shards or shard.records >= max_unresolved

    def is_empty(self) -> bool:
        """Whether no record of any shard is queued: nothing is due, and no shard is blocked."""
        return not self._shards

    def records(self) -> int:
        """The number of queued records."""
        return sum(shard.records for shard in self._shards.values())

    def records_of(self, shard_id: str) -> int:
        """The number of queued records of a shard."""
        return self._shards[shard_id].records if shard_id in self._shards else 0

    def waiting(self) -> int:
        """The number of queued records that failed themselves; the others are blocked by one that
        failed.
        """
        return sum(record.count for record in self._queued() if not record.blocked)

    def oldest_failure_ms(self) -> int | None:
        """The earliest first failure of a queued record; None when no record has one."""
        return _earliest(record.first_failure_ms for record in self._queued())

    def _queued(self) -> Iterable[UnresolvedRecord]:
        return chain.from_iterable(shard.sources[0] for shard in self._shards.values())


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time_ms for time_ms in times if time_ms is not None), default=None)


def _queue_of(
    sources: tuple[tuple[UnresolvedRecord, ...], ...], policy: OutcomePolicy | None, now_ms: int
) -> _ShardQueue:
    own, *of_ancestors = (by_the_time(records, now_ms) for records in sources)
    times = due_times(own, policy, tuple(chain.from_iterable(of_ancestors)))
    next_ms = _earliest(ready_ms for ready_ms, _ in times)
    return _ShardQueue(sources, times, sum(record.count for record in own), next_ms)


def due_times(
    unresolved: Sequence[UnresolvedRecord],
    policy: OutcomePolicy | None,
    inherited: Sequence[UnresolvedRecord] = (),
) -> list[tuple[int, UnresolvedRecord]]:
    """A shard's queue in ascending sequence order, each record with the time at which it is due
    together with all that it waits for; without those that wait for `inherited`, the unresolved
    records of the shard's ancestors.

    A record without a known key, such as a range, waits for all earlier records, and all later ones
    wait for it. Without a policy (the application does not track its records), a record is due
    after its backoff and never exhausted.
    """
    records = sorted(unresolved, key=lambda record: record.first)
    own = [(_ready_ms(record, policy), record) for record in records]
    if policy is None or policy.on_failure is OnFailure.CONTINUE:
        return own
    by_key: dict[str, int] = {}
    all_ms = unknown_ms = 0
    found: list[tuple[int, UnresolvedRecord]] = []
    for own_ms, record in chain(((_NEVER_MS, record) for record in inherited), own):
        if policy.on_failure is OnFailure.BLOCK_SHARD or record.key is None:
            ready_ms = unknown_ms = max(own_ms, all_ms)
        else:
            ready_ms = by_key[record.key] = max(own_ms, unknown_ms, by_key.get(record.key, 0))
        all_ms = max(all_ms, ready_ms)
        if ready_ms < _NEVER_MS:
            found.append((ready_ms, record))
    return found


def _ready_ms(record: UnresolvedRecord, policy: OutcomePolicy | None) -> int:
    """When the record is due by itself: after its backoff, or at once when it is exhausted."""
    if policy is None:
        return record.due_ms
    if record.rejected or policy.retry.exhausted(record.attempts, None, 0):
        return 0
    first_ms = record.first_counted_failure_ms
    if policy.retry.max_age_ms is None or first_ms is None:
        return record.due_ms
    # Past the maximum age it is exhausted, so it need not wait for its backoff.
    return min(record.due_ms, first_ms + policy.retry.max_age_ms + 1)
