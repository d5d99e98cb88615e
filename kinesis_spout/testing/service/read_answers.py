"""The common parts of GetRecords pages and SubscribeToShard events.

These are the records, how far they are behind the tip, and the child shards at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.testing.service.answers import ChildShardAnswer, RecordAnswer
from kinesis_spout.testing.service.list_shards import range_answer

if TYPE_CHECKING:
    from kinesis_spout.testing.stream.shard import Shard, StoredRecord
    from kinesis_spout.testing.stream.stream import Stream


def record_answers(records: list[StoredRecord]) -> list[RecordAnswer]:
    return [
        RecordAnswer(
            str(record.sequence),
            record.arrival_ms / 1000,
            record.data,
            msgspec.UNSET if record.partition_key is None else record.partition_key,
        )
        for record in records
    ]


def behind_ms(records: list[StoredRecord], rest: StoredRecord | None, now_ms: int) -> int:
    """MillisBehindLatest: 0 at the tip, else the age of the last record of the answer.

    Without records it is the age of the next record (`rest`).
    """
    if rest is None:
        return 0
    return max(1, now_ms - (records[-1] if records else rest).arrival_ms)


def is_at_end(
    shard: Shard,
    records: list[StoredRecord],
    rest: StoredRecord | None,
    *,
    end_with_last_records: bool,
) -> bool:
    """Whether the shard's end is reported with these records.

    With `end_with_last_records` it comes with the last records, else with the empty answer after
    them.
    """
    return not shard.is_open and rest is None and (end_with_last_records or not records)


def child_answers(stream: Stream, shard: Shard) -> list[ChildShardAnswer]:
    children = (stream.shards[child] for child in shard.children if child in stream.shards)
    return [
        ChildShardAnswer(child.shard_id, list(child.parents), range_answer(child.hash_keys))
        for child in children
    ]
