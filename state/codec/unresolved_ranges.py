"""Merges a shard's unresolved records into ranges until its state fits into a znode.

Detail is only ever dropped towards redelivery. A range covers every record that it stands for, and
also the acked records between them, which are delivered again. It has the lowest attempt count and
the earliest due time of its records, and the sum of their counts.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, TypeVar

import msgspec

from state.shard_state import ShardState, UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")


def collapse_to_fit(state: ShardState, fits: Callable[[ShardState], bool]) -> ShardState | None:
    """A form of `state` that fits: without reasons, and with as few neighbours merged as possible.
    None if no form fits.

    Merging is even over the whole list: all ranges have about the same number of records (2, 4, 8,
    ...), and some have half of that. Records that were delivered whole are not merged with user
    records: a range is read in one of the two ways, and in the other its count would be wrong. A
    queue has few places where the two meet, one for each change of the option.
    """
    records = [
        msgspec.structs.replace(record, reason=None)
        for record in sorted(state.unresolved, key=lambda each: each.first)
    ]

    def fit(candidate: Sequence[UnresolvedRecord]) -> bool:
        return fits(msgspec.structs.replace(state, unresolved=tuple(candidate)))

    if not fit(records):
        # Halve the number of ranges while even that does not fit, then merge the fewest pairs.
        while not fit(merged := merge_neighbours(records, len(_pairs(records)))):
            if not _pairs(merged):
                return None
            records = merged
        # To merge none does not fit, and to merge all of them does.
        pairs = range(len(_pairs(records)))
        fewest = bisect_left(
            pairs, x=True, lo=1, key=lambda count: fit(merge_neighbours(records, count))
        )
        records = merge_neighbours(records, fewest)
    return msgspec.structs.replace(state, unresolved=tuple(records))


def merge_neighbours(records: Sequence[UnresolvedRecord], pairs: int) -> list[UnresolvedRecord]:
    """The records (ascending) with `pairs` pairs of neighbours merged, spread evenly over the list.
    The last record of an odd number that were delivered alike is never merged.
    """
    starts = _pairs(records)
    merged: list[UnresolvedRecord] = []
    done = 0
    for pair, start in enumerate(starts):
        both = records[start : start + 2]
        # Bresenham's rule: of all pairs it chooses exactly `pairs`, evenly.
        chosen = (pair + 1) * pairs // len(starts) > pair * pairs // len(starts)
        merged += records[done:start]
        merged += [merge_range(both)] if chosen else both
        done = start + 2
    return [*merged, *records[done:]]


def _pairs(records: Sequence[UnresolvedRecord]) -> list[int]:
    """Where the pairs of neighbours begin that may be merged."""
    starts: list[int] = []
    start = 0
    while start + 1 < len(records):
        if records[start].whole == records[start + 1].whole:
            starts.append(start)
            start += 1
        start += 1
    return starts


def merge_range(records: Sequence[UnresolvedRecord]) -> UnresolvedRecord:
    """One range for these records, which were delivered alike: all `whole`, or none. It has a
    reason and a key only if all of them have the same.
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
        whole=records[0].whole,
    )


def _common(values: Iterable[T]) -> T | None:
    """The value if all are equal, else None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
