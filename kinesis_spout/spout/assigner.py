"""The shards of a spout's task. The assigner lists the shards, and assigns them in the order of the
lineage. It obeys a pause, reports records that expired unread, releases finished shards, and
detects that nothing is left to read.

Several tasks can share the shards of one stream. One of them is the shard list leader, which
creates the states of new shards and writes the shard list. The other tasks watch the list.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.application.session import ApplicationSession, close_open_plan
from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.shards.catalog import ShardCatalog
from kinesis_spout.shards.lineage import task_of
from kinesis_spout.shards.start_position import check_listed
from kinesis_spout.spout.config import UNTIL_NOW_MARGIN_MS
from kinesis_spout.spout.outages import SpoutPart
from kinesis_spout.spout.tracked_shard import TrackedShard
from state.errors import NotListerError, StoreUnavailableError
from state.position import Position
from state.process import this_process
from state.shard_state import by_the_time
from state.store.ownership import TaskShare
from state.store.runs import SPOUT, Run

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kinesis_spout.shards.lineage import ShardLineage
    from kinesis_spout.spout.emission import AssignedShard
    from kinesis_spout.spout.fetching import SpoutPrefetcher
    from kinesis_spout.spout.scheduler import SpoutScheduler
    from kinesis_spout.spout.services import SpoutContext
    from state.sequence_number import SequenceNumber
    from state.store.ownership import OwnershipStore

log = logging.getLogger("kinesis_spout")
MAX_UNCLEAN = 2  # after so many unclean ends in a row, the next spout isolates its deliveries
ISOLATED_RECORDS = 1_000  # isolated deliveries per unclean end, of which at most ten count
_MAX_OPENINGS = 10
LOAD_INTERVAL_S = 2.0
# Reader options that errors may name while the spout opens, and the matching settings of a spout.
_FIELDS = {"startingPosition": "starting_position", "wireFormat": "wire_format"}
ACCEPT_LOSS = (
    "set fail_on_data_loss to False (for kinesis-spout consume, pass --no-fail-on-data-loss)"
)


class UncleanStarts:
    """Counts how often in a row the spouts of this task have ended without being closed. The store
    has the count. A spout adds one when it opens, and sets the count to 0 when it is closed. A
    spout that has survived the records that may have ended earlier spouts sets it to 1, for itself.

    Blocks on the store. For one thread.
    """

    def __init__(self, scheduler: SpoutScheduler, ownership: OwnershipStore) -> None:
        self._scheduler = scheduler
        self._ownership = ownership
        self._count = 0
        self._emitted_before = 0  # the number of records that were emitted until isolation ended
        self._marks: dict[str, SequenceNumber] | None = None

    def begin(self) -> None:
        """Count this opening, before the first record is emitted."""
        before = self._ownership.read_unclean_starts()
        self._count = before + 1
        self._ownership.save_unclean_starts(self._count)
        if before < MAX_UNCLEAN:
            return
        with self._scheduler.changed:
            self._scheduler.rotation.isolate(ISOLATED_RECORDS * min(before, _MAX_OPENINGS))
        log.warning(
            "the last %d spouts of this task ended without being closed. A record may have "
            "crashed their processes. Therefore, the first records are delivered one at a time, "
            "and each attempt is counted before its delivery",
            before,
        )

    def on_commit(self) -> None:
        """Set the count to 1 after a commit, if this spout has survived the records that may have
        ended earlier spouts.
        """
        if self._count <= 1:
            return
        with self._scheduler.changed:
            has_outlived = self._has_outlived()
        if has_outlived:
            self._ownership.save_unclean_starts(1)
            self._count = 1

    def _has_outlived(self) -> bool:
        """Whether all records that may have been in flight when an earlier spout ended have an
        outcome: the records that it left unresolved, and as many new records as can have been in
        flight, or all new records.
        """
        rotation = self._scheduler.rotation
        emitted = self._scheduler.counts().emitted
        if rotation.isolation.is_on:
            self._emitted_before = emitted
        if rotation.isolation.is_on or rotation.has_restored(int(self._scheduler.now_ms())):
            return False
        if rotation.is_idle:
            return True
        if self._marks is None:
            if emitted - self._emitted_before >= ISOLATED_RECORDS:
                self._marks = rotation.marks()
            return False
        return rotation.has_passed(self._marks)


class SpoutTipWatch:
    """Reports the tips of the assigned shards to the catalog (`TipWatch`)."""

    def __init__(self, scheduler: SpoutScheduler) -> None:
        self._scheduler = scheduler

    def keep_only(self, shard_ids: Collection[str]) -> None:
        """Do nothing, because nothing is kept here."""

    def is_at_tip(self, shard_id: str) -> bool:
        return self.verified_ms(shard_id) is not None

    def verified_ms(self, shard_id: str) -> int | None:
        """Return the service's time when the shard was last at its tip, if all records up to there
        are emitted and none is pending; otherwise None.
        """
        with self._scheduler.changed:
            assigned = self._scheduler.assigned.get(shard_id)
            if assigned is None or assigned.shard.pending:
                return None
            return assigned.shard.tip_ms()


class SpoutAssigner:
    """Assigns the shards of an open spout. Blocks on the store and on Kinesis. One thread calls
    `open` and then `step`. The committer's thread calls `release`, which only takes the spout's
    lock.

    `session`: the application's session. `catalog`: the stream's shards. `starts`: counts unclean
    ends. `has_ended`: whether there is nothing left to read or to wait for.
    """

    def __init__(self, context: SpoutContext, fetching: SpoutPrefetcher) -> None:
        config, services = context.config, context.services
        self._context = context
        self._scheduler = context.scheduler
        self._fetching = fetching
        self.catalog = ShardCatalog(
            services.client,
            services.clock,
            SpoutTipWatch(context.scheduler),
            refresh_interval_s=config.shard_refresh_interval_s,
            fail_on_data_loss=config.fail_on_data_loss,
            identity=services.store.identity,
            shard_states=services.store.shard_states,
            shard_list=services.store.shard_list,
            only=frozenset(config.shards),
            accept_loss=ACCEPT_LOSS,
        )
        self.session = ApplicationSession(
            config.application or "",
            services.store,
            services.clock,
            self.catalog,
            task=TaskShare(config.task_index, config.total_tasks),
            is_closing=services.closing.is_set,
            on_pause=partial(context.scheduler.wake, "coordinate"),
        )
        self.starts = UncleanStarts(context.scheduler, services.store.ownership)
        self.has_ended = False
        self._until_ms: int | None = None  # set before the first shard is assigned
        self._has_assigned = False
        self._watch_fired = False  # set by a thread of the store
        self._loaded_s = services.clock.monotonic_s()

    # opening --------------------------------------------------------------------------------------
    def open(self) -> None:
        """Own the application, or this task's share of it; pin the start; assign the first shards
        unless the application is paused; count this opening.
        """
        config, store = self._context.config, self._context.services.store
        run = self.session.run
        reads, size = config.rate.own_limits()
        opened = Run(
            owner=this_process(self._context.services.clock.now_ms()),
            kind=SPOUT,
            session_timeout_ms=round(config.zookeeper_session_timeout_s * 1000),
            shards=config.shards,
            read_mode=config.read_mode,
            max_pending=config.max_pending,
            max_records=config.max_records,
            max_unresolved_per_shard=config.max_unresolved_per_shard,
            max_attempts=config.retry.retry_limit + 1,
            max_age_ms=config.retry.max_age_ms,
            message_timeout_ms=round((config.message_timeout_s or 0) * 1000),
            reads_per_second=reads,
            bytes_per_second=size,
        )
        self.session.claim(opened, timeout_s=config.owner_wait_s)
        try:
            # Before the states are loaded, because no task of the plan may publish afterwards.
            close_open_plan(store.plans)
            self.session.load()
            # After `load`, which sets the service's time, and before the first shard is assigned.
            now_ms = self.catalog.stream.now_ms()
            until_ms = self._until_ms = config.until_ms(now_ms)
            if until_ms is not None and until_ms > now_ms + UNTIL_NOW_MARGIN_MS:
                log.warning(
                    "the spout reads stream %s until %s, so it waits for that time before it ends. "
                    "Kinesis's clock now shows %s",
                    config.stream_ref.name,
                    Position.at_timestamp(until_ms),
                    Position.at_timestamp(now_ms),
                )
            store.shard_list.watch(self._on_watch)
            self.session.lead()
            self.session.pin_start(lambda: config.start, only=config.shards)
            self._assign_unless_paused()
            self.starts.begin()
        except Exception as exc:
            if isinstance(exc, ConfigError) and exc.option in _FIELDS:
                named = exc.respelt(_FIELDS[exc.option])
                run.failed(named)
                raise named from None
            run.failed(exc)
            raise

    # the loop -------------------------------------------------------------------------------------
    def step(self) -> float:
        """List the shards if a listing is due, and assign new shards unless the application is
        paused. Returns the seconds until the next step.
        """
        outages, changed = self._context.outages, self._scheduler.changed
        try:
            self.session.on_stored(self._assign_unless_paused)
            self.session.record_history()
            outages.succeeded(SpoutPart.LISTING)
        except (KinesisError, StoreUnavailableError) as exc:
            outages.failed(SpoutPart.LISTING, exc)
        except NotListerError:
            # This task's session was lost, and another task has become the leader.
            self.session.leads = False
        with changed:
            self.has_ended = self._has_assigned and self._all_done()
            if self.has_ended:
                changed.notify_all()
        return self._context.config.commit_interval_s

    def _assign_unless_paused(self) -> None:
        if self.session.is_paused():
            with self._scheduler.changed:
                self._scheduler.rotation.pause()
            self.session.keep_during_pause()
            return
        self._assign()
        if not self._has_assigned:
            # A shard of the list has no state yet while the leader begins.
            known = {*self.catalog.states, *self.catalog.stream.listing.shards}
            check_listed("shards", self._context.config.shards, known)
            self._has_assigned = True
        self._report_lapsed()
        self._resume()

    def _assign(self) -> None:
        """List the shards if a listing is due, and assign this task's readable shards."""
        catalog = self.catalog
        if self._context.config.total_tasks > 1 or not self.session.leads:
            self._load_other_tasks()
        if self.session.leads:
            catalog.refresh(self.session.pin)
            catalog.drop_missing_shards()
        else:
            catalog.follow()
        for shard_id in self.release():
            self._context.hooks.notify("shard_finished", shard_id)
        readable = [shard for shard in catalog.view.readable if self._is_new(shard)]
        catalog.check_retention(readable)
        endings = catalog.stream.endings()
        for shard_id in readable:
            self._start(shard_id, endings.get(shard_id))
        # Shards that were read to their ends and still have retries, for example after a restart.
        for shard_id, stored in catalog.states.items():
            if stored.state.end_was_read and stored.state.unresolved and self._is_new(shard_id):
                self._start(shard_id)

    # other tasks ----------------------------------------------------------------------------------
    def _on_watch(self) -> None:
        self._watch_fired = True
        self._scheduler.wake("coordinate")

    def _load_other_tasks(self) -> None:
        """Load the states that other tasks of the application have stored, and determine the
        leader: at once if the watch on the shard list fires, and at intervals, because the watch
        does not fire for the states of this task's parent shards.
        """
        now_s = self._context.services.clock.monotonic_s()
        fired, self._watch_fired = self._watch_fired, False
        if not fired and now_s - self._loaded_s < LOAD_INTERVAL_S:
            return
        self._loaded_s = now_s
        if not self.session.keep():
            return
        self.session.lead()
        known = self.catalog.states
        self.catalog.load()
        if fired or self.catalog.states.keys() != known.keys():
            self.catalog.stream.expire()

    # starting -------------------------------------------------------------------------------------
    def _is_new(self, shard_id: str) -> bool:
        """Whether the shard belongs to this task and is not assigned yet."""
        config = self._context.config
        if config.shards and shard_id not in config.shards:
            return False
        is_ours = task_of(shard_id, config.total_tasks) == config.task_index
        return is_ours and shard_id not in self._scheduler.assigned

    def _start(self, shard_id: str, ending_sequence: SequenceNumber | None = None) -> None:
        """Assign a shard, unless it was assigned, stored as finished and released in the meantime.
        `ending_sequence`: a closed shard's last sequence number, if known. A shard that was read to
        its end has no pages, only retries.
        """
        context, scheduler = self._context, self._scheduler
        with scheduler.changed:
            stored = self.catalog.states.get(shard_id)
            if shard_id in scheduler.assigned or stored is None or stored.state.finished:
                return
            state = self.catalog.verified_states([shard_id])[shard_id]
            pages = None
            if not state.end_was_read:
                pages = self._fetching.add(
                    state,
                    self.catalog.stream,
                    ending_sequence=ending_sequence,
                    until_ms=self._until_ms,
                )
            unresolved = scheduler.rotation.isolation.taken_back(shard_id, state.unresolved)
            shard = TrackedShard(
                replace(state, unresolved=by_the_time(unresolved, int(scheduler.now_ms()))),
                retry_policy=context.config.retry,
                random=context.services.random,
                pages=pages,
                whole=context.config.aggregated_records == "raw",
                retention_ms=self.catalog.stream.kept_ms(),
            )
            scheduler.add(shard).is_dirty = unresolved is not state.unresolved
        context.hooks.notify("shard_started", shard_id)

    # reading on -----------------------------------------------------------------------------------
    def _resume(self) -> None:
        """After a pause, check which records have expired, and continue to read. Otherwise a no-op.

        Raises `DataLossError` if records have expired and `fail_on_data_loss` is true.
        """
        scheduler = self._scheduler
        with scheduler.changed:
            if not scheduler.rotation.is_paused:
                return
            assigned = list(scheduler.assigned)
        unread = [one for one in assigned if not self.catalog.states[one].state.end_was_read]
        self.catalog.check_retention(unread)
        with scheduler.changed:
            self._acknowledge({one: self.catalog.loss.checked_until_ms.get(one) for one in unread})
            scheduler.rotation.resume()
            scheduler.changed.notify_all()
        scheduler.wake("fetch")

    def _report_lapsed(self) -> None:
        """Report shards whose records may have expired unread. No later record of such a shard is
        emitted before that. Raises `DataLossError` if `fail_on_data_loss` is true.
        """
        kept_ms = self.catalog.stream.kept_ms()
        with self._scheduler.changed:
            lapsed: dict[str, int] = {}
            for shard_id, assigned in self._scheduler.assigned.items():
                lapse = assigned.shard.pages.lapse
                lapse.retention_ms = kept_ms  # the retention may have been changed
                if lapse.lapsed_ms is not None:
                    lapsed[shard_id] = lapse.lapsed_ms
        if lapsed:
            self.catalog.loss.report_lapsed(lapsed, self.catalog.view.lineage.states)
            with self._scheduler.changed:
                self._acknowledge(dict.fromkeys(lapsed, self.catalog.stream.horizon_ms()))

    def _acknowledge(self, until_ms: Mapping[str, int | None]) -> None:
        """Continue to read shards whose losses were reported up to these times. Hold `changed`."""
        scheduler = self._scheduler
        for shard_id, reported_ms in until_ms.items():
            assigned = scheduler.assigned.get(shard_id)
            if assigned is not None and reported_ms is not None:
                assigned.shard.pages.lapse.acknowledge(reported_ms)
                assigned.is_dirty = True  # its end may have been reached
                scheduler.reschedule(assigned)

    # releasing ------------------------------------------------------------------------------------
    def release(self) -> list[str]:
        """Release shards, and return them: shards that are stored as finished, also by a commit
        that failed later on, and shards that the catalog or another task has given up because they
        are gone from the stream. It is also called before each commit, which would otherwise store
        a state over that of a shard that was given up.

        A shard that was given up is assigned again, without pages, if it has unresolved records.
        """
        with self._scheduler.changed:
            over = [
                shard_id
                for shard_id, assigned in self._scheduler.assigned.items()
                if self._is_over(shard_id, assigned)
            ]
            for shard_id in over:
                self._scheduler.remove(shard_id)
                self._fetching.remove(shard_id)
                self._context.outages.forget(shard_id)
        return over

    def _is_over(self, shard_id: str, assigned: AssignedShard) -> bool:
        stored, pages = self.catalog.states.get(shard_id), self._fetching.buffers.get(shard_id)
        if stored is None or stored.state.finished:
            return True  # without a state it was given up and forgotten
        # During a pause the shard is not read, so this task cannot know that it is gone.
        is_missed = pages is not None and (pages.gone or not assigned.shard.ended)
        return is_missed and stored.state.end_was_read

    # the end --------------------------------------------------------------------------------------
    def _all_done(self) -> bool:
        """Whether no record is unresolved, and either `max_records` were emitted or every shard is
        done. Call it only after the first shards were assigned. Hold `changed`.
        """
        config, scheduler = self._context.config, self._scheduler
        if any(assigned.shard.unresolved for assigned in scheduler.assigned.values()):
            return False
        if scheduler.rotation.is_full:
            return True
        if config.total_tasks > 1:
            return False  # the shards of other tasks may have children for this one
        if not config.shards and self.catalog.unfollowed():
            return False  # a shard has ended, and its children are not known yet
        lineage = self.catalog.view.wanted
        return all(self._is_done(shard_id, lineage) for shard_id in lineage.states)

    def _is_done(self, shard_id: str, lineage: ShardLineage) -> bool:
        """Whether the shard is finished, or read up to the time of `until`."""
        state = lineage.states[shard_id]
        if state.end_was_read or lineage.waits_for(shard_id):
            # A shard that waits has a parent that did not end: it is done when the parent is.
            return state.finished or not state.end_was_read
        until_ms, pages = self._until_ms, self._fetching.buffers.get(shard_id)
        assigned = self._scheduler.assigned.get(shard_id)
        if until_ms is None or pages is None or assigned is None or assigned.shard.open_run:
            return False
        if (final_page := pages.source.final_page) is not None:
            return assigned.shard.pages.last_page == final_page
        # `now` is the time of opening, so whatever is observed is later than that; any other time
        # must be known to have passed.
        passed_ms = 0 if self._context.config.until == "now" else until_ms
        tip_ms = assigned.shard.tip_ms()
        if tip_ms is None or tip_ms <= passed_ms:
            return False
        if self.catalog.listed_ms <= passed_ms:
            self.catalog.stream.expire()
            return False
        # Open by a listing made after that time: its children have later records only. A closed
        # shard is read to its end.
        return not self.catalog.stream.is_closed(shard_id)
