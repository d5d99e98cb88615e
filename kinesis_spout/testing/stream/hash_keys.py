"""Hash keys: 128-bit numbers that decide which shard a record goes to.

The service maps a partition key by MD5 of its UTF-8 bytes, read as a big-endian number (API
reference, `PutRecord`), unless the record brings an explicit hash key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

HASH_KEY_END = 2**128


@dataclass(frozen=True, slots=True)
class HashKeyRange:
    """Hash keys from `start` to `end`, both inclusive, as the service writes them."""

    start: int
    end: int

    def __contains__(self, hash_key: int) -> bool:
        return self.start <= hash_key <= self.end

    def split_at(self, new_start: int) -> tuple[HashKeyRange, HashKeyRange]:
        return HashKeyRange(self.start, new_start - 1), HashKeyRange(new_start, self.end)


def hash_key(partition_key: str) -> int:
    digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def even_ranges(count: int) -> list[HashKeyRange]:
    """`count` ranges that cover all hash keys and are of one size, but for rounding; the last takes
    the rest.
    """
    starts = [index * (HASH_KEY_END // count) for index in range(count)]
    return [
        HashKeyRange(start, end - 1)
        for start, end in zip(starts, [*starts[1:], HASH_KEY_END], strict=True)
    ]
