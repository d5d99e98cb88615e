"""Where another consumer stands on a stream, as it has stored it. Pure.

A reader of this package (`storm_spout`, `kcl`, `awslabs`, `databricks`) makes an `Origin` from what
that consumer wrote. `placing` turns it into a position for each shard that the stream lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from state.errors import InvalidSequenceNumberError, RemediedError
from state.position import SHARD_END, Position
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Mapping


class MigrationError(RemediedError):
    """What another consumer stored cannot be read, or does not say enough. One sentence says what
    is wrong, where, and what to do.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginShard:
    """Where the other consumer stands in one shard.

    - `says`: what it has stored, in its own words.
    - `position`: where its next read would begin; None if it does not say. A sub-sequence number
      names a user record of an aggregate, if the record is one: that is looked up in the stream.
    - `read_to`: how far it has read without committing; None if it has not, or does not say.
    - `note`: what the operator would not expect.
    """

    says: str
    position: Position | None
    read_to: Position | None = None
    note: str | None = None

    @property
    def is_done(self) -> bool:
        return self.position == SHARD_END


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the other consumer stands.

    - `name`: of the system, for messages.
    - `drops_finished`: it forgets a shard once that is done and its children are begun. So a shard
      that it does not name, and whose children it names, is done.
    - `notes`: about all of it, one sentence each.
    """

    name: str
    shards: Mapping[str, OriginShard]
    drops_finished: bool = False
    notes: tuple[str, ...] = field(default=())


def wish_of(name: str) -> str:
    """The requested start of an application that was imported from the system `name`."""
    return f"import from {name}"


def number_in(text: str, where: str) -> SequenceNumber:
    """The sequence number in a stored text. Raises `MigrationError`."""
    try:
        return SequenceNumber(SequenceNumber.parse(text).sequence)
    except InvalidSequenceNumberError as exc:
        raise MigrationError(f"{where} holds {text[:60]!r}, which is no sequence number") from exc


def after_user_record(number: SequenceNumber, sub: int) -> Position:
    """After user record `sub` of the record, counted from 0. Raises `MigrationError`."""
    try:
        return Position.at(SequenceNumber(number.sequence, sub + 1))
    except InvalidSequenceNumberError as exc:
        raise MigrationError(f"record {number} has no user record {sub}") from exc
