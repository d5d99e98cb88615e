"""The hash keys of a shard, and the hash key of a record: which shard a record belongs to. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

HASH_KEYS = 2**128
IS_OWNED = "isOwned"
"""The column of unpacked records that says whether they belong to their shard."""
_HASH_BYTES = 16
_DECIMAL = re.compile(rb"[0-9]{1,39}")


@dataclass(frozen=True, slots=True)
class HashRange:
    """The hash keys of a shard, inclusive at both ends."""

    first: int
    last: int

    @property
    def is_whole(self) -> bool:
        """Whether it has every hash key: of a stream with one shard."""
        return self.first <= 0 and self.last >= HASH_KEYS - 1

    def owns(self, hash_key: int) -> bool:
        return self.first <= hash_key <= self.last

    def owns_keys(self, partition_keys: list[bytes]) -> list[bool]:
        """For each partition key, in UTF-8, whether its records belong to the shard."""
        # Digests compare as the numbers do: they have one length, the highest byte first.
        first = max(self.first, 0).to_bytes(_HASH_BYTES, "big")
        last = min(self.last, HASH_KEYS - 1).to_bytes(_HASH_BYTES, "big")
        is_owned = {  # keys are often those of several records
            key: first <= hashlib.md5(key, usedforsecurity=False).digest() <= last
            for key in set(partition_keys)
        }
        return [is_owned[key] for key in partition_keys]


def hash_key_of(partition_key: str, explicit_hash_key: str | None = None) -> int:
    """The hash key of a record, 0 to 2^128 - 1: the explicit one, or the MD5 of its partition key.
    Raises `ValueError` for an explicit one that is no such number.
    """
    if explicit_hash_key is None:
        digest = hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()
        return int.from_bytes(digest, "big")
    hash_key = explicit_hash_key_in(explicit_hash_key.encode())
    if hash_key is None:
        raise ValueError("an explicit hash key is a decimal number below 2^128")
    return hash_key


def explicit_hash_key_in(text: bytes) -> int | None:
    """The number in an aggregate's table of explicit hash keys; None where the text is none."""
    hash_key = int(text) if _DECIMAL.fullmatch(text) else HASH_KEYS
    return hash_key if hash_key < HASH_KEYS else None
