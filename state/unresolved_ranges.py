"""Collapses a shard's unresolved records into ranges until its state fits into a znode.

Detail is only ever dropped towards redelivery: a range covers every record that it stands for (and acked ones between
them, which come again), keeps the lowest attempt count, is due as soon as the first of them, and sums their count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from state.shard_state import ShardState, UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def collapse_to_fit(state: ShardState, fits: Callable[[ShardState], bool]) -> ShardState | None:
    """`state`, or the first of these that fits: without reasons, in ranges of 2, 4, 8, ... records; None if none does."""
    if fits(state):
        return state
    records = tuple(
        msgspec.structs.replace(record, reason=None) for record in sorted(state.unresolved, key=lambda each: each.first)
    )
    while True:
        smaller = msgspec.structs.replace(state, unresolved=records)
        if fits(smaller):
            return smaller
        if len(records) <= 1:
            return None
        records = tuple(merge_range(records[i : i + 2]) for i in range(0, len(records), 2))


def merge_range(records: Sequence[UnresolvedRecord]) -> UnresolvedRecord:
    """One range for these records, in the order of their numbers."""
    return UnresolvedRecord(
        first=min(record.first for record in records),
        last=max(record.last for record in records),
        count=sum(record.count for record in records),
        attempts=min(record.attempts for record in records),
        due_ms=min(record.due_ms for record in records),
        first_failure_ms=min(
            (record.first_failure_ms for record in records if record.first_failure_ms is not None), default=None
        ),
        last_failure_ms=max((record.last_failure_ms for record in records if record.last_failure_ms is not None), default=None),
    )
