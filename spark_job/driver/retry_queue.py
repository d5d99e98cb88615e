"""The queue of records that wait for their retry, and the retries that are due now. Pure: the time
is an argument. Times are milliseconds since 1970.

A queued record is due when its backoff is over. A record without attempts left is due at once, for
its dead letter only. With `OnFailure.BLOCK_KEY` or `BLOCK_SHARD`, a record also waits for the
earlier queued records of its key or of its shard. All unresolved records of the shard's ancestors
count as earlier. Other tasks read those, so a record that waits for one of them is not due until
that one is settled.

A shard's due times depend neither on the current time nor on the limits of a batch. So they are
computed again only when the state of the shard, or of an ancestor for which it waits, has changed.
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
    """The queue of one shard. `sources`: the unresolved records of the shard, then those of each
    ancestor. `records`: their number in the shard. `next_ms`: None if all records wait for records
    of ancestors.
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
        self._blocked: set[str] = set()  # shards that wait for records of ancestors
        self._delayed_until_ms: dict[str, int] = {}
        self._updated_ms = 0

    def update(
        self, states: Mapping[str, ShardState], policy: OutcomePolicy | None, now_ms: int
    ) -> None:
        """Replace the queue. `now_ms`: the time by this process's clock. A stored failure with a
        later time comes from a clock that was ahead, so its retry is due earlier by the difference.
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
                # Unchanged records keep their due times. Computed anew, the retries of failures by
                # a clock that was ahead would be postponed at each update.
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
        """Delay all retries of these shards, which Kinesis did not know, until `until_ms`."""
        self._delayed_until_ms |= dict.fromkeys(shards, until_ms)

    def end_delay(self, shards: Collection[str]) -> None:
        """End the delay of these shards' retries."""
        for shard in self._delayed_until_ms.keys() & set(shards):
            del self._delayed_until_ms[shard]

    def is_due(self, now_ms: int) -> bool:
        """Whether at least one retry is due."""
        next_ms = self.next_ms()
        return next_ms is not None and next_ms <= now_ms

    def next_ms(self) -> int | None:
        """Return when the next retry is due; None if no record is queued."""
        return _earliest(map(self._next_ms, self._shards))

    def due(self, now_ms: int) -> list[tuple[str, PlannedRetry]]:
        """Return the retries that are due, with their shards, in the order in which a plan takes
        them: by their places in the shards' queues if order matters, so that a plan without room
        for all omits the last ones; otherwise by their due times.
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
        """Return when the shard's next retry may be planned; None if none may be planned."""
        next_ms = self._shards[shard_id].next_ms
        return None if next_ms is None else max(next_ms, self._delayed_until_ms.get(shard_id, 0))

    def is_full(self, shard_id: str, max_unresolved: int) -> bool:
        """Whether no new records of the shard may be read, because it has `max_unresolved` records
        or because its failed records, or those of an ancestor, block the shard.

        With `OnFailure.BLOCK_KEY`, an ancestor's record without a known key blocks the shard.
        """
        if shard_id in self._blocked:
            return True
        shard = self._shards.get(shard_id)
        if shard is None:
            return False
        return self._blocks_shards or shard.records >= max_unresolved

    def is_empty(self) -> bool:
        """Whether no record is queued. Then nothing is due, and no shard is blocked."""
        return not self._shards

    def records(self) -> int:
        """Return the number of queued records."""
        return sum(shard.records for shard in self._shards.values())

    def records_of(self, shard_id: str) -> int:
        """Return the number of queued records of a shard."""
        return self._shards[shard_id].records if shard_id in self._shards else 0

    def waiting(self) -> int:
        """Return the number of queued records that have failed. The other queued records are
        blocked by a failed record.
        """
        return sum(record.count for record in self._queued() if not record.blocked)

    def oldest_failure_ms(self) -> int | None:
        """Return the earliest first failure of a queued record; None if no record has failed."""
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
    """Return a shard's queue in ascending sequence order. Each record has the time at which the
    record, and all records for which it waits, are due. Records that wait for a record in
    `inherited`, the unresolved records of the shard's ancestors, are left out.

    A record without a known key, such as a range, waits for all earlier records, and all later
    records wait for it. Without a policy (the application does not track its records), a record is
    due after its backoff, and has no limit of attempts.
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
    """Return when the record itself is due: after its backoff, or at once if it is exhausted."""
    if policy is None:
        return record.due_ms
    if record.rejected or policy.retry.exhausted(record.attempts, None, 0):
        return 0
    first_ms = record.first_counted_failure_ms
    if policy.retry.max_age_ms is None or first_ms is None:
        return record.due_ms
    # Beyond its maximum age the record is exhausted, so it need not wait for its backoff.
    return min(record.due_ms, first_ms + policy.retry.max_age_ms + 1)
