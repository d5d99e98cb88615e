"""Faults in what a listing or the end of a shard says: done, answered, and not what it ought to be.

Duplicate and late listings are within the service's contract, as is a null instead of a missing
iterator. The malformed ends are not; the service's own client library guards against them, and a
consumer must lose nothing by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.testing.faults.plan import alter

if TYPE_CHECKING:
    from kinesis_spout.testing.faults.plan import Fault
    from kinesis_spout.testing.service.answers import GetRecordsAnswer, ListShardsAnswer

_NO_SHARD = "shardId-000000999999"


def duplicate_listing() -> Fault:
    """ListShards names each shard of the page twice."""
    return alter(lambda answer: msgspec.structs.replace(answer, shards=answer.shards * 2))


def late_listing(*shard_ids: str) -> Fault:
    """ListShards does not know these shards yet, which may be open and have records. (Of all
    shards: `listing_delay_ms`.)
    """

    def without(answer: ListShardsAnswer) -> ListShardsAnswer:
        shards = [shard for shard in answer.shards if shard.shard_id not in shard_ids]
        return msgspec.structs.replace(answer, shards=shards)

    return alter(without)


def end_with_null_iterator() -> Fault:
    """GetRecords tells the end of a closed shard by a `NextShardIterator` of null. Other pages stay
    as they are.
    """

    def nulled(answer: GetRecordsAnswer) -> object:
        members: dict[str, Any] = msgspec.to_builtins(answer)
        return {"NextShardIterator": None} | members

    return alter(nulled)


def end_without_children() -> Fault:
    """Malformed: GetRecords tells the end of a closed shard, but not which shards go on."""
    return alter(lambda answer: msgspec.structs.replace(answer, child_shards=None))


def end_with_wrong_parents() -> Fault:
    """Malformed: GetRecords tells the end of a closed shard, with children that do not name it
    among their parents.
    """

    def estranged(answer: GetRecordsAnswer) -> GetRecordsAnswer:
        children = [
            msgspec.structs.replace(child, parent_shards=[_NO_SHARD])
            for child in answer.child_shards or []
        ]
        return msgspec.structs.replace(answer, child_shards=children or None)

    return alter(estranged)


def early_end() -> Fault:
    """Malformed: a page says that the shard has ended, without children, although it is open or has
    records left.
    """
    return alter(
        lambda answer: msgspec.structs.replace(answer, next_shard_iterator=None, child_shards=None)
    )
