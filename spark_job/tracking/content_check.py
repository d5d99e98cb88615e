"""Compares the rows of a batch, shard by shard, with those that the tasks of its plan published.

They must be the same: the plan is settled by what was published, so rows that were filtered out
before the user's function would be acked unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from state.tracker.emission import parse_message_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Row

    from state.plan import ShardReadResult, TaskResult
    from state.sequence_number import SequenceNumber


class BatchContentError(KinesisError):
    """A batch does not hold the rows that the tasks of its plan published. Nothing is acked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardContent:
    """The rows of one shard: count, first and last of the new ones, and the count of retries."""

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


def check_content(
    content: Mapping[str, ShardContent], ends: Mapping[int, TaskResult], plan_id: str
) -> None:
    """Raise `BatchContentError` for the first shard that holds other rows than were published."""
    published = {end.shard_id: _published(end) for task in ends.values() for end in task.shards}
    for shard_id in sorted(published.keys() | content.keys()):
        found = content.get(shard_id, ShardContent(shard_id=shard_id))
        expected = published.get(shard_id, ShardContent(shard_id=shard_id))
        if found != expected:
            raise BatchContentError(
                f"the batch's frame holds {found} of shard {shard_id}, and the tasks of plan "
                f"{plan_id} published {expected}, so nothing is acked; filter and deduplicate "
                "inside the function given to tracked(...), and run one query per application"
            )


@dataclass(frozen=True, slots=True)
class PartitionContent:
    """Computes the contents of a partition on an executor, from the rows' `messageId`.

    `firsts`: the first new number of each shard, None for a shard that only had retries.
    """

    firsts: Mapping[str, SequenceNumber | None]

    def __call__(self, rows: Iterable[Row]) -> list[ShardContent]:
        return list(merge_content(map(self._row, rows)).values())

    def _row(self, row: Row) -> ShardContent:
        shard_id, sequence, _ = parse_message_id(row["messageId"])
        first = self.firsts.get(shard_id)
        if shard_id in self.firsts and (first is None or sequence < first):
            return ShardContent(shard_id=shard_id, retry_rows=1)
        return ShardContent(shard_id=shard_id, new_count=1, first=sequence, last=sequence)


def _published(end: ShardReadResult) -> ShardContent:
    return ShardContent(
        shard_id=end.shard_id,
        new_count=end.count,
        first=end.first,
        last=end.last,
        retry_rows=end.retry_rows,
    )
