"""The scheme that decodes one Protobuf message per record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from scheme.arrow_types import arrow_struct
from scheme.errors import PayloadError, SchemeDefinitionError
from scheme.json_type import StructType
from scheme.payload_scheme import PayloadScheme
from scheme.protobuf_types import check_memory, columns_of, longest_unchecked

if TYPE_CHECKING:
    from collections.abc import Callable

NOT_PROTOBUF = "the bytes are not a message of the Protobuf schema"
NOT_COMPLETE = "the Protobuf message lacks a required field"
_MAX_SCHEMAS = 256


@dataclass(frozen=True)
class ProtobufScheme(PayloadScheme):
    """One message per record, without a length before it. `message`: a generated class, its
    `DESCRIPTOR`, or the bytes of a descriptor set (`protoc --include_imports --descriptor_set_out`)
    with the message's full `name`.

    The types are those of Spark's `from_protobuf`: an enum is a STRING (the number, if the schema
    does not name it), a message a STRUCT, a repeated field an ARRAY, a map a MAP, a Timestamp a
    TIMESTAMP cut to its microsecond. Each member of a oneof is a column. What differs: an unsigned
    number of 32 bits is a BIGINT and one of 64 bits a DECIMAL(20,0), so none is negative; a field
    that tracks no presence (proto3 without `optional`) has its default, 0 or an empty text, and is
    never NULL. Fields of messages without fields are left out.

    `recursion_depth`: how many times a message may contain itself. A record with more levels is
    malformed; by default, a recursive message raises `SchemeDefinitionError`.

    A record whose messages would take more than about 256 MiB of memory is malformed: two bytes may
    stand for one.

    Bytes that are a message of another schema may well decode: the format has numbers in place of
    names. Unknown fields are left out.
    """

    descriptors: bytes
    name: str
    recursion_depth: int = 0

    def __init__(self, message: Any, name: str | None = None, *, recursion_depth: int = 0) -> None:
        descriptor = getattr(message, "DESCRIPTOR", message)
        if isinstance(descriptor, Descriptor):
            files, name = _files_of(descriptor), descriptor.full_name
        elif isinstance(message, bytes) and name is not None:
            files = message
        else:
            raise SchemeDefinitionError(
                f"ProtobufScheme was given a {type(message).__name__}",
                "give it a generated class, its DESCRIPTOR, or the bytes of a descriptor set and "
                "the name of the message",
            )
        object.__setattr__(self, "descriptors", files)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "recursion_depth", recursion_depth)
        arrow_struct(self.schema_ddl)

    @property
    def schema_ddl(self) -> str:
        return _reader(self.descriptors, self.name, self.recursion_depth).ddl

    def read(self, payload: bytes) -> tuple[Any, ...]:
        return _reader(self.descriptors, self.name, self.recursion_depth).read(payload)

    @property
    def path(self) -> str:
        """The message's name in its file, without the package."""
        return _reader(self.descriptors, self.name, self.recursion_depth).path

    def __repr__(self) -> str:
        return f"ProtobufScheme({self.name!r})"


@dataclass(frozen=True, slots=True)
class _ProtobufReader:
    ddl: str
    path: str
    message: Descriptor
    longest_unchecked: int
    parse: Callable[[bytes], Any]
    convert: Callable[[Any], Any]

    def read(self, payload: bytes) -> tuple[Any, ...]:
        if len(payload) > self.longest_unchecked:
            check_memory(payload, self.message)
        try:
            parsed = self.parse(payload)
        except DecodeError:
            raise PayloadError(NOT_PROTOBUF) from None
        if not parsed.IsInitialized():
            raise PayloadError(NOT_COMPLETE)
        return tuple(self.convert(parsed).values())


@lru_cache(maxsize=_MAX_SCHEMAS)
def _reader(descriptors: bytes, name: str, recursion_depth: int) -> _ProtobufReader:
    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(name)
    except (DecodeError, TypeError, KeyError) as exc:
        raise SchemeDefinitionError(
            f"the descriptor set has no usable message {name}: {exc}",
            "make it with protoc --include_imports --descriptor_set_out, and give the full name "
            "with the package",
        ) from None
    root = columns_of(descriptor, recursion_depth)
    if not isinstance(root.type, StructType):
        raise SchemeDefinitionError(f"{name} has no columns", "give a message of your own")
    return _ProtobufReader(
        ddl=root.type.members,
        path=descriptor.full_name.removeprefix(f"{descriptor.file.package}."),
        message=descriptor,
        longest_unchecked=longest_unchecked(descriptor),
        parse=GetMessageClass(descriptor).FromString,
        convert=root.convert,
    )


def _files_of(descriptor: Descriptor) -> bytes:
    """The file of a message and those that it imports, imports first."""
    found: dict[str, Any] = {}

    def add(file: Any) -> None:
        if file.name not in found:
            for imported in file.dependencies:
                add(imported)
            found[file.name] = file

    add(descriptor.file)
    descriptors = FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(descriptors.file.add())
    written: bytes = descriptors.SerializeToString(deterministic=True)
    return written
