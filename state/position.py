"""Positions in a shard, with one grammar for options, the command line and stored state.

    TRIM_HORIZON            the oldest record that the stream still keeps
    2013-01-01T05:17:00Z    the first record that arrived at that time or later (ISO 8601, to the
                            millisecond)
    AT:<sequence>           this record and the ones after it
    AT:<sequence>.<sub>     within a KPL aggregate: this user record and the ones after it
    AFTER:<sequence>        the records after this one, after all user records of an aggregate
    AFTER:<sequence>.<sub>  another form of AT:<sequence>.<sub + 1>
    SHARD_END               the end of the shard, which was read to its end

A user who types a start may also type `LATEST`, `-2h` (or s, m, d), or a time of today as `14:00`.
These depend on the time, so they are not positions and are never stored: `StartingPosition.pin`
turns them into one. Every time without a zone is in UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time
from enum import StrEnum
from typing import Final, Self

from state.errors import InvalidPositionError, InvalidSequenceNumberError
from state.sequence_number import SequenceNumber

_AGO = re.compile(r"-([0-9]{1,9})(s|m|h|d)", re.ASCII)
_OF_DAY = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?", re.ASCII)
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_AGO_MS = 100 * 365 * 86_400_000  # a time that every calendar has
_REST = "an ISO time (2026-01-31T12:00:00Z), AT:<sequence>"
_GRAMMAR = f"TRIM_HORIZON, {_REST}, AFTER:<sequence> or SHARD_END"


class PositionKind(StrEnum):
    TRIM_HORIZON = "TRIM_HORIZON"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AT = "AT"
    AFTER = "AFTER"
    SHARD_END = "SHARD_END"


class Position:
    """An immutable place in a shard. `parse` and the class methods create it; `str` is its text."""

    __slots__ = ("kind", "sequence", "timestamp_ms")

    def __init__(
        self,
        kind: PositionKind,
        *,
        sequence: SequenceNumber | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.kind: Final = kind
        self.sequence: Final = sequence
        self.timestamp_ms: Final = timestamp_ms

    @classmethod
    def at(cls, sequence: SequenceNumber) -> Position:
        return cls(PositionKind.AT, sequence=sequence)

    @classmethod
    def after(cls, sequence: SequenceNumber) -> Position:
        """Behind a user record of an aggregate it is the position at the next one, for which it is
        enough to know the number.
        """
        if sequence.sub:
            return cls.at(SequenceNumber(sequence.sequence, sequence.sub + 1))
        return cls(PositionKind.AFTER, sequence=sequence)

    @classmethod
    def at_timestamp(cls, timestamp_ms: int) -> Position:
        """`timestamp_ms` in milliseconds since 1970 UTC."""
        _iso(timestamp_ms)
        return cls(PositionKind.AT_TIMESTAMP, timestamp_ms=timestamp_ms)

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read a text of the grammar above; raises `InvalidPositionError`."""
        if text in (PositionKind.TRIM_HORIZON, PositionKind.SHARD_END):
            return cls(PositionKind(text))
        prefix, colon, rest = text.partition(":")
        try:
            if colon and prefix == PositionKind.AT:
                return cls.at(SequenceNumber.parse(rest))
            if colon and prefix == PositionKind.AFTER:
                return cls.after(SequenceNumber.parse(rest))
            return cls.at_timestamp(_milliseconds(datetime.fromisoformat(text)))
        except InvalidSequenceNumberError as exc:
            raise InvalidPositionError(f"position {text!r} is not valid: {exc}") from exc
        except (ValueError, OverflowError) as exc:
            raise InvalidPositionError(f"{text!r} is not a position", f"use {_GRAMMAR}") from exc

    @property
    def is_end(self) -> bool:
        return self.kind is PositionKind.SHARD_END

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Position.parse, (str(self),)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Position)
            and self.kind is other.kind
            and self.sequence == other.sequence
            and self.timestamp_ms == other.timestamp_ms
        )

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        if self.timestamp_ms is not None:
            return _iso(self.timestamp_ms)
        return self.kind.value if self.sequence is None else f"{self.kind.value}:{self.sequence}"

    def __repr__(self) -> str:
        return f"Position({self})"


TRIM_HORIZON = Position(PositionKind.TRIM_HORIZON)
SHARD_END = Position(PositionKind.SHARD_END)


@dataclass(frozen=True, slots=True)
class StartingPosition:
    """A start as the user typed it (`text`): a position, a time ago, a time of today (with its
    zone, in which it is today), or `LATEST`, for which none of them is set.
    """

    text: str
    position: Position | None = None
    ago_ms: int | None = None
    of_day: time | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `LATEST`, `-2h`, `14:00` or a position other than SHARD_END; raises
        `InvalidPositionError`.
        """
        text = text.strip()
        if text == "LATEST":
            return cls(text)
        if match := _AGO.fullmatch(text):
            ago_ms = int(match[1]) * _UNIT_MS[match[2]]
            if ago_ms > _MAX_AGO_MS:
                raise InvalidPositionError(
                    f"the time {text!r} is further back than any stream keeps records",
                    "use TRIM_HORIZON to start at the oldest record",
                )
            return cls(text, ago_ms=ago_ms)
        try:
            if _OF_DAY.fullmatch(text):
                of_day = time.fromisoformat(text.zfill(len(text) + text.index(":") % 2))
                return cls(text, of_day=of_day if of_day.tzinfo else of_day.replace(tzinfo=UTC))
            position = Position.parse(text)
        except (InvalidPositionError, ValueError) as exc:
            raise InvalidPositionError(
                f"{text!r} is not a position",
                f"use LATEST, -2h, TRIM_HORIZON, 14:00, {_REST} or AFTER:<sequence>",
            ) from exc
        if position.is_end:
            raise InvalidPositionError(
                "SHARD_END cannot be set as an option, because a shard reaches SHARD_END only when "
                "the shard has been read to its end",
                "use LATEST, TRIM_HORIZON, a time such as -2h, or the position of a record",
            )
        return cls(text, position=position)

    @property
    def is_latest(self) -> bool:
        return self.position is None and self.ago_ms is None and self.of_day is None

    @property
    def is_time(self) -> bool:
        """Whether it means a time, other than now."""
        if self.position is not None:
            return self.position.timestamp_ms is not None
        return not self.is_latest

    @property
    def lacks_zone(self) -> bool:
        """Whether it is a time of day that the user typed without a zone."""
        if self.of_day is not None:
            return not set("Z+-") & set(self.text)
        is_iso = self.position is not None and self.is_time
        return is_iso and datetime.fromisoformat(self.text).tzinfo is None

    def pin(self, now_ms: int) -> Position:
        """The position that this start means at `now_ms`, the service's time, which `LATEST` is."""
        if self.position is not None:
            return self.position
        if self.of_day is not None:
            zone = self.of_day.tzinfo
            today = datetime.fromtimestamp(now_ms / 1_000, zone).date()
            return Position.at_timestamp(_milliseconds(datetime.combine(today, self.of_day)))
        return Position.at_timestamp(now_ms - (self.ago_ms or 0))


def _milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return delta.days * 86_400_000 + delta.seconds * 1_000 + delta.microseconds // 1_000


def _iso(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1_000, UTC).replace(
            microsecond=timestamp_ms % 1_000 * 1_000
        )
    except (ValueError, OverflowError, OSError) as exc:
        raise InvalidPositionError(
            f"the time {timestamp_ms} ms since 1970 is outside the years 1 to 9999",
            "use a time in the years 1 to 9999",
        ) from exc
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
