"""Whether a spout has handed over all that it is to hand over, and every record of it has its
outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.shards.catalog import ShardCatalog
    from kinesis_spout.shards.lineage import ShardLineage
    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.prefetcher import SpoutFetching
    from kinesis_spout.spout.scheduler import SpoutScheduler


class SpoutEnd:
    """One per open spout; called by the thread that keeps its shards, `reached` with the spout's
    lock held.
    """

    def __init__(
        self,
        config: SpoutConfig,
        core: SpoutScheduler,
        catalog: ShardCatalog,
        fetching: SpoutFetching,
    ) -> None:
        self._config = config
        self._core = core
        self._catalog = catalog
        self._fetching = fetching
        self._until_ms: int | None = None
        self._seen_from_ms = 0

    def open(self) -> None:
        """Decide what `now` is. Before the first shard is taken up, and after the service has told
        its time.
        """
        now_ms = self._catalog.service_now_ms()
        self._until_ms = self._fetching.until_ms = self._config.until_ms(now_ms)
        # Whatever is seen from here on is later than now; of another time it has to be known that
        # it has passed.
        self._seen_from_ms = (
            0 if self._until_ms is None or self._config.until == "now" else self._until_ms
        )

    def reached(self) -> bool:
        """Nothing is without an outcome, and either `max_records` were handed over, or every shard
        is done.
        """
        if self._config.total_tasks > 1 or any(
            assigned.shard.unresolved for assigned in self._core.assigned.values()
        ):
            return False
        if self._core.is_full:
            return True
        if not self._config.shards and self._catalog.unfollowed():
            return False  # children that nobody has told of yet
        lineage = self._catalog.wanted()
        return all(self._is_done(shard_id, lineage) for shard_id in lineage.states)

    def _is_done(self, shard_id: str, lineage: ShardLineage) -> bool:
        """Finished; or read up to the time. A shard that waits for its parents is done when these
        are: they did not end.
        """
        state = lineage.states[shard_id]
        if state.end_was_read or lineage.waits_for(shard_id):
            return state.finished or not state.end_was_read
        assigned, pages = self._core.assigned.get(shard_id), self._fetching.get(shard_id)
        if (
            assigned is None
            or pages is None
            or assigned.shard.open_run is not None
            or self._until_ms is None
        ):
            return False
        if pages.last_page is not None:
            return assigned.shard.pages.last_page is pages.last_page
        tip_ms = assigned.shard.tip_ms()
        return tip_ms is not None and tip_ms > self._seen_from_ms and self._was_open(shard_id)

    def _was_open(self, shard_id: str) -> bool:
        """The shard was open at that time: what continues it has later records only. A closed one
        is read to its end.
        """
        if self._catalog.listed_ms <= self._seen_from_ms:
            self._catalog.expire()
            return False
        return not self._catalog.is_closed(shard_id)
