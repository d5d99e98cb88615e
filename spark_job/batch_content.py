"""What a batch's frame holds of each shard, held against what its plan's tasks published: they must be the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from state.plan import ShardEnd, TaskEnd


class BatchContentError(KinesisError):
    """A batch's rows are not those that its plan's tasks read, so nothing can be said of them. Nothing is acked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardContent:
    """The rows of one shard: how many new ones, the first and last of these, and how many retries."""

    shard_id: str
    new_count: int = 0
    first: SequenceNumber | None = None
    last: SequenceNumber | None = None
    retry_rows: int = 0

    def __str__(self) -> str:
        records = f"{self.new_count} records" + (f" from {self.first} to {self.last}" if self.new_count else "")
        return f"{records} and {self.retry_rows} retries"


def merge_content(parts: Iterable[ShardContent]) -> dict[str, ShardContent]:
    """Contents of parts of a batch as one, by shard."""
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


def check_content(content: Mapping[str, ShardContent], ends: Mapping[int, TaskEnd], plan_id: str) -> None:
    """Raise `BatchContentError` naming the first shard of which the frame holds other rows than were published."""
    published = {end.shard_id: _published(end) for task in ends.values() for end in task.shards}
    for shard_id in sorted(published.keys() | content.keys()):
        found = content.get(shard_id, ShardContent(shard_id=shard_id))
        told = published.get(shard_id, ShardContent(shard_id=shard_id))
        if found != told:
            raise BatchContentError(
                f"the batch's frame holds {found} of shard {shard_id}, and the tasks of plan {plan_id} published {told}; nothing "
                "is acked: filter and deduplicate inside the function given to tracked(...), and run one query per application"
            )


def _published(end: ShardEnd) -> ShardContent:
    return ShardContent(shard_id=end.shard_id, new_count=end.count, first=end.first, last=end.last, retry_rows=end.retry_rows)
