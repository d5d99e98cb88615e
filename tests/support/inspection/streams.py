"""Looks at streams whose sequence numbers tell times, of one shard, of reshards, of very many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.service.shard_info import ShardInfo
from kinesis_spout.shards.lineage import HASH_KEYS
from kinesis_spout.testing.stream.sequence_number import COUNTER_END, SequenceParts
from state.position import Position
from state.sequence_number import SequenceNumber
from tests.support.inspection.looks import HOUR_MS, NOW_MS, behind, failed, look, shard, state

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look
    from state.shard_state import ShardState

CREATED_MS = NOW_MS - 2 * HOUR_MS
HOSTILE = "</bdi></script><img src=x onerror=alert(1)>\"'&\u202e\x00\n"


def number(index: int, put_ms: int, *, created_ms: int = CREATED_MS) -> SequenceNumber:
    return SequenceNumber(SequenceParts(created_ms // 1000, index, 7, put_ms // 1000).number())


def timed(
    index: int, *parents: int, created_ms: int = CREATED_MS, closed_ms: int | None = None
) -> ShardInfo:
    ended = None
    if closed_ms is not None:
        parts = SequenceParts(created_ms // 1000, index, COUNTER_END, closed_ms // 1000)
        ended = SequenceNumber(parts.number())
    return ShardInfo(
        shard_id=shard(index),
        parents=tuple(map(shard, parents)),
        hash_key_range=(0, HASH_KEYS - 1),
        starting_sequence=number(index, created_ms, created_ms=created_ms),
        ending_sequence=ended,
    )


def read_to(index: int, read_ms: int, *parents: int, **fields: Any) -> ShardState:
    """Read and acked up to then, unless told otherwise."""
    at = number(index, read_ms)
    given: dict[str, Any] = {"verified_until_ms": read_ms, "checkpoint": at}
    return state(index, Position.after(at), *parents, **(given | fields))


def very_many(count: int) -> Look:
    """Each tenth shard has a failed record, each hundredth stands still."""
    parts: list[ShardInfo | ShardState] = []
    for index in range(count):
        keys = HASH_KEYS * index // count, HASH_KEYS * (index + 1) // count - 1
        unresolved = (failed(5, reason=f"reason {index // 10 % 80}"),) if index % 10 == 0 else ()
        read_ms = NOW_MS - 1_000 - index % 700 * 100
        listed = timed(index)
        parts += [
            ShardInfo(
                shard_id=listed.shard_id,
                parents=(),
                hash_key_range=keys,
                starting_sequence=listed.starting_sequence,
                ending_sequence=None,
            ),
            read_to(index, read_ms, unresolved=unresolved),
        ]
    return look(*parts, tips={index: behind(60_000) for index in range(0, count, 100)})
