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

from kinesis_spout.testing.errors import ServiceError, invalid_argument
from kinesis_spout.testing.service.requests import ListShards

LIFETIME_MS = 300_000


class Token(msgspec.Struct, frozen=True, array_like=True):
    """Of a stream, by its name and creation time."""

    stream: str
    created_ms: int
    issued_ms: int

    def expired(self, now_ms: int) -> bool:
        return now_ms - self.issued_ms > LIFETIME_MS


class ShardIterator(Token, frozen=True, array_like=True):
    """A place in a shard: before the first record whose number is `sequence` or above.

    `empty_pages`: how many pages of a run of empty pages the reader has had there.
    """

    shard_id: str
    sequence: str
    empty_pages: int = 0


class ListToken(Token, frozen=True, array_like=True):
    """`rest`: the request for the rest of a listing of shards."""

    rest: ListShards


class ConsumerListToken(Token, frozen=True, array_like=True):
    """Where a listing of a stream's consumers continues."""

    after_name: str


_Kind = TypeVar("_Kind", bound=Token)


def page_token(text: str, kind: type[_Kind], now_ms: int) -> _Kind:
    """The page token in a request. Raises `ServiceError` for an invalid or expired one."""
    token = decode(text, kind)
    if token is None:
        raise invalid_argument("NextToken is invalid.")
    if token.expired(now_ms):
        raise ServiceError(
            "ExpiredNextTokenException",
            "The NextToken has expired: it was issued more than 300 seconds ago.",
        )
    return token


def encode(token: Token) -> str:
    body = msgspec.json.encode(token)
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode()


def decode(text: str, kind: type[_Kind]) -> _Kind | None:
    """The token, or None for a text that `encode` did not make."""
    try:
        raw = base64.b64decode(text, validate=True)
        check, body = raw[:4], raw[4:]
        if zlib.crc32(body).to_bytes(4, "big") != check:
            return None
        return msgspec.json.decode(body, type=kind)
    except (binascii.Error, ValueError):
        return None
