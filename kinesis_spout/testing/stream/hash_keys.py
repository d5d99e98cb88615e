"""Hash keys: 128-bit numbers that decide which shard a record goes to.

The service takes the MD5 of the partition key's UTF-8 bytes as a big-endian number (API reference,
`PutRecord`), unless the record has an explicit hash key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

HASH_KEY_END = 2**128


@dataclass(frozen=True, slots=True)
class HashKeyRange:
    """Hash keys from `start` to `end`, both inclusive, as in the API."""

    start: int
    end: int

    def __contains__(self, hash_key: int) -> bool:
        return self.start <= hash_key <= self.end

    def split_at(self, new_start: int) -> tuple[HashKeyRange, HashKeyRange]:
        return HashKeyRange(self.start, new_start - 1), HashKeyRange(new_start, self.end)


def hash_key(partition_key: str | None) -> int:
    """Of no key, any: only an AUTO stream takes such a record, and it ignores hash keys."""
    digest = hashlib.md5((partition_key or "").encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def even_ranges(count: int) -> list[HashKeyRange]:
    """`count` ranges of equal size that cover all hash keys. The last one takes the remainder."""
    starts = [index * (HASH_KEY_END // count) for index in range(count)]
    return [
        HashKeyRange(start, end - 1)
        for start, end in zip(starts, [*starts[1:], HASH_KEY_END], strict=True)
    ]
