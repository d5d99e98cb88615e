"""Pinning the start: what a wish like LATEST means, decided once for the life of an application."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.config import nearest_name
from kinesis_spout.errors import ConfigError
from state.position import Position, StartingPosition
from state.state_store import StartPin, StateStore

if TYPE_CHECKING:
    from collections.abc import Sequence

LATEST_MARGIN_MS = 2_000  # the service's Date header is cut to whole seconds: start a little earlier rather than late


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedStart:
    """What the user asked for as the start: one wish for all shards, and wishes for
    single shards.
    """

    default: StartingPosition
    shards: tuple[tuple[str, StartingPosition], ...] = ()

    @property
    def text(self) -> str:
        return (
            self.default.text
            if not self.shards
            else json.dumps({"default": self.default.text} | {s: w.text for s, w in self.shards})
        )


def pin_start(
    store: StateStore, wish: RequestedStart, now_ms: int, shard_ids: Sequence[str]
) -> StartPin:
    """Pin the start at `now_ms`, the service's time, unless somebody has: the pin that holds is
    returned.

    Shards listed now start at their wish; shards listed first later are children and start at
    TRIM_HORIZON. Raises `ConfigError` for a wish for a shard that is not listed: nothing would ever
    start there.
    """
    for shard, _ in wish.shards:
        if shard not in shard_ids:
            nearest = nearest_name(shard, shard_ids)
            hint = f"did you mean {nearest}?" if nearest else "name shards as the stream lists them"
            raise ConfigError(
                f"option startingPosition names shard {shard!r}, which the stream does not list; "
                f"{hint}"
            )
    pin = StartPin(
        time_ms=now_ms,
        wish=wish.text,
        position=pinned(wish.default, now_ms),
        shards=tuple(shard_ids),
        shard_positions={shard: pinned(shard_wish, now_ms) for shard, shard_wish in wish.shards},
    )
    return store.pin_start(pin)


def pinned(wish: StartingPosition, now_ms: int) -> Position:
    """The position that a wish means when it is pinned at `now_ms`."""
    is_latest = wish.position is None and wish.ago_ms is None
    return Position.at_timestamp(now_ms - LATEST_MARGIN_MS) if is_latest else wish.pin(now_ms)
