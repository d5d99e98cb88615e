"""The hash ranges of a stream's shards, listed when they are needed."""

from __future__ import annotations

from kinesis_spout.aggregation.hash_range import HASH_KEYS, HashRange
from kinesis_spout.service.shard_info import ShardInfo
from kinesis_spout.shards.hash_ranges import ShardHashRanges
from state.sequence_number import SequenceNumber


def shard(shard_id: str, first: int, last: int) -> ShardInfo:
    return ShardInfo(
        shard_id=shard_id,
        parents=(),
        hash_key_range=(first, last),
        starting_sequence=SequenceNumber(1),
        ending_sequence=None,
    )


def test_the_shards_are_listed_once_and_again_for_a_new_shard() -> None:
    """One that is not listed has no known range, and is looked for at each call."""
    listed = [shard("a", 0, 4), shard("b", 5, 9)]
    calls: list[None] = []

    def list_shards() -> list[ShardInfo]:
        calls.append(None)
        return listed

    ranges = ShardHashRanges(list_shards)
    assert calls == []
    assert (ranges.of("b"), ranges.of("a")) == (HashRange(5, 9), HashRange(0, 4))
    assert len(calls) == 1
    assert ranges.of("c") is None
    listed.append(shard("c", 5, 7))
    assert ranges.of("c") == HashRange(5, 7)
    assert len(calls) == 3


def test_a_range_has_both_of_its_ends() -> None:
    """As the service lists it. Digests compare as their numbers do."""
    key = b"key"
    digest = 0x3C6E0B8A9C15224A8228B9A98CA1531D  # the MD5 of "key"
    assert HashRange(digest, digest).owns_keys([key, b"other"]) == [True, False]
    assert HashRange(digest + 1, HASH_KEYS - 1).owns_keys([key]) == [False]
    assert HashRange(0, digest - 1).owns_keys([key]) == [False]
    assert HashRange(0, HASH_KEYS - 1).is_whole
    assert not HashRange(1, HASH_KEYS - 1).is_whole
