"""Where a shard that has no state yet starts, and whether anything of a shard can have expired
unread. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.position import TRIM_HORIZON, Position
from state.shard_state import ShardState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.service.shard_info import ShardInfo
    from state.state_store import StartPin


def new_shards(
    listing: Sequence[ShardInfo],
    states: Mapping[str, ShardState],
    pin: StartPin,
    *,
    tracked_since_ms: int,
) -> list[ShardState]:
    """First states for listed shards that have none: at the pinned start for those listed then,
    else at TRIM_HORIZON.

    `tracked_since_ms`: the service's time at which all shards had a state. Nothing of a new one can
    have been missed before that; of one that was there at the pin, or whose parents were finished
    before, only before these.
    """
    return [
        ShardState(
            shard_id=shard.shard_id,
            read_position=start_position(shard.shard_id, pin),
            parents=shard.parents,
            verified_until_ms=min(
                [
                    pin.time_ms if shard.shard_id in pin.shards else tracked_since_ms,
                    *_ends_ms(shard.parents, states),
                ]
            ),
        )
        for shard in listing
        if shard.shard_id not in states
    ]


def _ends_ms(parents: Sequence[str], states: Mapping[str, ShardState]) -> list[int]:
    """When the ends of those parents were read that were."""
    ended = [
        states[parent] for parent in parents if parent in states and states[parent].end_was_read
    ]
    return [state.verified_until_ms for state in ended if state.verified_until_ms is not None]


def start_position(shard_id: str, pin: StartPin) -> Position:
    if shard_id in pin.shard_positions:
        return pin.shard_positions[shard_id]
    return pin.position if shard_id in pin.shards else TRIM_HORIZON


def lapsed_shards(
    shards: Sequence[str], states: Mapping[str, ShardState], service_now_ms: int, retention_ms: int
) -> list[str]:
    """Shards of which records may have passed retention unread: nothing is known of them for longer
    than the retention.
    """
    horizon = service_now_ms - retention_ms
    return [
        shard
        for shard in shards
        if (verified := states[shard].verified_until_ms) is not None and verified < horizon
    ]
