"""Faults in a response of ListShards or at a shard's end: processed, answered, and answered
wrongly.

Duplicate and late listings are within the service's contract; so is a null in place of a missing
iterator. The malformed ends are not. The Kinesis Client Library guards against them, and a consumer
must lose nothing when they occur.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.testing.faults.plan import alter, replace
from kinesis_spout.testing.service.answers import GetRecordsAnswer

if TYPE_CHECKING:
    from kinesis_spout.testing.faults.plan import Fault
    from kinesis_spout.testing.service.answers import ListShardsAnswer
    from kinesis_spout.testing.service.requests import GetRecords

_NO_SHARD = "shardId-000000999999"


def duplicate_listing() -> Fault:
    """ListShards lists each shard of the page twice."""
    return alter(lambda answer: msgspec.structs.replace(answer, shards=answer.shards * 2))


def late_listing(*shard_ids: str) -> Fault:
    """ListShards does not list these shards yet, although they may be open and have records.

    `FakeKinesisSettings.listing_delay_ms` does so for all shards.
    """

    def without_shards(answer: ListShardsAnswer) -> ListShardsAnswer:
        shards = [shard for shard in answer.shards if shard.shard_id not in shard_ids]
        return msgspec.structs.replace(answer, shards=shards)

    return alter(without_shards)


def end_with_null_iterator() -> Fault:
    """GetRecords reports the end of a closed shard by a null `NextShardIterator`.

    Other pages do not change.
    """

    def with_null_iterator(answer: GetRecordsAnswer) -> object:
        members: dict[str, Any] = msgspec.to_builtins(answer)
        return {"NextShardIterator": None} | members

    return alter(with_null_iterator)


def end_without_children() -> Fault:
    """Malformed: GetRecords reports the end of a closed shard without its child shards."""
    return alter(lambda answer: msgspec.structs.replace(answer, child_shards=None))


def end_with_wrong_parents() -> Fault:
    """Malformed: GetRecords reports the end of a closed shard with children of another parent."""

    def with_wrong_parents(answer: GetRecordsAnswer) -> GetRecordsAnswer:
        children = [
            msgspec.structs.replace(child, parent_shards=[_NO_SHARD])
            for child in answer.child_shards or []
        ]
        return msgspec.structs.replace(answer, child_shards=children or None)

    return alter(with_wrong_parents)


def early_end() -> Fault:
    """Malformed: a page reports the end, without children, of a shard that is open or has records
    left.
    """
    return alter(
        lambda answer: msgspec.structs.replace(answer, next_shard_iterator=None, child_shards=None)
    )


def empty_at_tip() -> Fault:
    """Malformed: an empty page claims to be at the tip, wherever it is. Its iterator is the one
    that was asked with, so the next page has the records.
    """
    return replace(_nothing_new)


def _nothing_new(request: GetRecords) -> GetRecordsAnswer:
    return GetRecordsAnswer(
        records=[], millis_behind_latest=0, next_shard_iterator=request.shard_iterator
    )
