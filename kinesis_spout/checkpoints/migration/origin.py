"""Where another consumer of a stream has stopped, by what it has stored. Pure.

A reader of this package (`storm_spout`, `kcl`, `awslabs`, `databricks`) makes an `Origin` from what
that consumer wrote. `import_plan` turns it into a position for each shard that the stream lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from state.errors import InvalidSequenceNumberError, RemediedError
from state.position import Position
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Mapping


Item: TypeAlias = "Mapping[str, Mapping[str, Any]]"
"""An item as DynamoDB has it: by name, `{"S": text}` or another kind."""

_Value = TypeVar("_Value")
COPY_AGAIN = "copy it again"
GIVE_UNCHANGED = "give the state as the other consumer stored it"
GIVE_THIS_STREAMS = "give the state of this stream"


class MigrationError(RemediedError):
    """State that another consumer stored cannot be read, or does not say enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginShard:
    """Where the other consumer has stopped in one shard.

    - `stored`: what it has stored, in its own words.
    - `position`: where its next read would begin; SHARD_END if it is done, None if it does not say.
      A sub-sequence number names a user record of an aggregate, if the record is one: that is
      looked up in the stream.
    - `read_to`: how far it has read without committing; None if it has not, or does not say.
    - `passed_over`: the records before the position were perhaps never read, so they are counted.
    - `note`: what the operator would not expect.
    """

    stored: str
    position: Position | None
    read_to: Position | None = None
    passed_over: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the other consumer has stopped.

    - `name`: of the system, for messages.
    - `drops_finished`: it forgets a shard once that is done and its children are begun. So a shard
      that it does not name, and whose children it names, is done.
    - `in_place`: what it has stored is the state that the application has.
    - `notes`: about all of it, one sentence each.
    """

    name: str
    shards: Mapping[str, OriginShard]
    drops_finished: bool = False
    in_place: bool = False
    notes: tuple[str, ...] = ()


def requested_import(name: str) -> str:
    """The requested start of an application that was imported from the system `name`."""
    return f"import from {name}"


def decoded(
    data: str | msgspec.Raw, kind: type[_Value], where: str, remedy: str = COPY_AGAIN
) -> _Value:
    """The value of a JSON text, whose fields may be texts. Raises `MigrationError`."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeError) as exc:
        raise MigrationError(f"{where} is damaged ({exc})", remedy) from exc


def in_item(item: Item, kind: type[_Value], wrong: str, remedy: str) -> _Value:
    """The value of an item of DynamoDB. Raises `MigrationError` with `wrong`."""
    values = {name: next(iter(typed.values()), None) for name, typed in item.items()}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise MigrationError(f"{wrong} ({exc})", remedy) from exc


def number_in(text: str, where: str) -> SequenceNumber:
    """The sequence number in a stored text. Raises `MigrationError`."""
    try:
        return SequenceNumber(SequenceNumber.parse(text).sequence)
    except InvalidSequenceNumberError as exc:
        raise MigrationError(
            f"{where} contains {text[:60]!r}, which is not a sequence number",
            GIVE_UNCHANGED,
        ) from exc


def after_user_record(number: SequenceNumber, sub: int) -> Position:
    """After user record `sub` of the record, counted from 0. Raises `MigrationError`."""
    try:
        return Position.at(SequenceNumber(number.sequence, sub + 1))
    except InvalidSequenceNumberError as exc:
        raise MigrationError(f"record {number} has no user record {sub}", GIVE_UNCHANGED) from exc
