"""Looks at streams whose sequence numbers tell times, of one shard, and of very many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.service.shard_info import HASH_KEYS, HashRange, ShardInfo
from kinesis_spout.testing.stream.sequence_number import SequenceParts
from state.position import Position
from state.sequence_number import SequenceNumber
from tests.support.inspection.looks import HOUR_MS, NOW_MS, behind, failed, look, shard, state

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look
    from state.shard_state import ShardState

CREATED_MS = NOW_MS - 2 * HOUR_MS
HOSTILE = "</bdi></script><img src=x onerror=alert(1)>\"'&\u202e\x00\n"


def _number(index: int, put_ms: int) -> SequenceNumber:
    return SequenceNumber(SequenceParts(CREATED_MS // 1000, index, 7, put_ms // 1000).number())


def timed(index: int, keys: tuple[int, int] = (0, HASH_KEYS - 1)) -> ShardInfo:
    return ShardInfo(
        shard_id=shard(index),
        parents=(),
        hash_key_range=HashRange(*keys),
        starting_sequence=_number(index, CREATED_MS),
        ending_sequence=None,
    )


def read_to(index: int, read_ms: int, **fields: Any) -> ShardState:
    """Read and acked up to then, unless told otherwise."""
    at = _number(index, read_ms)
    given: dict[str, Any] = {"verified_until_ms": read_ms, "checkpoint": at}
    return state(index, Position.after(at), **(given | fields))


def very_many(count: int) -> Look:
    """Each tenth shard has a failed record, each hundredth stands still."""
    parts: list[ShardInfo | ShardState] = []
    for index in range(count):
        keys = HASH_KEYS * index // count, HASH_KEYS * (index + 1) // count - 1
        unresolved = (failed(5, reason=f"reason {index // 10 % 80}"),) if index % 10 == 0 else ()
        read_ms = NOW_MS - 1_000 - index % 700 * 100
        parts += [
            timed(index, keys),
            read_to(index, read_ms, unresolved=unresolved),
        ]
    return look(*parts, tips={index: behind(60_000) for index in range(0, count, 100)})
