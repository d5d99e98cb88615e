"""Short constructors of listed shards, shard states, and records that wait for their retry."""

from __future__ import annotations

from typing import Any

import msgspec

from kinesis_spout.service.shard_info import HASH_KEYS, HashRange, ShardInfo
from kinesis_spout.shards.lineage import ShardLineage
from state.plan import PlannedRetry
from state.position import SHARD_END, TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord

WHOLE = HashRange(0, HASH_KEYS - 1)
LEFT, RIGHT = HashRange(0, HASH_KEYS // 2 - 1), HashRange(HASH_KEYS // 2, HASH_KEYS - 1)


def shard(
    shard_id: str, *parents: str, closed: bool = False, keys: tuple[int, int] = WHOLE
) -> ShardInfo:
    return ShardInfo(
        shard_id=shard_id,
        parents=parents,
        hash_key_range=HashRange(*keys),
        starting_sequence=SequenceNumber(1),
        ending_sequence=SequenceNumber(9) if closed else None,
    )


def state(
    shard_id: str, *parents: str, ended: bool = False, verified_until_ms: int | None = None
) -> ShardState:
    return ShardState(
        shard_id=shard_id,
        parents=parents,
        read_position=SHARD_END if ended else TRIM_HORIZON,
        verified_until_ms=verified_until_ms,
    )


def waiting(first: int, last: int | None = None, **fields: Any) -> UnresolvedRecord:
    """A record, or with `last` all records up to it."""
    last = first if last is None else last
    values = {"attempts": 1, "due_ms": 0, "count": last - first + 1} | fields
    return UnresolvedRecord(first=SequenceNumber(first), last=SequenceNumber(last), **values)


def retry(first: int, last: int | None = None, sub: int = 0, **fields: Any) -> PlannedRetry:
    """The same as a plan names it."""
    end = None if last is None else SequenceNumber(last)
    values = {"attempts": 1, "count": 1 if last is None else last - first + 1} | fields
    return PlannedRetry(first=SequenceNumber(first, sub), last=end, **values)


def with_records(shard: ShardState, *records: UnresolvedRecord) -> ShardState:
    return msgspec.structs.replace(shard, unresolved=records)


def drained(shard_id: str) -> ShardState:
    return with_records(state(shard_id, ended=True), waiting(5))


def lineage(listing: list[ShardInfo], *states: ShardState) -> ShardLineage:
    return ShardLineage.of(listing, {one.shard_id: one for one in states})
