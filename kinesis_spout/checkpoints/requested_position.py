"""The position that an operator asks for. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_spout.shards.start_position import pinned
from state.errors import InvalidPositionError
from state.position import SHARD_END, Position, PositionKind, StartingPosition


@dataclass(frozen=True, slots=True)
class RequestedPosition:
    """A starting position, or SHARD_END (None)."""

    start: StartingPosition | None

    @classmethod
    def parse(cls, text: str) -> RequestedPosition:
        """Read `LATEST`, `-2h`, `14:00` or any position. Raises `InvalidPositionError`."""
        text = text.strip()
        if text == PositionKind.SHARD_END:
            return cls(None)
        try:
            return cls(StartingPosition.parse(text))
        except InvalidPositionError as exc:
            # The grammar of starts, to which this adds one.
            raise InvalidPositionError(
                f"{text!r} is not a position",
                "use TRIM_HORIZON, LATEST, -2h, 14:00, an ISO time "
                "like 2026-01-31T12:00:00Z, AT:<sequence>, AFTER:<sequence> or SHARD_END",
            ) from exc

    def __str__(self) -> str:
        return "SHARD_END" if self.start is None else self.start.text

    @property
    def belongs_to_one_shard(self) -> bool:
        """Whether it means something in one shard only: a sequence number, or a shard's end."""
        return self.start is None or (
            self.start.position is not None and self.start.position.sequence is not None
        )

    @property
    def is_time(self) -> bool:
        """Whether it means a time, other than now."""
        return self.start is not None and self.start.is_time

    def at(self, now_ms: int) -> Position:
        """The position that it means at `now_ms`, the service's time."""
        return SHARD_END if self.start is None else pinned(self.start, now_ms)
