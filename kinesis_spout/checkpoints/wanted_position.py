"""The position that an operator asks for. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time

from kinesis_spout.shards.start_position import pinned
from state.errors import InvalidPositionError
from state.position import SHARD_END, Position, PositionKind, StartingPosition

_OF_DAY = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class WantedPosition:
    """A starting position, a time of today (`of_day`, in the local time zone), or SHARD_END (both
    are None).
    """

    start: StartingPosition | None
    of_day: time | None = None

    @classmethod
    def parse(cls, text: str) -> WantedPosition:
        """Read `LATEST`, `-2h`, `14:00` or any position. Raises `InvalidPositionError`."""
        text = text.strip()
        if text == PositionKind.SHARD_END:
            return cls(None)
        if _OF_DAY.fullmatch(text):
            hour, minute, second = (int(part) for part in f"{text}:00".split(":")[:3])
            return cls(None, time(hour, minute, second))
        try:
            return cls(StartingPosition.parse(text))
        except InvalidPositionError as exc:
            # The grammar of starts, to which this adds one.
            raise InvalidPositionError(
                f"{text!r} is not a position; use TRIM_HORIZON, LATEST, -2h, 14:00, an ISO time "
                "like 2026-01-31T12:00:00Z, AT:<sequence>, AFTER:<sequence> or SHARD_END"
            ) from exc

    @property
    def is_of_one_shard(self) -> bool:
        """Whether it means something in one shard only: a sequence number, or a shard's end."""
        if self.of_day is not None:
            return False
        return self.start is None or (
            self.start.position is not None and self.start.position.sequence is not None
        )

    @property
    def is_time(self) -> bool:
        """Whether it means a time, other than now."""
        if self.start is None:
            return self.of_day is not None
        position = self.start.position
        is_at = position is not None and position.timestamp_ms is not None
        return is_at or self.start.ago_ms is not None

    def at(self, now_ms: int) -> Position:
        """The position that it means at `now_ms`, the service's time."""
        if self.of_day is not None:
            here = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
            there = here.replace(
                hour=self.of_day.hour,
                minute=self.of_day.minute,
                second=self.of_day.second,
                microsecond=0,
                tzinfo=None,
            ).astimezone()  # its own offset, which a change of clocks may have made another one
            return Position.at_timestamp(round(there.timestamp() * 1000))
        return SHARD_END if self.start is None else pinned(self.start, now_ms)
