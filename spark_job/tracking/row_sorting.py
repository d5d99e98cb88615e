"""On the executors: finds the rows of a batch to which a rule applies, going through each shard's
rows in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_job.tracking.failed_record import key_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spark_job.tracking.batch_rules import ShardRules

SORTED_DDL = "messageId STRING, outcome INT, key STRING, ordinal BIGINT"
_SCHEMA = pa.schema(
    [
        ("messageId", pa.string()),
        ("outcome", pa.int32()),
        ("key", pa.string()),
        ("ordinal", pa.int64()),
    ]
)


@dataclass(slots=True)
class Ordinals:
    """Counts the rows of each shard within a partition."""

    _next: dict[str, int] = field(default_factory=dict)

    def take(self, shard_id: str, count: int = 1) -> int:
        """The ordinal of the first of the next `count` rows of a shard."""
        first = self._next.get(shard_id, 0)
        self._next[shard_id] = first + count
        return first


@dataclass(frozen=True, slots=True)
class RowSorter:
    """A function for `mapInArrow` over the source's columns: one row per record to which a rule
    applies.
    """

    rules: Mapping[str, ShardRules]
    with_keys: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ordinals = Ordinals()
        for batch in batches:
            yield pa.RecordBatch.from_pylist(list(self._sorted(batch, ordinals)), schema=_SCHEMA)

    def _sorted(self, batch: pa.RecordBatch, ordinals: Ordinals) -> Iterator[dict[str, object]]:
        names = ("shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "messageId")
        for shard, sequence, sub, key, message_id in zip(
            *(batch.column(name).to_pylist() for name in names), strict=True
        ):
            ordinal = ordinals.take(shard)
            rules = self.rules.get(shard)
            if rules is None or not rules.withholds:
                continue
            hashed = key_hash(key) if self.with_keys else None
            outcome = rules.outcome((int(sequence), sub), hashed)
            if outcome is not None:
                yield {
                    "messageId": message_id,
                    "outcome": int(outcome),
                    "key": hashed,
                    "ordinal": ordinal,
                }
