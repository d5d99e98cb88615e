"""Compares the rows of a batch, shard by shard, with the rows that the tasks of its plan published.

Both must be the same. Settling acks what was published, so a row that was filtered out before the
user's function would be acked unseen.

A batch that is replayed after its first rows have expired contains fewer rows (with
`failOnDataLoss` false; otherwise its tasks would have failed). Such a batch is not refused. It ends
without a report, so its records are redelivered, and the next plan reads the records that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from state.plan import PlannedRetry, ShardReadResult, TaskResult
    from state.sequence_number import SequenceNumber


class BatchContentError(KinesisError):
    """A batch does not have the rows that the tasks of its plan published. Nothing is acked."""


def foreign_id(message_id: str) -> BatchContentError:
    """Return the error for a record whose message id belongs to another source. Message ids name
    the stream only in a query of several streams.
    """
    return BatchContentError(
        f"the frame of the batch contains record {message_id}, which does not belong to the "
        "source of tracked(...), so no record of the batch is acked",
        "call read_stream(...) and tracked(...) of the same KinesisSource in the query",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardContent:
    """The rows of one shard: count, first and last of the new rows, and the number of retries."""

    shard_id: str
    new_count: int = 0
    first: SequenceNumber | None = None
    last: SequenceNumber | None = None
    retry_rows: int = 0

    def __str__(self) -> str:
        records = f"{self.new_count} records" + (
            f" from {self.first} to {self.last}" if self.new_count else ""
        )
        return f"{records} and {self.retry_rows} retries"


def merge_content(parts: Iterable[ShardContent]) -> dict[str, ShardContent]:
    """Merge the contents of parts of a batch, by shard."""
    merged: dict[str, ShardContent] = {}
    for part in parts:
        known = merged.get(part.shard_id, ShardContent(shard_id=part.shard_id))
        merged[part.shard_id] = ShardContent(
            shard_id=part.shard_id,
            new_count=known.new_count + part.new_count,
            first=min((one for one in (known.first, part.first) if one is not None), default=None),
            last=max((one for one in (known.last, part.last) if one is not None), default=None),
            retry_rows=known.retry_rows + part.retry_rows,
        )
    return merged


def reads_of(results: Mapping[int, TaskResult]) -> dict[str, ShardReadResult]:
    """Return the reads of the tasks, by shard."""
    return {read.shard_id: read for task in results.values() for read in task.shards}


def check_content(
    content: Mapping[str, ShardContent],
    results: Mapping[int, TaskResult],
    plan_id: str,
    *,
    has_expired: Callable[[ShardContent, ShardReadResult], bool],
) -> list[str]:
    """Return the shards whose first published rows have expired, ascending; an empty list if the
    batch has all rows.

    `has_expired` is called for each shard whose rows are not the published rows. Raises
    `BatchContentError` for the first shard for which it returns false.
    """
    reads = reads_of(results)
    expired: list[str] = []
    for shard_id in sorted(reads.keys() | content.keys()):
        found = content.get(shard_id, ShardContent(shard_id=shard_id))
        read = reads.get(shard_id)
        expected = ShardContent(shard_id=shard_id) if read is None else _published(read)
        if found == expected:
            continue
        if read is None or not has_expired(found, read):
            raise BatchContentError(
                f"the frame of the batch contains {found} of shard {shard_id}, but the tasks of "
                f"batch {plan_id} published {expected}, so no record of the batch is acked",
                "filter and deduplicate only inside the function passed to tracked(...), and run "
                "only one query per application",
            )
        expired.append(shard_id)
    return expired


def lowest_published(
    read: ShardReadResult, retries: Sequence[PlannedRetry]
) -> SequenceNumber | None:
    """Return the shard's first published number. `retries`: the retries that have rows."""
    firsts = [retry.first for retry in retries] + ([] if read.first is None else [read.first])
    return min(firsts, default=None)


def is_what_is_left(
    found: ShardContent,
    read: ShardReadResult,
    retries: Sequence[PlannedRetry],
    oldest: SequenceNumber | None,
) -> bool:
    """Whether a shard's missing rows are exactly its expired rows.

    `oldest`: the first sequence number in the stream from `lowest_published` on, requested after
    the rows were read; None if there is none.
    """
    left = sum(retry.count for retry in retries if oldest is not None and retry.first >= oldest)
    retries_expired = left <= found.retry_rows < read.retry_rows and any(
        oldest is None or retry.first < oldest for retry in retries
    )
    if found.retry_rows != read.retry_rows and not retries_expired:
        return False
    if replace(found, retry_rows=read.retry_rows) == _published(read):
        return retries_expired
    if read.first is None or read.last is None or (oldest is not None and oldest <= read.first):
        return False
    if found.first is None:
        return oldest is None or oldest > read.last
    is_rest = found.new_count < read.count and found.last == read.last
    # More records may have expired since the rows were read, but an expired record stays expired.
    return is_rest and (oldest is None or oldest.sequence >= found.first.sequence)


def _published(read: ShardReadResult) -> ShardContent:
    return ShardContent(
        shard_id=read.shard_id,
        new_count=read.count,
        first=read.first if read.count else None,
        last=read.last if read.count else None,
        retry_rows=read.retry_rows,
    )
