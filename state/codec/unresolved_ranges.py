"""Collapses a shard's unresolved records into ranges until its state fits into a znode.

Detail is only ever dropped towards redelivery: a range covers every record that it stands for (and
acked ones between them, which come again), keeps the lowest attempt count, is due as soon as the
first of them, and sums their count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from state.shard_state import ShardState, UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")


def collapse_to_fit(state: ShardState, fits: Callable[[ShardState], bool]) -> ShardState | None:
    """What of `state`, which does not fit, does: without reasons; with as few neighbours put
    together as can be. None if nothing.

    Ranges are of about the same number of records everywhere: of 2, 4, 8, ... with some of half
    that many left between them.
    """
    records = [
        msgspec.structs.replace(record, reason=None)
        for record in sorted(state.unresolved, key=lambda each: each.first)
    ]

    def fit(candidate: Sequence[UnresolvedRecord]) -> bool:
        return fits(msgspec.structs.replace(state, unresolved=tuple(candidate)))

    if not fit(records):
        while not fit(merged := merge_neighbours(records, len(records) // 2)):
            if len(merged) <= 1:
                return None
            records = merged
        records = _least_merged(records, fit)
    return msgspec.structs.replace(state, unresolved=tuple(records))


def merge_neighbours(records: Sequence[UnresolvedRecord], pairs: int) -> list[UnresolvedRecord]:
    """The records (ascending) with so many pairs of neighbours put together, spread evenly. The
    last of an odd number is left.
    """
    most = len(records) // 2
    merged: list[UnresolvedRecord] = []
    for pair in range(most):
        both = records[2 * pair : 2 * pair + 2]
        chosen = (pair + 1) * pairs // most > pair * pairs // most
        merged.extend([merge_range(both)] if chosen else both)
    return merged + list(records[2 * most :])


def merge_range(records: Sequence[UnresolvedRecord]) -> UnresolvedRecord:
    """One range for these records, in the order of their numbers. What they do not all have in
    common is not known of it.
    """
    return UnresolvedRecord(
        first=min(record.first for record in records),
        last=max(record.last for record in records),
        count=sum(record.count for record in records),
        attempts=min(record.attempts for record in records),
        due_ms=min(record.due_ms for record in records),
        first_failure_ms=min(
            (record.first_failure_ms for record in records if record.first_failure_ms is not None),
            default=None,
        ),
        last_failure_ms=max(
            (record.last_failure_ms for record in records if record.last_failure_ms is not None),
            default=None,
        ),
        reason=_common(record.reason for record in records),
        key=_common(record.key for record in records),
        blocked=all(record.blocked for record in records),
        rejected=all(record.rejected for record in records),
    )


def _least_merged(
    records: Sequence[UnresolvedRecord], fit: Callable[[Sequence[UnresolvedRecord]], bool]
) -> list[UnresolvedRecord]:
    """With the fewest pairs put together that fit, found by halving. All of them fit, none of them
    does not.
    """
    too_few, enough = 0, len(records) // 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if fit(merge_neighbours(records, middle)):
            enough = middle
        else:
            too_few = middle
    return merge_neighbours(records, enough)


def _common(values: Iterable[T]) -> T | None:
    """The value that all of them are, else None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
