"""The common parts of GetRecords pages and SubscribeToShard events.

These are the records, how far they are behind the tip, and the child shards at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kinesis_spout.testing.service.answers import ChildShardAnswer, RecordAnswer
from kinesis_spout.testing.service.list_shards import range_answer

if TYPE_CHECKING:
    from kinesis_spout.testing.stream.shard import Shard, StoredRecord
    from kinesis_spout.testing.stream.stream import Stream


class Read(NamedTuple):
    """What a reader gets next.

    - `position`: where its next read begins. `empty_pages`: how many pages of a run of empty pages
      it has had there.
    - `behind_ms`: MillisBehindLatest. `ended`: the shard's end is reported with these records.
    """

    records: list[StoredRecord]
    position: int
    empty_pages: int
    behind_ms: int
    ended: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(record.size_bytes for record in self.records)


def read(
    shard: Shard,
    position: int,
    empty_pages: int,
    *,
    now_ms: int,
    max_records: int,
    max_bytes: int,
    end_with_last_records: bool,
) -> Read:
    """The next records from a position on, as `FakeKinesisSettings` says how a shard ends."""
    run = shard.empty_run(position, had=empty_pages)
    if run == position:
        behind_ms = max(1, _behind_ms([], shard.first_from(position), now_ms))
        return Read([], position, empty_pages + 1, behind_ms)
    records = shard.page(position, before=run, max_records=max_records, max_bytes=max_bytes)
    after = records[-1].sequence + 1 if records else run or position
    rest = shard.first_from(after)
    return Read(
        records,
        after,
        empty_pages if after == position else 0,
        _behind_ms(records, rest, now_ms),
        ended=not shard.is_open and rest is None and (end_with_last_records or not records),
    )


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


def _behind_ms(records: list[StoredRecord], rest: StoredRecord | None, now_ms: int) -> int:
    """0 at the tip, else the age of the last record of the answer.

    Without records it is the age of the next record (`rest`).
    """
    if rest is None:
        return 0
    return max(1, now_ms - (records[-1] if records else rest).arrival_ms)


def child_answers(stream: Stream, shard: Shard) -> list[ChildShardAnswer]:
    children = (stream.shards[child] for child in shard.children if child in stream.shards)
    return [
        ChildShardAnswer(child.shard_id, list(child.parents), range_answer(child.hash_keys))
        for child in children
    ]
