"""Short constructors of listed shards and shard states, for tests of shard lineage."""

from __future__ import annotations

import msgspec

from kinesis_spout.service.shard_info import HASH_KEYS, ShardInfo
from kinesis_spout.shards.lineage import ShardLineage
from state.position import SHARD_END, TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord

WHOLE = (0, HASH_KEYS - 1)
LEFT, RIGHT = (0, HASH_KEYS // 2 - 1), (HASH_KEYS // 2, HASH_KEYS - 1)


def shard(
    shard_id: str, *parents: str, closed: bool = False, keys: tuple[int, int] = WHOLE
) -> ShardInfo:
    return ShardInfo(
        shard_id=shard_id,
        parents=parents,
        hash_key_range=keys,
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
        lifecycle=Lifecycle.FINISHED if ended else Lifecycle.ACTIVE,
        verified_until_ms=verified_until_ms,
    )


def drained(shard_id: str) -> ShardState:
    waiting = UnresolvedRecord(
        first=SequenceNumber(5), last=SequenceNumber(5), attempts=1, due_ms=0
    )
    return msgspec.structs.replace(
        state(shard_id, ended=True), lifecycle=Lifecycle.DRAINED, unresolved=(waiting,)
    )


def lineage(listing: list[ShardInfo], *states: ShardState) -> ShardLineage:
    return ShardLineage.of(listing, {one.shard_id: one for one in states})
