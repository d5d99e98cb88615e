"""What follows from one shard listing and the stored states. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kinesis_spout.shards.lineage import ShardLineage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState
    from state.state_store import StoredState


class CatalogView:
    """The lineage of one listing and one mapping of states, neither of which changes.

    Each answer is computed when it is first asked for: a driver that waits asks many times a
    second. `only`: the ids of the shards that are read; empty for all.
    """

    def __init__(
        self,
        listing: tuple[ShardInfo, ...],
        states: Mapping[str, StoredState],
        only: Collection[str],
    ) -> None:
        self.listing = listing
        self.states = states
        self._only = only

    @cached_property
    def shard_states(self) -> Mapping[str, ShardState]:
        return {shard: stored.state for shard, stored in self.states.items()}

    @cached_property
    def lineage(self) -> ShardLineage:
        return ShardLineage.of(self.listing, self.shard_states)

    @cached_property
    def wanted(self) -> ShardLineage:
        return self.lineage.among(self._only)

    @cached_property
    def readable(self) -> Sequence[str]:
        return self.wanted.readable()

    @cached_property
    def unfollowed(self) -> Sequence[str]:
        return self.lineage.unfollowed()
