"""The change records that DynamoDB writes to a Kinesis data stream.

Source of the format: "Using Kinesis Data Streams to capture changes to DynamoDB" in the DynamoDB
Developer Guide, `AttributeValue` and "Supported data types and naming rules" (a number has up to 38
significant digits, from 1E-130 to 9.99E+125; 32 levels of nesting).
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from scheme.ddl import arrow_struct, ddl_of, parse_ddl
from scheme.dynamodb_attributes import Items, items_of, named_struct
from scheme.errors import PayloadError
from scheme.json_rules import FIRST_TIME_US, LAST_TIME_US, MAX_EXACT_DIGITS, mismatch
from scheme.json_scheme import Read, as_floating, exact_decimal, struct_reader, text_value
from scheme.payload_scheme import (
    IrregularError,
    PayloadScheme,
    outcomes_together,
    runs_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NOT_A_CHANGE = (
    "not a DynamoDB change record: it is not JSON, or a field is missing or has the wrong type"
)
NOT_AN_ATTRIBUTE = "an attribute is not a DynamoDB value (one type, with a value of this type)"
TIME_RANGE = "the creation time is not in the years 1 to 9999"
MAX_LEVELS = 32

_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?", re.ASCII)
"""One that is written as it is: of few digits, and in the grammar of JSON."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MICROSECONDS = 10**14
"""A time without a precision is in milliseconds below it (the year 5138), else in microseconds.
Both were written before the field came (aws-sdk 2024-01-19).
"""

_TOGETHER = 512


class _Attribute(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The value of an attribute, in the field of its type. DynamoDB writes one of the fields."""

    S: str | UnsetType = UNSET
    N: str | UnsetType = UNSET
    B: str | UnsetType = UNSET
    BOOL: bool | UnsetType = UNSET
    NULL: bool | UnsetType = UNSET
    M: dict[str, _Attribute] | UnsetType = UNSET
    L: list[_Attribute] | UnsetType = UNSET
    SS: list[str] | UnsetType = UNSET
    NS: list[str] | UnsetType = UNSET
    BS: list[str] | UnsetType = UNSET


_Items = dict[str, _Attribute]


class _Identity(msgspec.Struct):
    type: str | None = None
    principalId: str | None = None  # noqa: N815  # the format's name


def _message(keys: Any, image: Any) -> Any:
    """A change whose keys and images have these types."""
    change = msgspec.defstruct(
        "Change",
        [
            ("ApproximateCreationDateTime", int),
            ("Keys", keys),
            ("NewImage", image | None, None),
            ("OldImage", image | None, None),
            ("SizeBytes", Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None, None),
            (
                "ApproximateCreationDateTimePrecision",
                Literal["MILLISECOND", "MICROSECOND"] | None,
                None,
            ),
        ],
        gc=False,
    )
    return msgspec.defstruct(
        "Message",
        [
            ("eventID", str),
            ("eventName", Literal["INSERT", "MODIFY", "REMOVE"]),
            ("tableName", str),
            ("dynamodb", change),
            ("awsRegion", str | None, None),
            ("userIdentity", _Identity | None, None),
        ],
        gc=False,
    )


_TEXT = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class DynamoDbScheme(PayloadScheme):
    """A row for each change of an item: `eventName` (INSERT, MODIFY, REMOVE), `keys`, `newImage`
    and `oldImage`, `createdAt` with its `precision` (MILLISECOND, MICROSECOND), `eventID`,
    `tableName`, `awsRegion`, `userIdentity` (set if Time to Live removed the item) and `sizeBytes`.

    With a DDL, such as "id STRING NOT NULL, total DECIMAL(38,2)", keys and images are structs of
    these fields; in the keys, fields that are not keys are None, and NOT NULL does not apply.
    Without a DDL, keys and images are JSON text with plain values, for `parse_json` or
    `JsonScheme`.

    - N is any number type that represents it exactly; DOUBLE and FLOAT round to the nearest. JSON
      text keeps all its digits, at most 38.
    - S is STRING, or a DATE or TIMESTAMP in the forms of `JsonScheme`. B is BINARY, or base64 in
      JSON text. BOOL is BOOLEAN, NULL is null.
    - M is STRUCT or MAP, L is ARRAY. The sets SS, NS and BS are ARRAYs.
    - An attribute that the DDL does not name is left out. An attribute of another type makes the
      record malformed, and the reason names it.
    """

    ddl: str | None = None

    values_fit = True

    def __post_init__(self) -> None:
        if self.ddl is not None:
            parse_ddl(self.ddl)

    @property
    def schema_ddl(self) -> str:
        return _schema_ddl(self.ddl)

    def outcomes(self, payloads: pa.Array) -> Iterator[pa.Array]:
        """See `PayloadScheme.outcomes`. Changes are read one column at a time."""
        columns = _change_columns(self.ddl)
        refused = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
        for run in runs_of(payloads, _TOGETHER):
            yield from outcomes_together(self, run, columns.decode, columns.values, refused=refused)

    def read(self, payload: bytes) -> tuple[Any, ...]:
        try:
            message = _messages(self.ddl).decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise PayloadError(NOT_A_CHANGE) from None
        change = message.dynamodb
        created, precision = _created(change)
        return (
            message.eventName,
            self._image(change.Keys, "keys"),
            self._image(change.NewImage, "newImage"),
            self._image(change.OldImage, "oldImage"),
            created,
            precision,
            message.eventID,
            message.tableName,
            message.awsRegion,
            _identity(message),
            change.SizeBytes,
        )

    def _image(self, image: Any, name: str) -> str | dict[str, Any] | None:
        if image is None:
            return None
        if self.ddl is None:
            return _TEXT.encode(_plain_items(_as(_Items, image))).decode()
        return _image_reader(self.ddl, name)(image)


@cache
def _schema_ddl(ddl: str | None) -> str:
    image = "STRING" if ddl is None else ddl_of(parse_ddl(ddl))
    return (
        f"eventName STRING, keys {image}, newImage {image}, oldImage {image}, "
        "createdAt TIMESTAMP, precision STRING, eventID STRING, tableName STRING, "
        "awsRegion STRING, userIdentity STRUCT<type: STRING, principalId: STRING>, "
        "sizeBytes BIGINT"
    )


@cache
def _messages(ddl: str | None) -> msgspec.json.Decoder[Any]:
    """Reads changes as they stand. What the DDL does not name is skipped."""
    item: Any = dict[str, dict[str, Any]]
    if ddl is not None:
        names, attribute = parse_ddl(ddl).names, dict[str, Any] | UnsetType
        item = named_struct(names, [attribute] * len(names), [UNSET] * len(names))
    return msgspec.json.Decoder(_message(item, item))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Reads changes a column at a time: `decode` those that are as DynamoDB writes them."""

    decode: Callable[[bytes], Any]
    keys: Items
    images: Items
    type: pa.StructType

    def values(self, messages: Sequence[Any]) -> pa.Array:
        """Raises `IrregularError`."""
        changes = [message.dynamodb for message in messages]
        try:
            created = [_created_us(change) for change in changes]
        except PayloadError:
            raise IrregularError from None
        columns = {
            "keys": self.keys.column([change.Keys for change in changes]),
            "newImage": self.images.column([change.NewImage for change in changes]),
            "oldImage": self.images.column([change.OldImage for change in changes]),
            "createdAt": [time_us for time_us, _ in created],
            "precision": [precision for _, precision in created],
            "userIdentity": [_identity(message) for message in messages],
            "sizeBytes": [change.SizeBytes for change in changes],
        } | {
            name: [getattr(message, name) for message in messages]
            for name in ("eventName", "eventID", "tableName", "awsRegion")
        }
        return pa.StructArray.from_arrays(
            [pa.array(columns[field.name], field.type) for field in self.type],
            fields=list(self.type),
        )


@cache
def _change_columns(ddl: str | None) -> _Columns:
    if ddl is None:
        keys = images = Items(_Items, None, _texts)
    else:
        struct = parse_ddl(ddl)
        keys = items_of(struct, _reader, may_lack=True, skips=True)
        images = items_of(struct, _reader, may_lack=False, skips=True)
    return _Columns(
        decode=msgspec.json.Decoder(_message(keys.type, images.type)).decode,
        keys=keys,
        images=images,
        type=arrow_struct(_schema_ddl(ddl)),
    )


def _texts(images: Sequence[_Items | None]) -> pa.Array:
    try:
        return pa.array(
            [None if image is None else _TEXT.encode(_plain_items(image)) for image in images],
            pa.string(),
        )
    except PayloadError:
        raise IrregularError from None


def _as(kind: Any, attributes: Any) -> Any:
    try:
        return msgspec.convert(attributes, kind)
    except (msgspec.ValidationError, RecursionError):
        raise PayloadError(NOT_AN_ATTRIBUTE) from None


def _identity(message: Any) -> dict[str, Any] | None:
    identity = message.userIdentity
    return identity and {"type": identity.type, "principalId": identity.principalId}


def _created(change: Any) -> tuple[datetime, str]:
    time_us, precision = _created_us(change)
    return _EPOCH + timedelta(microseconds=time_us), precision


def _created_us(change: Any) -> tuple[int, str]:
    time, precision = (
        change.ApproximateCreationDateTime,
        change.ApproximateCreationDateTimePrecision,
    )
    if precision is None:
        precision = "MICROSECOND" if time >= _FIRST_MICROSECONDS else "MILLISECOND"
    time_us = time if precision == "MICROSECOND" else time * 1000
    if not FIRST_TIME_US <= time_us <= LAST_TIME_US:
        raise PayloadError(TIME_RANGE)
    return time_us, precision


def _plain_items(items: _Items, levels: int = MAX_LEVELS) -> dict[str, Any]:
    """The attributes of an item as plain values, which msgspec writes as JSON. Raises
    `PayloadError` for one that DynamoDB does not write.
    """
    plain: dict[str, Any] = {}
    for name, one in items.items():
        # Most are texts and numbers. A call for each of them would take half of the time.
        if (text := one.S) is not UNSET and one == _Attribute(text):
            plain[name] = text
        elif (number := one.N) is not UNSET and one == _Attribute(UNSET, number):
            plain[name] = _written(number)
        else:
            plain[name] = _plain(one, levels)
    return plain


def _plain(one: _Attribute, levels: int = MAX_LEVELS) -> Any:
    values = msgspec.structs.astuple(one)
    if values.count(UNSET) != len(values) - 1 or not levels or one.NULL is False:
        raise PayloadError(NOT_AN_ATTRIBUTE)
    if one.SS is not UNSET:
        return one.SS
    if one.M is not UNSET:
        return _plain_items(one.M, levels - 1)
    if one.L is not UNSET:
        return [_plain(member, levels - 1) for member in one.L]
    if one.BOOL is not UNSET:
        return one.BOOL
    if one.B is not UNSET:
        return _binary(one.B)
    if one.NS is not UNSET:
        return list(map(_written, one.NS))
    if one.BS is not UNSET:
        return list(map(_binary, one.BS))
    if one.NULL is not UNSET:
        return None
    return one.S if one.N is UNSET else _written(one.N)


def _number(text: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise PayloadError(NOT_AN_ATTRIBUTE)
    number = Decimal(text)
    if len(text) > MAX_EXACT_DIGITS or "e" in text.lower():  # else it is in DynamoDB's range
        digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
        if len(digits) > MAX_EXACT_DIGITS or not -130 <= number.adjusted() <= 125:
            raise PayloadError(NOT_AN_ATTRIBUTE)
    return number


@lru_cache(maxsize=1024)
def _written(text: str) -> msgspec.Raw:
    """A number in plain notation: Spark's VARIANT makes a DOUBLE of one with an exponent."""
    if _PLAIN_NUMBER.fullmatch(text):
        return msgspec.Raw(text.encode())
    return msgspec.Raw(format(_number(text), "f").encode())


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise PayloadError(NOT_AN_ATTRIBUTE) from None


# Attributes in the types of a DDL.
@cache
def _image_reader(ddl: str, name: str) -> Callable[[Any], dict[str, Any]]:
    struct = parse_ddl(ddl)
    read = struct_reader(struct, name + ".", _reader, may_lack=name == "keys")
    names = struct.names

    def read_image(image: Any) -> dict[str, Any]:
        attributes = zip(names, msgspec.structs.astuple(image), strict=True)
        return read({key: one for key, one in attributes if one is not UNSET})

    return read_image


def _reader(data_type: pa.DataType, path: str) -> Read:
    """A function that makes a value of the type of an attribute."""
    name = ddl_of(data_type)
    wrong = mismatch(path, name)
    if pa.types.is_struct(data_type):
        return _of_kind("M", dict, struct_reader(data_type, path + ".", _reader), wrong)
    if pa.types.is_map(data_type):
        member = _reader(data_type.item_type, path + "{}")
        return _of_kind(
            "M", dict, lambda found: {key: member(one) for key, one in found.items()}, wrong
        )
    if pa.types.is_list(data_type):
        return _array_reader(_reader(data_type.value_type, path + "[]"), wrong)
    if pa.types.is_decimal(data_type):
        fit = exact_decimal(data_type.precision, data_type.scale)
        return _of_kind("N", str, lambda text: fit(_number(text)), wrong)
    if pa.types.is_integer(data_type):
        limit = 1 << data_type.bit_width - 1
        return _of_kind("N", str, lambda text: _integer(_number(text), limit), wrong)
    if pa.types.is_floating(data_type):
        is_single = data_type.bit_width == 32
        return _of_kind("N", str, lambda text: as_floating(_number(text), single=is_single), wrong)
    if pa.types.is_binary(data_type):
        return _of_kind("B", str, _binary, wrong)
    if pa.types.is_boolean(data_type):
        return _of_kind("BOOL", bool, lambda value: value, wrong)
    return _of_kind("S", str, lambda text: text_value(text, name), wrong)


def _of_kind(kind: str, its_type: type, convert: Read, wrong: str) -> Read:
    """A function for attributes of one kind. `convert` gives None for a value that does not fit."""

    def read(attribute: Any) -> Any:
        if type(attribute) is dict and len(attribute) == 1:
            value = attribute.get(kind)
            if type(value) is its_type:
                fitted = convert(value)
                if fitted is None:
                    raise PayloadError(wrong)
                return fitted
        return _other(attribute, wrong)

    return read


def _array_reader(element: Read, wrong: str) -> Read:
    def read(attribute: Any) -> Any:
        if type(attribute) is dict and len(attribute) == 1:
            ((kind, values),) = attribute.items()
            if type(values) is list and kind in ("L", "SS", "NS", "BS"):
                if kind == "L":
                    return [element(value) for value in values]
                return [element({kind[0]: value}) for value in values]
        return _other(attribute, wrong)

    return read


def _other(attribute: Any, wrong: str) -> None:
    """None for DynamoDB's NULL; raises the reason for an attribute of another kind, or for what is
    none.
    """
    if _plain(_as(_Attribute, attribute)) is not None:
        raise PayloadError(wrong)


def _integer(number: Decimal, limit: int) -> int | None:
    return int(number) if -limit <= number < limit and number == int(number) else None
