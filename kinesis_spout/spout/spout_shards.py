"""The shards of a spout's task: how one begins to be read, what a pause or a late read has cost,
when one is released, and when nothing is left to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.aggregation.hash_range import HashRange
from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.shards.assignment import is_ours
from kinesis_spout.spout.tracked_shard import TrackedShard
from state.shard_state import by_the_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesis_spout.shards.catalog import ShardCatalog
    from kinesis_spout.shards.lineage import ShardLineage
    from kinesis_spout.spout.emission import AssignedShard
    from kinesis_spout.spout.prefetcher import SpoutPrefetcher
    from kinesis_spout.spout.services import SpoutContext
    from state.sequence_number import SequenceNumber


class SpoutShards:
    """One per open spout. Any thread may call it. It blocks on Kinesis where `resume` and
    `report_lapsed` report a loss, else only on the spout's lock.

    `until_ms`: up to when the spout reads (service time); None: no limit. Known before the first
    shard starts.
    """

    def __init__(
        self, context: SpoutContext, catalog: ShardCatalog, fetching: SpoutPrefetcher
    ) -> None:
        self.until_ms: int | None = None
        self._context = context
        self._catalog = catalog
        self._fetching = fetching

    # starting -------------------------------------------------------------------------------------
    def is_new(self, shard_id: str) -> bool:
        """Whether the shard is this task's, and is not assigned."""
        config = self._context.config
        if config.shards and shard_id not in config.shards:
            return False
        return shard_id not in self._context.scheduler.assigned and is_ours(
            shard_id, config.task_index, config.total_tasks
        )

    def start(self, shard_id: str, ending_sequence: SequenceNumber | None = None) -> None:
        """Assign a shard, unless it was assigned, stored as finished and released meanwhile.
        `ending_sequence`: of a closed shard, if it is known. A shard that has ended has no pages,
        only retries.
        """
        context, scheduler = self._context, self._context.scheduler
        with context.changed:
            stored = self._catalog.states.get(shard_id)
            if shard_id in scheduler.assigned or stored is None or stored.state.finished:
                return
            state = self._catalog.verified_states([shard_id])[shard_id]
            pages = None
            if not state.end_was_read:
                pages = self._fetching.add(
                    state,
                    ending_sequence=ending_sequence,
                    until_ms=self.until_ms,
                    unpacker=self.new_unpacker(shard_id, is_first=True),
                )
            shard = TrackedShard(
                replace(state, unresolved=by_the_time(state.unresolved, context.now_ms())),
                retry_policy=context.config.retry,
                random=context.services.random,
                pages=pages,
                whole=context.config.aggregated_records == "raw",
                retention_ms=self._catalog.stream.retention_ms,
            )
            scheduler.add(shard)
        context.hooks.shard_started(shard_id)

    def new_unpacker(self, shard_id: str, *, is_first: bool = False) -> Unpacker:
        """Unpacks the shard's aggregates. Asks no service: the shard's hash keys are those of the
        last listing that has it. `is_first`: for first deliveries, and so logs what is left out.
        """

        def hash_range() -> HashRange | None:
            found = self._catalog.stream.hash_key_ranges().get(shard_id)
            return None if found is None else HashRange(*found)

        stream = self._context.config.stream_ref.name
        return Unpacker(hash_range, f"shard {shard_id} of stream {stream}" if is_first else "")

    # reading on -----------------------------------------------------------------------------------
    def resume(self) -> None:
        """After a pause, read on once it is known which records it has cost; else a no-op.

        Raises `DataLossError` where `fail_on_data_loss` is true.
        """
        context, scheduler = self._context, self._context.scheduler
        with context.changed:
            if not scheduler.is_paused:
                return
            assigned = list(scheduler.assigned)
        self._catalog.check_retention(
            [one for one in assigned if not self._catalog.states[one].state.end_was_read]
        )
        with context.changed:
            self._acknowledge(assigned)
            scheduler.resume()
        scheduler.wake("fetch")

    def report_lapsed(self) -> None:
        """Report shards of which records may have expired before they were read. No later record of
        them is emitted before. Raises `DataLossError` where `fail_on_data_loss` is true.
        """
        with self._context.changed:
            lapsed = []
            for shard_id, assigned in self._context.scheduler.assigned.items():
                lapse = assigned.shard.pages.lapse
                lapse.retention_ms = self._catalog.stream.retention_ms  # it may have been changed
                if lapse.lapsed_ms is not None:
                    lapsed.append(shard_id)
        if lapsed:
            self._catalog.report_lapsed(lapsed)
            with self._context.changed:
                self._acknowledge(lapsed)

    def _acknowledge(self, shard_ids: Sequence[str]) -> None:
        """Read on behind what was reported. Hold `changed`."""
        stream, scheduler = self._catalog.stream, self._context.scheduler
        for shard_id in shard_ids:
            assigned = scheduler.assigned.get(shard_id)
            if assigned is not None and stream.retention_ms is not None:
                assigned.shard.pages.lapse.acknowledge(stream.now_ms() - stream.retention_ms)
                assigned.is_dirty = True  # its end may have been reached
                scheduler.reschedule(assigned)

    # releasing ------------------------------------------------------------------------------------
    def release_given_up(self) -> list[str]:
        """Release the shards that the catalog, or another task, has given up because they are gone
        from the service. Returns them. Also before each commit, which would else store what is
        given up. A shard that is not read, as during a pause, has not been missed here.

        Their unresolved records are assigned again, without pages.
        """
        with self._context.changed:
            gone = [
                shard_id
                for shard_id, assigned in self._context.scheduler.assigned.items()
                if self._is_given_up(shard_id, assigned)
            ]
            self._release(gone)
        return gone

    def _is_given_up(self, shard_id: str, assigned: AssignedShard) -> bool:
        stored, pages = self._catalog.states.get(shard_id), self._fetching.get(shard_id)
        if stored is None:
            return True  # given up, and forgotten since
        is_missed = pages is not None and (pages.buffer.gone or not assigned.shard.ended)
        return is_missed and stored.state.end_was_read

    def release_finished(self, dirty: Iterable[AssignedShard]) -> list[str]:
        """Release those of the shards that are stored as finished, by this commit or by one before
        it that failed later on. Returns them.
        """
        states = self._catalog.states
        with self._context.changed:
            finished = [
                one.shard.shard_id
                for one in dirty
                if not one.is_released and states[one.shard.shard_id].state.finished
            ]
            self._release(finished)
        return finished

    def _release(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            self._context.scheduler.remove(shard_id)
            self._fetching.remove(shard_id)
            self._context.outages.forget(shard_id)

    # the end --------------------------------------------------------------------------------------
    def all_done(self) -> bool:
        """Whether no record is unresolved, and either `max_records` were emitted or every shard is
        done. Only after the first shards were assigned. Hold `changed`.
        """
        config, scheduler = self._context.config, self._context.scheduler
        if config.total_tasks > 1 or any(
            assigned.shard.unresolved for assigned in scheduler.assigned.values()
        ):
            return False
        if scheduler.rotation.is_full:
            return True
        if not config.shards and self._catalog.unfollowed():
            return False  # a shard has ended, and its children are not known yet
        lineage = self._catalog.wanted()
        return all(self._is_done(shard_id, lineage) for shard_id in lineage.states)

    def _is_done(self, shard_id: str, lineage: ShardLineage) -> bool:
        """Whether the shard is finished, or read up to `until_ms`."""
        state = lineage.states[shard_id]
        if state.end_was_read or lineage.waits_for(shard_id):
            # A shard that waits has a parent that did not end: it is done when the parent is.
            return state.finished or not state.end_was_read
        until_ms, pages = self.until_ms, self._fetching.get(shard_id)
        assigned = self._context.scheduler.assigned.get(shard_id)
        if until_ms is None or pages is None or assigned is None or assigned.shard.open_run:
            return False
        if (final_page := pages.getter.final_page) is not None:
            return assigned.shard.pages.last_page == final_page
        # `now` is the time of opening, so whatever is observed is later than that; any other time
        # must be known to have passed.
        passed_ms = 0 if self._context.config.until == "now" else until_ms
        tip_ms = assigned.shard.tip_ms()
        if tip_ms is None or tip_ms <= passed_ms:
            return False
        if self._catalog.listed_ms <= passed_ms:
            self._catalog.stream.expire()
            return False
        # Open by a listing made after that time: its children have later records only. A closed
        # shard is read to its end.
        return not self._catalog.stream.is_closed(shard_id)
