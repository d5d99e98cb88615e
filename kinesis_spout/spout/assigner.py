"""Lists a spout's shards and assigns them, as the lineage allows; obeys a pause.

Several tasks can share the shards of one stream. One of them is the shard list leader: it
creates the states of new shards and writes the shard list, which the others watch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_spout.application.open_plan import close_open_plan
from kinesis_spout.application.session import ApplicationSession
from kinesis_spout.config import nearest_name
from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.shards.catalog import ShardCatalog
from kinesis_spout.spout.config import UNTIL_NOW_MARGIN_MS
from kinesis_spout.spout.outages import SpoutPart
from kinesis_spout.spout.spout_shards import SpoutShards
from kinesis_spout.spout.unclean_starts import UncleanStarts
from state.errors import NotListerError, StoreUnavailableError
from state.position import Position
from state.process import this_process
from state.store.ownership import TaskShare
from state.store.runs import SPOUT, Run

if TYPE_CHECKING:
    from collections.abc import Collection

    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.prefetcher import SpoutPrefetcher
    from kinesis_spout.spout.services import SpoutContext

log = logging.getLogger("kinesis_spout")
LOAD_INTERVAL_S = 2.0
# Options of a reader that errors of an opening may name, as fields of the spout's settings.
_FIELDS = {"startingPosition": "starting_position", "wireFormat": "wire_format"}
ACCEPT_LOSS = "set fail_on_data_loss to False (kinesis-spout consume: give --no-fail-on-data-loss)"


class SpoutTipWatch:
    """Tells the catalog where the assigned shards stand (`TipWatch`)."""

    def __init__(self, context: SpoutContext) -> None:
        self._context = context

    def keep_only(self, shard_ids: Collection[str]) -> None:
        """A no-op: nothing is stored here."""

    def is_at_tip(self, shard_id: str) -> bool:
        return self._tip_ms(shard_id, is_stored=False) is not None

    def verified_ms(self, shard_id: str) -> int | None:
        # The catalog stores it beside the position that is stored. After a crash, records from
        # there on are read again, and may have expired.
        return self._tip_ms(shard_id, is_stored=True)

    def _tip_ms(self, shard_id: str, *, is_stored: bool) -> int | None:
        """The service's time when the shard was last at its tip, if all records up to there were
        emitted and none is pending; else None. `is_stored`: and if its state is stored.
        """
        with self._context.changed:
            assigned = self._context.scheduler.assigned.get(shard_id)
            if assigned is None or assigned.shard.pending or (is_stored and assigned.is_dirty):
                return None
            return assigned.shard.tip_ms()


class SpoutAssigner:
    """One per open spout. Blocks on the store and on Kinesis. One thread calls `open`, and then
    `step`.

    `session`: of the application. `catalog`, `shards`: of the stream. `starts`: counts openings.
    `has_ended`: whether there is nothing left to read or to wait for.
    """

    def __init__(self, context: SpoutContext, fetching: SpoutPrefetcher) -> None:
        config, services = context.config, context.services
        self._context = context
        self.catalog = ShardCatalog(
            services.client,
            services.clock,
            SpoutTipWatch(context),
            stream_name=config.stream_ref.name,
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
            services.client,
            services.clock,
            self.catalog,
            task=TaskShare(config.task_index, config.total_tasks),
            is_closing=services.closing.is_set,
            on_pause=self._wake,
        )
        self.shards = SpoutShards(context, self.catalog, fetching)
        self.starts = UncleanStarts(context)
        self.has_ended = False
        self._has_assigned = False
        self._watch_fired = False  # set by a thread of the store
        self._loaded_s = services.clock.monotonic_s()

    # opening --------------------------------------------------------------------------------------
    def open(self) -> None:
        """Own the application, or this task's share; pin the start, assign the first shards unless
        the application is paused, and count this opening.
        """
        config, run = self._context.config, self.session.run
        now_ms = self._context.services.clock.now_ms()
        self.session.claim(_run(config, now_ms), timeout_s=config.owner_wait_s)
        try:
            self._open()
        except Exception as exc:
            if isinstance(exc, ConfigError) and exc.option in _FIELDS:
                named = exc.respelt(_FIELDS[exc.option])
                run.failed(named)
                raise named from None
            run.failed(exc)
            raise

    def _open(self) -> None:
        config, store = self._context.config, self._context.services.store
        # Before the states are loaded: no task of the plan may publish after that.
        close_open_plan(store.plans)
        self.session.load()
        # After `load`, which tells the service's time, and before the first shard is assigned.
        now_ms = self.catalog.stream.now_ms()
        until_ms = self.shards.until_ms = config.until_ms(now_ms)
        if until_ms is not None and until_ms > now_ms + UNTIL_NOW_MARGIN_MS:
            log.warning(
                "stream %s is read until %s, which is in the future of the service, whose clock "
                "says %s, so the spout waits for that time before it ends",
                config.stream_ref.name,
                Position.at_timestamp(until_ms),
                Position.at_timestamp(now_ms),
            )
        store.shard_list.watch(self._on_watch)
        self.session.lead()
        self.session.pin_start(lambda: config.start, only=config.shards)
        self._assign_unless_paused()
        self.starts.begin()

    # the loop -------------------------------------------------------------------------------------
    def step(self) -> float:
        """List the shards if it is time, and assign new ones; obey a pause. Returns the seconds
        until the next step.
        """
        outages, changed = self._context.outages, self._context.changed
        try:
            self.session.on_stored(self._assign_unless_paused)
            self.session.record_history()
            outages.succeeded(SpoutPart.LISTING)
        except (KinesisError, StoreUnavailableError) as exc:
            outages.failed(SpoutPart.LISTING, exc)
        except NotListerError:
            # This task's session was lost, and another task took the list over.
            self.session.leads = False
        with changed:
            self.has_ended = self._has_assigned and self.shards.all_done()
            if self.has_ended:
                changed.notify_all()
        return self._context.config.commit_interval_s

    def list_soon(self) -> None:
        """List the shards at the next step, which comes at once. Any thread may call it."""
        self.catalog.stream.expire()
        self._wake()

    def _assign_unless_paused(self) -> None:
        if self.session.is_paused():
            self._context.scheduler.pause()
            self.session.keep_during_pause()
            return
        self._assign()
        if not self._has_assigned:
            _refuse_unknown_shards(self._context.config, self.catalog.states)
            self._has_assigned = True
        self.shards.report_lapsed()
        self.shards.resume()

    def _assign(self) -> None:
        """List the shards if it is time, and assign the readable ones that are this task's."""
        catalog, shards = self.catalog, self.shards
        if self._context.config.total_tasks > 1 or not self.session.leads:
            self._load_other_tasks()
        if self.session.leads:
            catalog.refresh(self.session.pin)
            catalog.drop_missing_shards()
        else:
            catalog.follow()
        catalog.save_verified()
        for shard_id in shards.release_given_up():
            self._context.hooks.shard_finished(shard_id)
        readable = [shard for shard in catalog.readable() if shards.is_new(shard)]
        catalog.check_retention(readable)
        endings = catalog.stream.endings()
        for shard_id in readable:
            shards.start(shard_id, endings.get(shard_id))
        # Shards that ended and still have retries, as after a restart: no page is read of them.
        for shard_id, stored in catalog.states.items():
            if stored.state.end_was_read and stored.state.unresolved and shards.is_new(shard_id):
                shards.start(shard_id)

    # other tasks ----------------------------------------------------------------------------------
    def _wake(self) -> None:
        self._context.scheduler.wake("coordinate")

    def _on_watch(self) -> None:
        self._watch_fired = True
        self._wake()

    def _load_other_tasks(self) -> None:
        """Load what other tasks of the application have stored, and find out who leads: at once
        when the watch on the shard list fires; else at intervals, because it does not fire for the
        states of our shards' parents.
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


def _run(config: SpoutConfig, now_ms: int) -> Run:
    reads, size = config.rate.own_limits()
    return Run(
        owner=this_process(now_ms),
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


def _refuse_unknown_shards(config: SpoutConfig, known: Collection[str]) -> None:
    for shard_id in config.shards:
        if shard_id not in known:
            nearest = nearest_name(shard_id, known)
            hint = f"did you mean {nearest}?" if nearest else "name shards as the stream lists them"
            raise ConfigError.of(
                "shards",
                f"is not a shard of stream {config.stream_ref.name}; {hint}",
                shard_id,
            )
