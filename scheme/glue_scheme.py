"""The scheme for records that name their schema in AWS Glue Schema Registry.

The frame is that of AWS's serializers (awslabs/aws-glue-schema-registry): a header version, 3; a
compression, 0 for none or 5 for zlib; 16 bytes, the id of the schema version; then the data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, Protocol
from uuid import UUID

from scheme.avro_scheme import SIDE_BY_SIDE, AvroScheme
from scheme.compressed import decompressed
from scheme.ddl import arrow_struct
from scheme.errors import PayloadError, SchemeDefinitionError
from scheme.payload_scheme import PayloadScheme, WrappingScheme, outcomes_within, read_of
from scheme.protobuf_scheme import ProtobufScheme, varint
from scheme.record_scheme import bytes_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from scheme.payload_scheme import Values
    from scheme.record_scheme import RecordScheme

NO_FRAME = "the record does not begin with a Glue Schema Registry header"
CUT_OFF = "the Glue Schema Registry header of the record is cut off"
UNKNOWN_COMPRESSION = (
    "the compression byte of the Glue Schema Registry header is neither 0 (none) nor 5 (zlib)"
)
UNKNOWN_VERSION = "the registry does not have the schema version that the record names"
OTHER_FORMAT = "the registered schema does not have the data format that the scheme decodes"
UNUSABLE = "the registered schema cannot be used: it is invalid or recursive"
OTHER_MESSAGE = "the record's Protobuf message type differs from the type that the scheme decodes"
_NO_INDEX = "the record has no Protobuf message index"

_HEADER = 3
_PLAIN, _ZLIB = 0, 5
_FRAME_BYTES = 18
_MAX_INDEX_BYTES = 5  # of a varint of 32 bits
_MAX_SCHEMAS = 256


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A registered schema. `data_format`: AVRO, JSON or PROTOBUF. `definition`: its text."""

    data_format: str
    definition: str


class SchemaRegistry(Protocol):
    """Looks up schema versions, and caches them. Hashable and picklable. May be called from several
    threads.
    """

    def schema_version(self, version_id: str) -> SchemaVersion | None:
        """Return the schema version with a UUID, or None if the registry does not have it. Blocks
        on the network. Raises `SchemeUnavailableError` if the registry does not respond.
        """


@dataclass(frozen=True, slots=True)
class GlueScheme(WrappingScheme):
    """Records framed by the serializers of Glue Schema Registry: `GlueScheme(AvroScheme(schema),
    GlueRegistry())`.

    `inner` defines the rows and their types, which do not change while a query is running:

    - `AvroScheme`: the schema of the rows. Each record is read with the schema version that it
      names, and resolved to this schema.
    - `ProtobufScheme`: the message. A record with another message of its file is malformed.
    - `JsonScheme`, or another scheme, for the data format JSON. Only the scheme's fields are
      checked, not the registered JSON Schema.

    `unframed`: "error" makes a record without a frame malformed; "raw" passes all its bytes to
    `inner`, for a stream whose producers are moving to the registry. A raw record that begins with
    the bytes 3 and 0, or 3 and 5, is mistaken for a framed one.

    A record is malformed if its frame is damaged, or if the registry does not have its schema
    version. If the registry does not respond, the scheme raises `SchemeUnavailableError`: an outage
    never makes a record malformed.
    """

    registry: SchemaRegistry
    unframed: Literal["error", "raw"] = "error"

    def __post_init__(self) -> None:
        if self.unframed not in ("error", "raw"):
            raise SchemeDefinitionError(f"unframed is {self.unframed!r}", 'use "error" or "raw"')
        arrow_struct(self.schema_ddl)

    def unpacked(self, payload: bytes) -> bytes:
        """The same frame with data that is not compressed."""
        if not self._is_framed(payload):
            return payload
        data = payload[_FRAME_BYTES:]
        if payload[1] == _ZLIB:
            data = decompressed(data, "zlib")
        reason = bytes_reason(data)  # an aggregate may be inside, too
        if reason is not None:
            raise PayloadError(reason)
        if payload[1] == _PLAIN:
            return payload
        return bytes([_HEADER, _PLAIN]) + payload[2:_FRAME_BYTES] + data

    def read(self, payload: bytes) -> Values:
        inner, data = self._within(payload, self._version)
        return read_of(inner, inner.unpacked(data) if isinstance(inner, PayloadScheme) else data)

    def outcomes(self, payloads: pa.Array) -> Iterator[pa.Array]:
        """See `PayloadScheme.outcomes`. What the frames hold is read by schema version, as the
        inner scheme reads a column.
        """
        version = cache(self._version)

        def within(payload: bytes) -> tuple[PayloadScheme, bytes] | None:
            inner, data = self._within(self.unpacked(payload), version)
            return (inner, data) if isinstance(inner, PayloadScheme) else None

        return outcomes_within(self, payloads, within, records=SIDE_BY_SIDE)

    def _within(
        self, payload: bytes, version_of: Callable[[bytes], SchemaVersion]
    ) -> tuple[RecordScheme, bytes]:
        """What reads the data of a payload, and the data, which that may have to unpack."""
        if not self._is_framed(payload):
            return self.inner, payload
        version = version_of(payload[2:_FRAME_BYTES])
        data = payload[_FRAME_BYTES:]
        if isinstance(self.inner, AvroScheme):
            rows = self.inner.schema
            if self.inner.reader_schema is not None:
                rows = self.inner.reader_schema
            resolving = _resolving(version.definition, rows)
            if resolving is None:
                raise PayloadError(UNUSABLE)
            return resolving, data
        if isinstance(self.inner, ProtobufScheme):
            return self.inner, _message_bytes(data, version.definition, self.inner.path)
        return self.inner, data

    def _is_framed(self, payload: bytes) -> bool:
        """False for a payload that is raw. Raises `PayloadError` for a damaged frame."""
        if not payload or payload[0] != _HEADER:
            reason = NO_FRAME
        elif len(payload) < 2 or payload[1] not in (_PLAIN, _ZLIB):
            reason = UNKNOWN_COMPRESSION if len(payload) > 1 else CUT_OFF
        elif len(payload) < _FRAME_BYTES:
            raise PayloadError(CUT_OFF)
        else:
            return True
        if self.unframed == "raw":
            return False
        raise PayloadError(reason)

    def _version(self, version_id: bytes) -> SchemaVersion:
        version = self.registry.schema_version(str(UUID(bytes=version_id)))
        if version is None:
            raise PayloadError(UNKNOWN_VERSION)
        formats = (("AVRO", AvroScheme), ("PROTOBUF", ProtobufScheme))
        expected = next((name for name, kind in formats if isinstance(self.inner, kind)), "JSON")
        if version.data_format != expected:
            raise PayloadError(OTHER_FORMAT)
        return version


@lru_cache(maxsize=_MAX_SCHEMAS)
def _resolving(definition: str, rows: str) -> AvroScheme | None:
    """Reads what was written by a version as rows of this schema; None if it cannot."""
    try:
        return AvroScheme(definition, None if definition == rows else rows)
    except SchemeDefinitionError:
        return None


def _message_bytes(data: bytes, definition: str, path: str) -> bytes:
    """The message, which follows its index: an unsigned varint. Of the names of all messages of the
    file, sorted, it is the place of this one (MessageIndexFinder of AWS's serializer).
    """
    try:
        index, begin = varint(data[:_MAX_INDEX_BYTES], 0)
    except IndexError:
        raise PayloadError(_NO_INDEX) from None
    names = message_paths(definition)
    if index >= len(names) or names[index] != path:
        raise PayloadError(OTHER_MESSAGE)
    return data[begin:]


_WORD = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[A-Za-z_]\w*|[{}<>;=]""", re.DOTALL
)


@lru_cache(maxsize=_MAX_SCHEMAS)
def message_paths(definition: str) -> tuple[str, ...]:
    """The messages of a .proto file by their names without the package, sorted: nested ones behind
    their message and a point, with those that groups and maps stand for.
    """
    words = [word for word in _WORD.findall(definition) if word[0] not in "/\"'"]
    found: list[str] = []
    # For each open brace the message that it belongs to; None for an enum, a oneof and others.
    braces: list[str | None] = []

    def add(name: str) -> str:
        inside = next((path for path in reversed(braces) if path is not None), None)
        found.append(name if inside is None else f"{inside}.{name}")
        return found[-1]

    begun: str | None = None
    for before, word, following in zip(["", *words], words, [*words[1:], ""], strict=False):
        if (before, following) in (("message", "{"), ("group", "=")):
            begun = add(word)
        elif (before, following) == (">", "=") and braces:
            add("".join(part[:1].upper() + part[1:] for part in word.split("_")) + "Entry")
        elif word == "{":
            braces.append(begun)
            begun = None
        elif word == "}" and braces:
            braces.pop()
    return tuple(sorted(found))
