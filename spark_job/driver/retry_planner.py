"""Which queued records come again, and when: pure functions over a shard's state and the
application's policy.

A queued record comes when its backoff is over, and at once when it may not be tried any more: then
it comes for the dead letter only. Where order matters more than going on
(`state.report.OnFailure`), it also waits for what is queued before it, of its key or of its shard.
When that will be depends on neither the time nor the limits of a batch, so it is worked out once.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING

from state.plan import PlannedRetry
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from state.report import OutcomePolicy
    from state.shard_state import UnresolvedRecord

MAX_ENTRIES_PER_TASK = 2_000  # retries whose numbers fit into a task's znode beside what its shards need there; a range has two


@dataclass(frozen=True, slots=True)
class QueuedRetry:
    """A queued record, or range of them, that may come at `ready_ms`, when all that it must wait
    for may come as well.
    """

    ready_ms: int
    record: UnresolvedRecord


@dataclass(frozen=True, slots=True)
class DueRetry:
    """A retry whose time has come. Where not all fit into a plan, those of a lower
    `rank` go first.
    """

    rank: int
    retry: PlannedRetry

    @property
    def entries(self) -> int:
        """What it takes of a task's room."""
        return 1 if self.retry.last is None else 2


def queued_retries(
    unresolved: Sequence[UnresolvedRecord], policy: OutcomePolicy | None
) -> list[QueuedRetry]:
    """A shard's queue, ascending. Without a policy, what is queued comes when it is due, and never
    for the dead letter.
    """
    records = sorted(unresolved, key=lambda record: record.first)
    own_ms = [_ready_ms(record, policy) for record in records]
    ready_ms = _in_order(
        records, own_ms, OnFailure.CONTINUE if policy is None else policy.on_failure
    )
    return [QueuedRetry(ready, record) for ready, record in zip(ready_ms, records, strict=True)]


def due_retries(
    queue: Sequence[QueuedRetry], policy: OutcomePolicy | None, now_ms: int
) -> list[DueRetry]:
    """What of a shard's queue is ready, ascending. Where order matters, what is left out for lack
    of room is the last.
    """
    in_order = policy is not None and policy.on_failure is not OnFailure.CONTINUE
    ready = [queued for queued in queue if queued.ready_ms <= now_ms]
    return [
        DueRetry(place if in_order else queued.ready_ms, _planned(queued.record, policy, now_ms))
        for place, queued in enumerate(ready)
    ]


def most_urgent(
    due: Mapping[str, Sequence[DueRetry]], *, entries: int, records: int | None = None
) -> dict[str, list[DueRetry]]:
    """As many of several shards' retries as have so much room, and are so many records, together;
    at least one.

    Each shard's come in their order. Shards of which none is chosen are left out.
    """
    candidates = (
        (one.rank, one.retry.first.sequence, shard, one)
        for shard, retries in due.items()
        for one in retries
    )
    chosen: set[tuple[str, int]] = set()
    spent_entries = spent_records = 0
    for _, sequence, shard, one in nsmallest(entries, candidates, key=itemgetter(0, 1, 2)):
        spent_entries += one.entries
        spent_records += one.retry.count
        if chosen and (
            spent_entries > entries or (records is not None and spent_records > records)
        ):
            break
        chosen.add((shard, sequence))
    kept = {
        shard: [one for one in retries if (shard, one.retry.first.sequence) in chosen]
        for shard, retries in due.items()
    }
    return {shard: retries for shard, retries in kept.items() if retries}


def _ready_ms(record: UnresolvedRecord, policy: OutcomePolicy | None) -> int:
    """When the record itself may come."""
    if policy is None:
        return record.due_ms
    if record.rejected or policy.retry.exhausted(record.attempts, None, 0):
        return 0
    if policy.retry.max_age_ms is None or record.first_failure_ms is None:
        return record.due_ms
    return min(record.due_ms, record.first_failure_ms + policy.retry.max_age_ms + 1)


def _in_order(
    records: Sequence[UnresolvedRecord], own_ms: Sequence[int], on_failure: OnFailure
) -> list[int]:
    """When each may come, with all that it waits for. What has no known key, as a range, waits for
    all, and all for it.
    """
    if on_failure is OnFailure.CONTINUE:
        return list(own_ms)
    by_key: dict[str, int] = {}
    all_ms = unknown_ms = 0
    found: list[int] = []
    for record, own in zip(records, own_ms, strict=True):
        if on_failure is OnFailure.BLOCK_SHARD or record.key is None:
            ready_ms = unknown_ms = max(own, all_ms)
        else:
            ready_ms = by_key[record.key] = max(own, unknown_ms, by_key.get(record.key, 0))
        all_ms = max(all_ms, ready_ms)
        found.append(ready_ms)
    return found


def _planned(record: UnresolvedRecord, policy: OutcomePolicy | None, now_ms: int) -> PlannedRetry:
    return PlannedRetry(
        first=record.first,
        last=None if record.last == record.first else record.last,
        count=record.count,
        attempts=record.attempts,
        exhausted=policy is not None
        and (
            record.rejected
            or policy.retry.exhausted(record.attempts, record.first_failure_ms, now_ms)
        ),
    )
