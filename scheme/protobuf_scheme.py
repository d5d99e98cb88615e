"""The scheme that decodes one Protobuf message per record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, chain, compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor import FieldDescriptor as Kind
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from scheme.ddl import SIMPLE, array_of, arrow_struct, members_ddl
from scheme.errors import PayloadError, SchemeDefinitionError
from scheme.json_rules import FIRST_TIME_US, LAST_TIME_US
from scheme.payload_scheme import (
    UNFIT,
    IrregularError,
    PayloadScheme,
    outcomes_together,
    runs_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Convert = Callable[[Any], Any]
    Build = Callable[[list[Any]], pa.Array]


NOT_PROTOBUF = "the bytes are not a message of the Protobuf schema"
NOT_COMPLETE = "the Protobuf message lacks a required field"
_MAX_SCHEMAS = 256
_TOGETHER = 512


@dataclass(frozen=True)
class ProtobufScheme(PayloadScheme):
    """One message per record, without a length prefix. `message`: a generated class, its
    `DESCRIPTOR`, or the bytes of a descriptor set (`protoc --include_imports --descriptor_set_out`)
    with the message's full `name`.

    The types are those of Spark's `from_protobuf`: an enum is a STRING (the number, if a proto3
    schema does not name it), a message a STRUCT, a repeated field an ARRAY, a map a MAP, a
    Timestamp a TIMESTAMP cut to its microsecond. Each member of a oneof is a column. Two things
    differ: an unsigned 32-bit number is a BIGINT and an unsigned 64-bit number a DECIMAL(20,0), so
    none is negative; and a field without presence (proto3 without `optional`) has its default, 0 or
    an empty string, and is never NULL. Fields of messages without fields are left out.

    `recursion_depth`: how many times a message may contain itself. A record with more levels is
    malformed. By default, a recursive message type raises `SchemeDefinitionError`.

    A record is malformed if its messages would take more than about 256 MiB of memory, because two
    bytes can encode a message.

    Bytes of another schema's message may decode without an error, because the format contains
    numbers instead of names. Unknown fields are left out.
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
                f"ProtobufScheme got a {type(message).__name__}",
                "pass a generated class, a class's DESCRIPTOR, or the bytes of a descriptor set "
                "and the message's name",
            )
        object.__setattr__(self, "descriptors", files)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "recursion_depth", recursion_depth)
        arrow_struct(self.schema_ddl)

    @property
    def schema_ddl(self) -> str:
        return _reader(self.descriptors, self.name, self.recursion_depth).ddl

    def outcomes(self, payloads: pa.Array) -> Iterator[pa.Array]:
        """See `PayloadScheme.outcomes`. Messages are parsed one by one, and their fields are read
        one column at a time.
        """
        reader = _reader(self.descriptors, self.name, self.recursion_depth)
        for run in runs_of(payloads, _TOGETHER):
            yield from outcomes_together(
                self, run, reader.message_of, reader.values, refused=(PayloadError,)
            )

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
    has_required: bool
    parse: Callable[[bytes], Any]
    root: ProtobufColumn

    def read(self, payload: bytes) -> tuple[Any, ...]:
        return tuple(self.root.convert(self.message_of(payload)).values())

    def values(self, messages: list[Any]) -> pa.Array:
        """The values of messages. Raises `IrregularError`."""
        try:
            return self.root.build(messages)
        except (PayloadError, *UNFIT):
            raise IrregularError from None

    def message_of(self, payload: bytes) -> Any:
        if len(payload) > self.longest_unchecked:
            check_memory(payload, self.message)
        try:
            parsed = self.parse(payload)
        except DecodeError:
            raise PayloadError(NOT_PROTOBUF) from None
        if self.has_required and not parsed.IsInitialized():
            raise PayloadError(NOT_COMPLETE)
        return parsed


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
            "create the descriptor set with protoc --include_imports --descriptor_set_out, and "
            "pass the full name of the message with its package",
        ) from None
    root = _Columns(recursion_depth).message(descriptor, descriptor.full_name, ())
    if root is None:
        raise SchemeDefinitionError(
            f"the Protobuf message {descriptor.full_name} has no fields",
            "Spark has no empty structs; read the records with RawScheme()",
        )
    if not pa.types.is_struct(root.type):
        raise SchemeDefinitionError(
            f"the Protobuf message {name} cannot be decoded into columns",
            "pass a message type of your own schema",
        )
    return _ProtobufReader(
        ddl=members_ddl(root.type),
        path=descriptor.full_name.removeprefix(f"{descriptor.file.package}."),
        message=descriptor,
        longest_unchecked=longest_unchecked(descriptor),
        has_required=any(
            field.is_required for one in messages_within(descriptor) for field in one.fields
        ),
        parse=GetMessageClass(descriptor).FromString,
        root=root,
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


OUT_OF_RANGE = "a Timestamp is not in the years 1 to 9999"
TOO_DEEP = "a recursive message has more levels than recursion_depth"
TOO_MANY_MESSAGES = "the messages within the Protobuf message take more than 256 MiB of memory"
_MAX_MESSAGE_BYTES = 256 * 1024 * 1024

_SIMPLE = {
    Kind.CPPTYPE_INT32: pa.int32(),
    Kind.CPPTYPE_INT64: pa.int64(),
    Kind.CPPTYPE_UINT32: pa.int64(),
    Kind.CPPTYPE_DOUBLE: pa.float64(),
    Kind.CPPTYPE_FLOAT: pa.float32(),
    Kind.CPPTYPE_BOOL: pa.bool_(),
}
_UINT64 = pa.decimal128(20, 0)
"""The smallest type that holds each unsigned number of 64 bits, exactly."""
_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS = 1_000_000_000


class ProtobufColumn(NamedTuple):
    """The type of a value's column, and what protobuf has parsed as this type: `convert` takes one
    value, `build` makes the column of several. Of a field, they take the messages that have it.
    """

    type: pa.DataType
    convert: Convert
    build: Build


def messages_within(message: Any) -> list[Any]:
    """A message and those that its fields have, each once."""
    found = {message.full_name: message}
    pending = [message]
    while pending:
        for field in pending.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in found:
                found[inner.full_name] = inner
                pending.append(inner)
    return list(found.values())


def longest_unchecked(message: Any) -> int:
    """How many bytes are too few for more messages than the limit of memory has room for."""
    inner = (_memory_of(one) for one in messages_within(message)[1:])
    # A message without fields takes two bytes: its field's number and its length.
    return 2 * _MAX_MESSAGE_BYTES // max(*inner, 2 * _SCALAR, 0)


def check_memory(payload: bytes, message: Any) -> None:
    """Raise `PayloadError` for messages within a payload that would take more memory than allowed.
    Ends at damaged bytes, where the parser does too.
    """
    left, at = _MAX_MESSAGE_BYTES, 0
    # The messages around a place, and where they end; a group ends at its mark.
    around = [(message, len(payload))]
    try:
        while True:
            while at >= around[-1][1]:
                around.pop()
                if not around:
                    return
            tag, at = varint(payload, at)
            number, wire = tag >> 3, tag & 7
            inside, end = around[-1]
            if wire == _GROUP_END:
                around.pop()
                continue
            size = _FIXED_BYTES.get(wire, 0)
            if wire == _VARINT:
                _, at = varint(payload, at)
            elif wire == _LENGTH:
                size, at = varint(payload, at)
            field = inside and inside.fields_by_number.get(number)
            inner = field and field.message_type
            if inner and wire in (_LENGTH, _GROUP):
                left -= _memory_of(inner)
                if left < 0:
                    raise PayloadError(TOO_MANY_MESSAGES)
            if wire == _GROUP or (inner and wire == _LENGTH):
                around.append((inner, end if wire == _GROUP else at + size))
            else:
                at += size
    except IndexError:
        return


# Types of the wire: https://protobuf.dev/programming-guides/encoding/#structure
_VARINT, _LENGTH, _GROUP, _GROUP_END = 0, 2, 3, 4
_FIXED_BYTES = {1: 8, 5: 4}
_SCALAR = 20
"""A number of one byte in a list, here and in the parser."""


def _memory_of(message: Any) -> int:
    """About as many bytes as a message takes, parsed and as a dict, in CPython 3.11 of 64 bits."""
    return 200 + sum(130 if field.is_repeated else 40 for field in message.fields)


def varint(payload: bytes, at: int) -> tuple[int, int]:
    """The unsigned number that begins there, and where it has ended. Raises `IndexError` if the
    bytes end before it, or if it has more than 64 bits.
    """
    found = shift = 0
    while True:
        byte = payload[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
        if shift > 63:
            raise IndexError


class _Columns:
    """`recursion_depth`: how many times a message within itself is followed."""

    def __init__(self, recursion_depth: int) -> None:
        self._recursion_depth = recursion_depth

    def message(self, message: Any, path: str, inside: tuple[str, ...]) -> ProtobufColumn | None:
        """The struct of a message's descriptor; None for one without fields, which Spark's own
        functions leave out as well. Raises `SchemeDefinitionError`, with the path of the field, for
        a message that has no columns.
        """
        if message.full_name == _TIMESTAMP:
            return ProtobufColumn(SIMPLE["TIMESTAMP"], _timestamp, _timestamps)
        within = (*inside, message.full_name)
        members: dict[str, ProtobufColumn] = {}
        deepest: list[Convert] = []
        for field in message.fields:
            name = field.name
            inner = _message_of(field)
            if inner is not None and within.count(inner.full_name) > self._recursion_depth:
                if not self._recursion_depth:
                    raise SchemeDefinitionError(
                        f"the Protobuf message {inner.full_name} contains itself at {path}.{name}",
                        "Spark has no recursive types; set recursion_depth to the number of "
                        "times that the message may contain itself in a record",
                    )
                deepest.append(_absent(field))
                continue
            column = self._field(field, f"{path}.{name}", within)
            if column is not None:
                members[name] = column
        if not members:
            return None
        fields = pa.struct([(name, column.type) for name, column in members.items()])
        converts = [(name, column.convert) for name, column in members.items()]

        def convert(parsed: Any) -> dict[str, Any]:
            for check in deepest:
                check(parsed)
            return {name: convert_field(parsed) for name, convert_field in converts}

        def build(messages: list[Any]) -> pa.Array:
            for check in deepest:
                for parsed in messages:
                    check(parsed)
            columns = [column.build(messages) for column in members.values()]
            return pa.StructArray.from_arrays(columns, fields=list(fields))

        return ProtobufColumn(fields, convert, build)

    def _field(self, field: Any, path: str, inside: tuple[str, ...]) -> ProtobufColumn | None:
        """The column of a field, whose `convert` takes the message."""
        name = field.name
        entry = field.message_type if field.is_repeated else None
        if entry is not None and entry.GetOptions().map_entry:
            return self._map(field, entry, path, inside)
        value = self._value(field, path, inside)
        if value is None:
            return None
        convert, build, get = value.convert, value.build, attrgetter(name)
        if field.is_repeated:

            def build_lists(messages: list[Any]) -> pa.Array:
                lists = list(map(get, messages))
                return pa.ListArray.from_arrays(
                    _offsets(lists), build(list(chain.from_iterable(lists)))
                )

            return ProtobufColumn(
                array_of(value.type),
                lambda parsed: [convert(one) for one in get(parsed)],
                build_lists,
            )
        if field.has_presence:

            def build_present(messages: list[Any]) -> pa.Array:
                has = [parsed.HasField(name) for parsed in messages]
                found = build(list(map(get, compress(messages, has))))
                if len(found) == len(messages):
                    return found
                places = np.cumsum(has) - 1
                return found.take(pa.array(places, mask=~np.array(has, bool)))

            return ProtobufColumn(
                value.type,
                lambda parsed: convert(get(parsed)) if parsed.HasField(name) else None,
                build_present,
            )
        return ProtobufColumn(
            value.type,
            lambda parsed: convert(get(parsed)),
            lambda messages: build(list(map(get, messages))),
        )

    def _map(
        self, field: Any, entry: Any, path: str, inside: tuple[str, ...]
    ) -> ProtobufColumn | None:
        name = field.name
        key = self._value(entry.fields_by_name["key"], path, inside)
        value = self._value(entry.fields_by_name["value"], path, inside)
        if key is None or value is None:
            return None

        get = attrgetter(name)

        # In the order of the keys, as a map of Protobuf has none.
        def convert(parsed: Any) -> dict[Any, Any]:
            found = get(parsed)
            return {key.convert(one): value.convert(found[one]) for one in sorted(found)}

        def build(messages: list[Any]) -> pa.Array:
            maps = list(map(get, messages))
            keys = list(map(sorted, maps))
            values = [found[one] for found, own in zip(maps, keys, strict=True) for one in own]
            return pa.MapArray.from_arrays(
                _offsets(maps), key.build(list(chain.from_iterable(keys))), value.build(values)
            )

        return ProtobufColumn(pa.map_(key.type, value.type), convert, build)

    def _value(self, field: Any, path: str, inside: tuple[str, ...]) -> ProtobufColumn | None:
        """The column of a field's value, or of one of its values."""
        kind = field.cpp_type
        if kind == Kind.CPPTYPE_MESSAGE:
            return self.message(field.message_type, path, inside)
        if kind == Kind.CPPTYPE_UINT64:
            return ProtobufColumn(_UINT64, Decimal, _unsigned)
        if kind == Kind.CPPTYPE_STRING:
            is_text = field.type == Kind.TYPE_STRING
            return _plain(pa.string() if is_text else pa.binary())
        if kind == Kind.CPPTYPE_ENUM:
            symbol = _symbol(field.enum_type)
            return ProtobufColumn(
                pa.string(), symbol, lambda numbers: pa.array(map(symbol, numbers), pa.string())
            )
        return _plain(_SIMPLE[kind])


def _plain(kind: pa.DataType) -> ProtobufColumn:
    return ProtobufColumn(kind, _same, lambda values: pa.array(values, kind))


def _unsigned(numbers: list[int]) -> pa.Array:
    return pa.array(numbers, pa.uint64()).cast(_UINT64)


def _offsets(lists: list[Any]) -> pa.Array:
    return pa.array(accumulate(map(len, lists), initial=0), pa.int32())


def _message_of(field: Any) -> Any:
    """The message that a field has, or that the values of its map have; or None."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return message.fields_by_name["value"].message_type
    return message


def _absent(field: Any) -> Convert:
    name, is_repeated = field.name, field.is_repeated

    def check(parsed: Any) -> None:
        if len(getattr(parsed, name)) if is_repeated else parsed.HasField(name):
            raise PayloadError(TOO_DEEP)

    return check


def _same(value: Any) -> Any:
    return value


def _symbol(enum: Any) -> Convert:
    names = {number: value.name for number, value in enum.values_by_number.items()}
    # An open enum may have a number that this version of the schema does not name.
    return lambda number: names.get(number) or str(number)


def _timestamp(parsed: Any) -> datetime:
    try:
        if not 0 <= parsed.nanos < _SECOND_NS:
            raise PayloadError(OUT_OF_RANGE)
        # Cut to the microsecond, which is all that Spark and Python hold.
        return _EPOCH + timedelta(seconds=parsed.seconds, microseconds=parsed.nanos // 1000)
    except OverflowError:
        raise PayloadError(OUT_OF_RANGE) from None


def _timestamps(parsed: list[Any]) -> pa.Array:
    times_us = []
    for one in parsed:
        time_us = one.seconds * 1_000_000 + one.nanos // 1000
        if not (0 <= one.nanos < _SECOND_NS and FIRST_TIME_US <= time_us <= LAST_TIME_US):
            raise PayloadError(OUT_OF_RANGE)
        times_us.append(time_us)
    return pa.array(times_us, SIMPLE["TIMESTAMP"])
