"""When queued records are due, and which of them fit into a plan: pure functions over a shard's
state and the application's policy.

A queued record is due when its backoff is over. An exhausted record is due at once, for the dead
letter only. With `OnFailure.BLOCK_KEY` or `BLOCK_SHARD`, a record also waits for the earlier queued
records of its key or of its shard. Earlier are also all unresolved records of the shard's
ancestors: they are read by other tasks, so a record that waits for one of them is not due at all
until that one is settled. The due time depends neither on the current time nor on the limits of a
batch, so it is computed once for each state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from state.plan import PlannedRetry
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from state.report import OutcomePolicy
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord

# Sequence numbers of retries that fit into a task's znode beside its shards; a range has two.
MAX_ENTRIES_PER_TASK = 2_000
_NEVER_MS = 1 << 62  # later than every due time; it does not leave this module


@dataclass(frozen=True, slots=True)
class QueuedRetry:
    """A queued record, or a range of records, with its due time `ready_ms`.

    All records that it waits for are due by then too.
    """

    ready_ms: int
    record: UnresolvedRecord


@dataclass(frozen=True, slots=True)
class DueRetry:
    """A retry that is due. When not all fit into a plan, lower ranks go first."""

    rank: int
    retry: PlannedRetry

    @property
    def entries(self) -> int:
        """The sequence numbers that it takes of a task's room."""
        return 1 if self.retry.last is None else 2

    def limited_to(self, records: int | None) -> DueRetry:
        """The same, of which at most so many records are read. A single record stays as it is."""
        if records is None or self.retry.last is None:
            return self
        return replace(self, retry=msgspec.structs.replace(self.retry, max_records=records))


def queued_retries(
    unresolved: Sequence[UnresolvedRecord],
    policy: OutcomePolicy | None,
    inherited: Sequence[UnresolvedRecord] = (),
) -> list[QueuedRetry]:
    """A shard's queue in ascending sequence order, without the records that wait for `inherited`,
    the unresolved records of the shard's ancestors.

    Without a policy (the application does not track its records), a record is due after its backoff
    and never exhausted.
    """
    on_failure = OnFailure.CONTINUE if policy is None else policy.on_failure
    records = sorted(unresolved, key=lambda record: record.first)
    waiting = _waiting_for(inherited, records, on_failure)
    own_ms = [
        _NEVER_MS if waits else _ready_ms(record, policy)
        for record, waits in zip(records, waiting, strict=True)
    ]
    ready_ms = _in_order(records, own_ms, on_failure)
    return [
        QueuedRetry(ready, record)
        for ready, record in zip(ready_ms, records, strict=True)
        if ready < _NEVER_MS
    ]


def due_retries(
    queue: Sequence[QueuedRetry], policy: OutcomePolicy | None, now_ms: int
) -> list[DueRetry]:
    """The due retries of a shard's queue, in ascending sequence order.

    With a blocking policy the rank is the place in that order, so a plan without room for all
    leaves out the last ones. Otherwise the rank is the due time.
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
    """The retries of lowest rank, of all shards together, that fit into `entries` and `records`; at
    least one.

    Of a range no more records are read than are left of `records` when it is chosen, so the last
    one may be read in part. Keeps the order of each shard's retries. Leaves out shards without a
    chosen retry.
    """
    candidates = (
        (one.rank, one.retry.first, shard, one) for shard, retries in due.items() for one in retries
    )
    chosen: dict[tuple[str, SequenceNumber], DueRetry] = {}
    entries_left, records_left = entries, records
    for _, first, shard, one in nsmallest(entries, candidates, key=itemgetter(0, 1, 2)):
        if chosen and (entries_left < one.entries or records_left == 0):
            break
        limited = chosen[shard, first] = one.limited_to(records_left)
        entries_left -= one.entries
        if records_left is not None:
            records_left -= limited.retry.max_rows
    kept = {
        shard: [
            chosen[shard, one.retry.first] for one in retries if (shard, one.retry.first) in chosen
        ]
        for shard, retries in due.items()
    }
    return {shard: retries for shard, retries in kept.items() if retries}


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


def _waiting_for(
    inherited: Sequence[UnresolvedRecord],
    records: Sequence[UnresolvedRecord],
    on_failure: OnFailure,
) -> list[bool]:
    """Whether each record waits for one of the inherited ones."""
    if on_failure is OnFailure.CONTINUE or not inherited:
        return [False] * len(records)
    keys = {record.key for record in inherited}
    if on_failure is OnFailure.BLOCK_SHARD or None in keys:
        return [True] * len(records)
    return [record.key is None or record.key in keys for record in records]


def _in_order(
    records: Sequence[UnresolvedRecord], own_ms: Sequence[int], on_failure: OnFailure
) -> list[int]:
    """When each record is due together with all that it waits for.

    A record without a known key, such as a range, waits for all earlier records, and all later ones
    wait for it.
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
            or policy.retry.exhausted(record.attempts, record.first_counted_failure_ms, now_ms)
        ),
        whole=record.whole,
    )
