"""Shard iterators and page tokens: opaque texts that hold the state of a read or a listing.

API reference: an iterator or a page token expires 300 s after the answer that gave it; an iterator
has at most 512 characters.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import TypeVar

import msgspec

LIFETIME_MS = 300_000


class ShardIterator(msgspec.Struct, frozen=True, array_like=True):
    """A place in a shard: before the first record whose number is `sequence` or above.

    `empty_pages`: how many pages of a run of empty pages the reader has had there.
    """

    stream: str
    created_ms: int
    shard_id: str
    sequence: str
    issued_ms: int
    empty_pages: int = 0

    def expired(self, now_ms: int) -> bool:
        return now_ms - self.issued_ms > LIFETIME_MS


class ListToken(msgspec.Struct, frozen=True, array_like=True):
    """Where a listing of shards continues, with the filter that it started with."""

    stream: str
    created_ms: int
    after_shard_id: str
    filter_type: str
    filter_shard_id: str | None
    filter_timestamp_ms: int | None
    max_results: int
    issued_ms: int

    def expired(self, now_ms: int) -> bool:
        return now_ms - self.issued_ms > LIFETIME_MS


class ConsumerListToken(msgspec.Struct, frozen=True, array_like=True):
    """Where a listing of a stream's consumers continues."""

    stream: str
    created_ms: int
    after_name: str
    issued_ms: int

    def expired(self, now_ms: int) -> bool:
        return now_ms - self.issued_ms > LIFETIME_MS


Token = TypeVar("Token", ShardIterator, ListToken, ConsumerListToken)


def encode(token: ShardIterator | ListToken | ConsumerListToken) -> str:
    body = msgspec.json.encode(token)
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode()


def decode(text: str, kind: type[Token]) -> Token | None:
    """The token, or None for a text that `encode` did not make."""
    try:
        raw = base64.b64decode(text, validate=True)
        check, body = raw[:4], raw[4:]
        if zlib.crc32(body).to_bytes(4, "big") != check:
            return None
        return msgspec.json.decode(body, type=kind)
    except (binascii.Error, ValueError):
        return None
