"""Whether a spout has emitted all that it is configured to emit, and every record is resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.shards.catalog import ShardCatalog
    from kinesis_spout.shards.lineage import ShardLineage
    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.prefetcher import SpoutPrefetcher
    from kinesis_spout.spout.scheduler import SpoutScheduler


class SpoutCompletion:
    """One per open spout, created before its first shard is assigned. One thread calls `reached`,
    with the spout's lock held.

    `until_ms`: up to when the spout reads (ms since 1970 UTC, service time); None: no limit.
    """

    def __init__(
        self,
        config: SpoutConfig,
        scheduler: SpoutScheduler,
        catalog: ShardCatalog,
        fetching: SpoutPrefetcher,
        *,
        until_ms: int | None,
    ) -> None:
        self._config = config
        self._scheduler = scheduler
        self._catalog = catalog
        self._fetching = fetching
        self._until_ms = until_ms
        # Observations count from this time on. `now` is the time of opening, so every observation
        # is later than that; any other time must be known to have passed.
        self._counts_after_ms = 0 if until_ms is None or config.until == "now" else until_ms

    def reached(self) -> bool:
        """Whether no record is unresolved, and either `max_records` were emitted or every shard is
        done.
        """
        if self._config.total_tasks > 1 or any(
            assigned.shard.unresolved for assigned in self._scheduler.assigned.values()
        ):
            return False
        if self._scheduler.rotation.is_full:
            return True
        if not self._config.shards and self._catalog.unfollowed():
            return False  # a shard has ended, and its children are not known yet
        lineage = self._catalog.wanted()
        return all(self._is_done(shard_id, lineage) for shard_id in lineage.states)

    def _is_done(self, shard_id: str, lineage: ShardLineage) -> bool:
        """Whether the shard is finished, or read up to the time."""
        state = lineage.states[shard_id]
        if state.end_was_read or lineage.waits_for(shard_id):
            # A shard that waits has a parent that did not end: it is done when the parent is.
            return state.finished or not state.end_was_read
        assigned, pages = self._scheduler.assigned.get(shard_id), self._fetching.get(shard_id)
        if (
            assigned is None
            or pages is None
            or assigned.shard.open_run is not None
            or self._until_ms is None
        ):
            return False
        if pages.final_page is not None:
            return assigned.shard.pages.last_page == pages.final_page
        tip_ms = assigned.shard.tip_ms()
        return tip_ms is not None and tip_ms > self._counts_after_ms and self._was_open(shard_id)

    def _was_open(self, shard_id: str) -> bool:
        """Whether the shard was open at that time, by a listing made later. Then its children have
        later records only. A closed shard is read to its end.
        """
        if self._catalog.listed_ms <= self._counts_after_ms:
            self._catalog.stream.expire()
            return False
        return not self._catalog.stream.is_closed(shard_id)
