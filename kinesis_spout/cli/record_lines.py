"""Records as lines of JSON: the output of `consume`, and the input of `produce --json`."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from kinesis_spout.service.record_putter import OutgoingRecord
from scheme.record_scheme import gives_many
from state.position import Position

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import SpoutEmission
    from scheme.record_scheme import RecordScheme


class LineError(Exception):
    """A line that is not a record. The message states the fault and shows nothing of the line."""


class _PutLine(
    msgspec.Struct,
    rename={"data_base64": "dataBase64", "letter_id": "messageId", "letter_key": "partitionKey"},
):
    """A line of `consume`, or a dead letter, whose `data` is base64."""

    key: str | None = None
    data: str | None = None
    data_base64: str | None = None
    letter_id: str | None = None
    letter_key: str | None = None
    parts: Any = 1


_encoder = msgspec.json.Encoder(decimal_format="number")
_NOT_JSON = (msgspec.ValidationError, ValueError, RecursionError)
_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_LONGEST_PLAIN = 256  # characters of a number that is written without an exponent


def record_line(emission: SpoutEmission, decoded: Decoded | None = None) -> bytes:
    """The record as a JSON object in one line, with its line end.

    `arrival` is an ISO time in UTC with milliseconds. `data` is the payload as text if it is valid
    UTF-8. Otherwise `dataBase64` is the payload in base64. With `decoded` (`decoded_by`), the
    fields are in its place. A record without a partition key has no `key`.
    """
    line: dict[str, Any] = {
        "id": emission.message_id,
        "shard": emission.shard_id,
        "sequence": emission.sequence_number,
    }
    if emission.partition_key is not None:
        line["key"] = emission.partition_key
    line["arrival"] = str(Position.at_timestamp(emission.approximate_arrival_ms))
    line["attempt"] = emission.attempt
    line |= payload_field(emission.data) if decoded is None else decoded(emission.values)
    return _encoder.encode(line) + b"\n"


def json_text(value: object, indent: int = 0) -> str:
    """As JSON in ASCII, with the values of a scheme: a Decimal is a number with all of its digits,
    as `record_line` writes it. `indent`: spaces; 0 for one line.
    """
    text = msgspec.json.format(_encoder.encode(value), indent=indent).decode()
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


def payload_field(data: bytes) -> dict[str, str]:
    """`data`, the payload as text, if it is UTF-8; else `dataBase64`."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"dataBase64": b64encode(data).decode()}


Decoded = Callable[[tuple[Any, ...]], dict[str, Any]]


def decoded_by(scheme: RecordScheme) -> Decoded:
    """What shows the values of a record, as `decode` returns them, by the names of the fields:
    `value`, or `rows` where a record gives many. Make it once: a scheme may compute its schema.
    """
    names = scheme.fields
    # Most schemas have no map, and to look at each value takes longer than to write it.
    has_maps = re.search(r"\bmap\s*<", scheme.schema_ddl, re.IGNORECASE) is not None

    def named(row: tuple[Any, ...]) -> Any:
        fields = dict(zip(names, row, strict=True))
        return _in_json(fields) if has_maps else fields

    if gives_many(scheme):
        return lambda rows: {"rows": list(map(named, rows))}
    return lambda row: {"value": named(row)}


def _in_json(value: Any) -> Any:
    """The value, its maps with keys that JSON can have. msgspec refuses a bool as a key, and writes
    a Decimal without quotes.
    """
    if isinstance(value, dict):
        return {_key_text(key): _in_json(one) for key, one in value.items()}
    return list(map(_in_json, value)) if isinstance(value, list | tuple) else value


def _key_text(key: Any) -> Any:
    if isinstance(key, bool):
        return str(key).lower()
    return f"{key:f}" if isinstance(key, Decimal) else key


def raw_line(emission: SpoutEmission) -> bytes:
    """The payload unchanged, and a line end."""
    return emission.data + b"\n"


def outgoing_of_json(line: bytes, random_key: Callable[[], str]) -> OutgoingRecord:
    """The record of a line that `record_line` made, or of a dead letter of any version. Raises
    `LineError`.

    A line without a key gets a random one.
    """
    try:
        found = msgspec.convert(_parsed(line, float), _PutLine)
    except _NOT_JSON as exc:
        raise LineError(f"the line is not a JSON object with key and data ({exc})") from exc
    if found.letter_id is not None and found.data_base64 is None:
        found.data, found.data_base64, found.key = None, found.data, found.letter_key
        if found.data_base64 is None:
            raise LineError("the line is a dead letter without a payload")
        if found.parts != 1:
            raise LineError(
                "the line is one of several lines of a dead letter. Save the lines in a file, and "
                "put the dead letter with `kinesis-spout redrive`, which joins the lines"
            )
    if (found.data is None) == (found.data_base64 is None):
        raise LineError("the line must have exactly one of the fields data and dataBase64")
    key = _utf8(random_key() if found.key is None else found.key, "key")
    if found.data is not None:
        return OutgoingRecord(key, _utf8(found.data, "data").encode())
    try:
        return OutgoingRecord(key, b64decode(found.data_base64 or "", validate=True))
    except ValueError as exc:
        raise LineError("the payload of the line is not base64") from exc


class _Number(str):
    """A number as the line has it: a float would change some, and has no place for others."""

    __slots__ = ()


def key_of_json(line: bytes, name: str) -> str:
    """The value of the field `name` of the line's object, a string or a number, as text. Equal
    numbers have one text: 7, 7.0 and 70e-1 are `7`.

    Raises `LineError`.
    """
    try:
        found = _parsed(line, _Number)
    except _NOT_JSON as exc:
        raise LineError(
            f"the line is not JSON, so it has no field {name} for the partition key ({exc})"
        ) from exc
    value = found.get(name) if isinstance(found, dict) else None
    if isinstance(value, _Number):
        return _number_text(value, name)
    if not isinstance(value, str):
        raise LineError(
            f"field {name} must be a string or a number, because it is the partition key"
        )
    return _utf8(value, name)


def _parsed(line: bytes, number: Callable[[str], Any]) -> Any:
    """The value of a line, its numbers made by `number`. It may have half a surrogate pair: the
    grammar allows that, and msgspec does not. Raises ValueError or RecursionError.
    """

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a JSON value")

    return json.loads(line.decode(), parse_float=number, parse_int=number, parse_constant=refuse)


def _number_text(number: str, name: str) -> str:
    exact = Context(prec=len(number), Emax=MAX_EMAX, Emin=MIN_EMIN)
    try:
        shortest = Decimal(number).normalize(exact)
    except InvalidOperation as exc:
        raise LineError(
            f"the number in field {name} has an exponent that is too large for a partition key"
        ) from exc
    if not shortest:
        return "0"
    _, digits, exponent = shortest.as_tuple()
    is_short = len(digits) + abs(int(exponent)) < _LONGEST_PLAIN
    return f"{shortest:f}" if is_short else f"{shortest:E}"


def _utf8(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise LineError(
            f"field {name} contains half a surrogate pair, which UTF-8 cannot encode"
        ) from exc
    return text
