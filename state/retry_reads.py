"""What a plan's task read of the planned retries, as its published result says. Pure.

This is the one place that says what a range counts:

- `UnresolvedRecord.count` and `PlannedRetry.count` are the unresolved records of a range. A range
  that was collapsed for lack of room also covers acked records, so more may be found in it.
- A range is short if its first record, or as many records as it counts, were not found. The others
  are past the stream's retention: at least one, since expiry removes the oldest first.
- A range that was read in part leaves a rest: the range from the first record that was not read to
  the range's last. It counts what is left of the range's count, and at least its own two ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.plan import PlannedRetry, RangePart, ShardReadResult
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord


class RetryRead(NamedTuple):
    """What was read of one planned retry.

    - `found`: its records that were delivered, as far as its count says.
    - `missing`: its records that are past the stream's retention.
    - `is_gone`: none of its records is left.
    - `part`: the part that was read of it; None if it was read to its end.
    """

    retry: PlannedRetry
    found: int
    missing: int
    is_gone: bool
    part: RangePart | None

    @property
    def last(self) -> SequenceNumber:
        """The number up to which it was read, inclusive."""
        return self.retry.end if self.part is None else self.part.last

    @property
    def as_retry(self) -> PlannedRetry:
        """The retry of exactly what was read."""
        last = None if self.last == self.retry.first else self.last
        return replace(self.retry, last=last, max_records=None)

    def rest_of(self, stored: UnresolvedRecord) -> UnresolvedRecord | None:
        """What stays queued of `stored`, the record that was read; None if nothing does."""
        if self.part is None:
            return None
        left = stored.count - self.found - self.missing
        count = 1 if self.part.rest == stored.last else max(2, left)
        return replace(stored, first=self.part.rest, count=count)


def retries_read(retries: Sequence[PlannedRetry], end: ShardReadResult) -> list[RetryRead]:
    """What `end` says was read of the planned `retries`, in their order; the others were not
    read.
    """
    gone = set(end.retries_gone)
    missing = {one.first: one.missing for one in end.retries_short}
    missing |= {retry.first: retry.count for retry in retries if retry.first in gone}
    reads = [
        RetryRead(
            retry,
            found=max(0, retry.count - missing.get(retry.first, 0)),
            missing=missing.get(retry.first, 0),
            is_gone=retry.first in gone,
            part=None,
        )
        for retry in retries[: end.retries_done]
    ]
    if end.retry_part is not None and end.retries_done < len(retries):
        retry = retries[end.retries_done]
        reads.append(
            RetryRead(
                retry,
                found=end.retry_part.count,
                missing=missing.get(retry.first, 0),
                is_gone=False,
                part=end.retry_part,
            )
        )
    return reads
