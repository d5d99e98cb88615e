"""Compressed payloads: gzip, zlib and zstd, by their first bytes or by name, up to a size."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from scheme.ddl import arrow_struct
from scheme.errors import PayloadError, SchemeDefinitionError
from scheme.payload_scheme import PayloadScheme, WrappingScheme, outcomes_within
from scheme.record_scheme import NativeScheme, bytes_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Codec = Literal["auto", "gzip", "zlib", "zstd"]
CODECS = ("auto", "gzip", "zlib", "zstd")
MAX_BYTES = 10 * 1024 * 1024

UNKNOWN_CODEC = "not compressed: the first bytes are not those of gzip, zlib or zstd"
TOO_LARGE = "the payload is larger than the limit when it is decompressed"
_DAMAGED = {
    codec: f"the {codec} data is damaged, cut off or followed by other data"
    for codec in ("gzip", "zlib", "zstd")
}

_GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_WINDOW_BITS = {"gzip": 31, "zlib": 15}
_PIECE_BYTES = 16 * 1024
_TOGETHER = 512


def decompressed(payload: bytes, codec: str = "auto", max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes that were compressed. Several gzip members or zstd frames are one text, as for
    their tools. Never holds more than `max_bytes` and one byte of it.

    Raises `PayloadError` for data that is damaged, cut off, too large or followed by other data.
    """
    if codec == "auto":
        codec = _codec_of(payload)
    try:
        if codec == "zstd":
            return _unzstd(payload, max_bytes)
        return _inflated(payload, codec, max_bytes)
    except (zlib.error, OSError, EOFError):
        raise PayloadError(_DAMAGED[codec]) from None


def _codec_of(payload: bytes) -> str:
    if payload.startswith(_GZIP_MAGIC):
        return "gzip"
    if payload.startswith(_ZSTD_MAGIC):
        return "zstd"
    # RFC 1950, 2.2: deflate in the low half of the first byte, a window of at most 32 KiB in the
    # high one; both bytes as a number are a multiple of 31. No JSON text begins like this.
    if len(payload) > 1 and payload[0] & 0x8F == 8 and int.from_bytes(payload[:2], "big") % 31 == 0:
        return "zlib"
    raise PayloadError(UNKNOWN_CODEC)


def _inflated(payload: bytes, codec: str, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes + 1
    member = zlib.decompressobj(_WINDOW_BITS[codec])
    at = 0
    # One byte more than allowed shows that there is more. The first member is taken in one piece:
    # mostly it is the only one. What follows is taken in small pieces, as zlib copies the rest of
    # its input at the end of each member, and a hostile payload has thousands of empty members.
    piece = payload
    while True:
        part = member.decompress(piece, room)
        parts.append(part)
        room -= len(part)
        if not room:
            raise PayloadError(TOO_LARGE)
        if not member.eof:
            at += len(piece)
        else:
            at += len(piece) - len(member.unused_data)
            if at == len(payload):
                return parts[0] if len(parts) == 1 else b"".join(parts)
            if codec == "zlib":
                raise zlib.error
            member = zlib.decompressobj(_WINDOW_BITS[codec])
        if at == len(payload):
            raise EOFError
        piece = payload[at : at + _PIECE_BYTES]


def _unzstd(payload: bytes, max_bytes: int) -> bytes:
    if not payload:
        raise EOFError
    parts: list[bytes] = []
    room = max_bytes + 1
    with pa.CompressedInputStream(pa.BufferReader(payload), "zstd") as stream:
        while room and (part := stream.read(min(room, 1024 * 1024))):
            parts.append(part)
            room -= len(part)
    if not room:
        raise PayloadError(TOO_LARGE)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Compressed(WrappingScheme):
    """A scheme whose payloads are compressed: `Compressed(JsonScheme("id BIGINT"), "auto")`.

    `codec` is gzip, zlib or zstd; "auto" recognizes the codec by the first bytes, so a stream may
    contain several. A payload is malformed if it is damaged, not compressed, or larger than
    `max_bytes` (10 MiB) after decompression. Otherwise, the inner scheme's rules apply. Its Python
    half decodes.
    """

    codec: Codec = "auto"
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise SchemeDefinitionError(
                f"the codec {self.codec!r} is not known", f"use one of {', '.join(CODECS)}"
            )
        if not 0 < self.max_bytes < 1 << 30:
            raise SchemeDefinitionError(
                f"the argument max_bytes is {self.max_bytes}",
                "set max_bytes to a number of bytes from 1 to 1 GiB",
            )
        arrow_struct(self.schema_ddl)

    @property
    def values_fit(self) -> bool:
        if isinstance(self.inner, PayloadScheme):
            return self.inner.values_fit
        return isinstance(self.inner, NativeScheme)

    def unpacked(self, payload: bytes) -> bytes:
        data = decompressed(payload, self.codec, self.max_bytes)
        reason = bytes_reason(data)  # an aggregate may be inside, too
        if reason is not None:
            raise PayloadError(reason)
        return self.inner.unpacked(data) if isinstance(self.inner, PayloadScheme) else data

    def columns(self, values: Sequence[Any]) -> list[pa.Array]:
        if isinstance(self.inner, PayloadScheme):
            return self.inner.columns(values)
        return PayloadScheme.columns(self, values)

    def outcomes(self, payloads: pa.Array) -> Iterator[pa.Array]:
        """See `PayloadScheme.outcomes`. Whatever is decompressed is read as the inner scheme reads
        a column.
        """
        inner = self.inner
        if not isinstance(inner, PayloadScheme):
            return PayloadScheme.outcomes(self, payloads)
        return outcomes_within(
            self,
            payloads,
            lambda payload: (inner, decompressed(payload, self.codec, self.max_bytes)),
            records=_TOGETHER,
        )
