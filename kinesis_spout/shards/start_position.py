"""Where reading starts: the pin of the application's start, and the first position of each shard.

`LATEST` is relative, so it is resolved to a time once per application and stored: the start pin.
What is stored is never replaced by another start. So a position that the user has named is tried
with the service first. Pure, except for `pin_start`, `accepted_pin` and `refusal_of`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.config import did_you_mean
from kinesis_spout.errors import ConfigError, RequestRefusedError, ShardNotFoundError
from state.position import TRIM_HORIZON, Position, StartingPosition
from state.shard_state import ShardState
from state.store.identity import StartPin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import ShardInfo
    from state.store.identity import IdentityStore

# The service's Date header is cut to whole seconds: start a little early rather than late.
LATEST_MARGIN_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedStart:
    """The start that the user asked for: one position for all shards, and positions of single
    shards.
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


OLDEST = RequestedStart(default=StartingPosition.parse("TRIM_HORIZON"))


def pin_start(
    identity: IdentityStore,
    client: KinesisClient,
    requested: RequestedStart,
    now_ms: int,
    *,
    only: Collection[str] = (),
) -> StartPin:
    """Store `accepted_pin`, unless a pin is stored. Returns the pin that is stored. Blocks on the
    store and on Kinesis.
    """
    return identity.pin_start(accepted_pin(client, requested, now_ms, only=only))


def accepted_pin(
    client: KinesisClient,
    requested: RequestedStart,
    now_ms: int,
    *,
    only: Collection[str] = (),
) -> StartPin:
    """The pin of this start at `now_ms` of the service's clock, which the service accepts. Blocks
    on Kinesis. `only`: the ids of the shards that are read; empty for all.

    Shards listed now start at the requested position. Shards first listed later are children and
    start at TRIM_HORIZON. A sequence number is a position in one shard: shards that come from a
    listed one, and shards that are not read, start at TRIM_HORIZON then.

    Raises `ConfigError` where a position is requested for a shard that is not listed, as no shard
    would ever start there, for a time that is not over, and for a position that the service
    refuses. Where the service does not answer, its error is raised.
    """
    listing = client.list_shards()
    shard_ids = tuple(shard.shard_id for shard in listing)
    for start in (requested.default, *(start for _, start in requested.shards)):
        wanted = start.pin(now_ms)
        # The service gives no iterator for a time to come. Its clock is known to the second only.
        if wanted.timestamp_ms is not None and wanted.timestamp_ms > now_ms + LATEST_MARGIN_MS:
            raise ConfigError.of(
                "startingPosition",
                f"{start.text!r} is {wanted}, which is in the future: Kinesis's clock shows "
                f"{Position.at_timestamp(now_ms)}",
                remedy="use LATEST or a time in the past as the starting position",
            )
    check_listed("startingPosition", dict(requested.shards), shard_ids)
    default = pinned(requested.default, now_ms)
    positions = {shard: pinned(start, now_ms) for shard, start in requested.shards}
    if default.sequence is not None:
        # A number that is given for no shard in particular is one of the shards that are read, or
        # of those that come from no listed one.
        elsewhere = {
            shard.shard_id
            for shard in listing
            if (shard.shard_id not in only if only else set(shard.parents) & set(shard_ids))
        }
        positions = dict.fromkeys(elsewhere, TRIM_HORIZON) | positions
    pin = StartPin(
        time_ms=now_ms,
        requested=requested.text,
        position=default,
        shards=shard_ids,
        shard_positions=positions,
    )
    _try_named(client, requested, pin)
    return pin


def check_listed(option: str, named: Iterable[str], listed: Collection[str]) -> None:
    """Raise `ConfigError` for a shard that the option names and the stream does not list."""
    for shard in named:
        if shard not in listed:
            hint = did_you_mean(shard, listed, "use only shards that kinesis-spout shards lists")
            raise ConfigError.about(
                option, f" names shard {shard!r}, which the stream does not list", hint
            )


def _try_named(client: KinesisClient, requested: RequestedStart, pin: StartPin) -> None:
    """Ask the service for each position that the user has named. A time is the same in every shard,
    so it is asked for in one.
    """
    named = dict(requested.shards)
    tried = set()
    for shard in pin.shards:
        start, position = named.get(shard, requested.default), start_position(shard, pin)
        if start.position is None and start.ago_ms is None:  # LATEST
            continue
        key = position if position.sequence is None else (position, shard)
        if position != TRIM_HORIZON and key not in tried:
            tried.add(key)
            if refused := refusal_of(client, shard, position):
                raise ConfigError.of("startingPosition", refused, start.text)


def refusal_of(client: KinesisClient, shard_id: str, position: Position) -> str | None:
    """Why the service has no iterator at this position, as a rule for `ConfigError.of`; None where
    it has one, and for a shard that it does not know any more. Raises its other errors: a service
    that is throttled or cannot be reached has refused nothing.
    """
    try:
        client.shard_iterator(shard_id, position)
    except ShardNotFoundError:
        return None
    except RequestRefusedError as exc:
        return f"is not a position in shard {shard_id}: {exc}"
    return None


def pinned(start: StartingPosition, now_ms: int) -> Position:
    """The absolute position of a start that is pinned at `now_ms`."""
    return start.pin(now_ms - LATEST_MARGIN_MS if start.is_latest else now_ms)


def start_position(shard_id: str, pin: StartPin) -> Position:
    """Where a shard without a state starts."""
    if shard_id in pin.shard_positions:
        return pin.shard_positions[shard_id]
    return pin.position if shard_id in pin.shards else TRIM_HORIZON


def new_shards(
    listing: Iterable[ShardInfo],
    states: Mapping[str, ShardState],
    pin: StartPin,
    *,
    tracked_since_ms: int,
) -> list[ShardState]:
    """First states of the listed shards that have none.

    `tracked_since_ms`: the latest service time by which every shard was known to be tracked. A new
    shard cannot have records from before that time. For a shard of the pin the bound is the time of
    the pin, and for a child it is also the end of each parent that was read.
    """
    first = []
    for shard in listing:
        if shard.shard_id in states:
            continue
        parents = [states[parent] for parent in shard.parents if parent in states]
        ends_ms = [state.verified_until_ms for state in parents if state.end_was_read]
        bound_ms = pin.time_ms if shard.shard_id in pin.shards else tracked_since_ms
        first.append(
            ShardState(
                shard_id=shard.shard_id,
                read_position=start_position(shard.shard_id, pin),
                parents=shard.parents,
                verified_until_ms=min([bound_ms, *(ms for ms in ends_ms if ms is not None)]),
            )
        )
    return first
