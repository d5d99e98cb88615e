"""Coordinates a spout's shards: assigns them as the lineage allows, commits their states at
intervals, and releases them when they are finished.

Several tasks can share the shards of one stream. One of them is the shard list leader: it
creates the states of new shards and writes the shard list, which the others watch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.aggregation.hash_range import HashRange
from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.config import nearest_name
from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.shards.assignment import is_ours
from kinesis_spout.shards.catalog import ShardCatalog
from kinesis_spout.shards.history_recorder import HistoryRecorder
from kinesis_spout.shards.open_plan import close_open_plan
from kinesis_spout.shards.pause import PauseWatch
from kinesis_spout.shards.run_recorder import RunRecorder
from kinesis_spout.shards.start_position import pin_start
from kinesis_spout.spout.completion import SpoutCompletion
from kinesis_spout.spout.config import STATES_PER_WRITE, UNTIL_NOW_MARGIN_MS
from kinesis_spout.spout.openings import SpoutOpenings
from kinesis_spout.spout.outages import SpoutPart
from kinesis_spout.spout.tracked_shard import TrackedShard
from state.errors import ConflictError, NotListerError, StoreUnavailableError
from state.plan import ShardReadResult
from state.position import Position
from state.process import this_process
from state.settle import children_first
from state.shard_state import by_the_time
from state.store.ownership import TaskShare
from state.store.runs import DEACTIVATED, FULL, NOT_TAKEN, SPOUT, Hold, Run
from state.store.shard_states import StateChange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kinesis_spout.config import StreamRef
    from kinesis_spout.spout.prefetcher import Prefetched, SpoutPrefetcher
    from kinesis_spout.spout.scheduler import AssignedShard
    from kinesis_spout.spout.services import SpoutContext
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState
    from state.store.identity import StartPin

log = logging.getLogger("kinesis_spout")
LOAD_INTERVAL_S = 2.0
# In a row. Another task may write the same child's first state, but not again and again.
MAX_CONFLICTS = 5
# Options of a reader that errors of an opening may name, as fields of the spout's settings.
_FIELDS = {"startingPosition": "starting_position", "wireFormat": "wire_format"}
ACCEPT_LOSS = "set fail_on_data_loss to False (kinesis-spout consume: give --no-fail-on-data-loss)"


@dataclass(frozen=True, slots=True)
class SpoutCatalogSettings:
    """The settings of a spout that its catalog needs (`CatalogSettings`)."""

    stream: StreamRef
    shard_refresh_interval_ms: int
    fail_on_data_loss: bool
    states_per_write: int = STATES_PER_WRITE


class SpoutTipWatch:
    """Tells the catalog where the assigned shards stand (`TipWatch`)."""

    def __init__(self, context: SpoutContext) -> None:
        self._scheduler = context.scheduler
        self._changed = context.changed

    def keep_only(self, shard_ids: Collection[str]) -> None:
        """A no-op: nothing is stored here."""

    def is_idle(self, shard_id: str) -> bool:
        return self.verified_ms(shard_id) is not None

    def is_behind(self, shard_id: str) -> bool:
        return self.verified_ms(shard_id) is None

    def verified_ms(self, shard_id: str) -> int | None:
        """The service's time when the shard was last at its tip, if all records up to there were
        emitted and none is pending; else None.
        """
        with self._changed:
            assigned = self._scheduler.assigned.get(shard_id)
            return None if assigned is None or assigned.shard.pending else assigned.shard.tip_ms()


class SpoutHold:
    """Why the program gets no record, though there may be some. One thread calls `look`.

    `deactivated_ms`: since when the program has the spout deactivated, in milliseconds since 1970;
    None while it is active. Any thread may set it.
    """

    def __init__(self, context: SpoutContext) -> None:
        self._scheduler = context.scheduler
        self._changed = context.changed
        self._clock = context.services.clock
        self._now_ms = context.now_ms
        self.deactivated_ms: int | None = None
        # The kind, the count of emissions, and since when.
        self._seen: tuple[str, int, int] | None = None

    def look(self) -> Hold | None:
        """The reason, at two looks in a row; None without one. Does no I/O."""
        if (since_ms := self.deactivated_ms) is not None:
            return Hold(kind=DEACTIVATED, since_ms=since_ms)
        now_ms = self._clock.now_ms()
        with self._changed:
            kind = self._kind()
            emitted = 0 if kind is None else self._scheduler.emitted
        if kind is None:
            self._seen = None
            return None
        # A busy spout is at its limit most of the time, and emits with each outcome. Most of the
        # rest of the time it has a record for its program, which asks for it soon.
        if self._seen is None or self._seen[:2] != (kind, emitted):
            self._seen = kind, emitted, now_ms
            return None
        return Hold(kind=kind, since_ms=self._seen[2])

    def _kind(self) -> str | None:
        """Hold `_changed`."""
        scheduler = self._scheduler
        if scheduler.at_limit and not (scheduler.is_full or scheduler.is_paused):
            return FULL
        return NOT_TAKEN if scheduler.may_emit(self._now_ms()) else None


class SpoutCoordinator:
    """One per open spout. Blocks on the store, and all but the commits on Kinesis.

    One thread calls `step`, which lists and assigns shards. Another one calls `commit_step`, so
    that Kinesis holds up no commit. Both write shard states, under the lock of the catalog. `wake`
    wakes the thread of `step`.
    """

    def __init__(
        self, context: SpoutContext, fetching: SpoutPrefetcher, wake: Callable[[], None]
    ) -> None:
        self._config = config = context.config
        self._services = services = context.services
        self._store = services.store
        self._scheduler = context.scheduler
        self._fetching = fetching
        self._hooks = context.hooks
        self._outages = context.outages
        self._changed = context.changed
        self._now_ms = context.now_ms
        settings = SpoutCatalogSettings(
            config.stream_ref,
            round(config.shard_refresh_interval_s * 1000),
            config.fail_on_data_loss,
        )
        self.catalog = ShardCatalog(
            settings,
            services.client,
            services.clock,
            SpoutTipWatch(context),
            identity=services.store.identity,
            shard_states=services.store.shard_states,
            shard_list=services.store.shard_list,
            only=frozenset(config.shards),
            accept_loss=ACCEPT_LOSS,
        )
        self._history = HistoryRecorder(services.store.history, services.clock)
        self._openings = SpoutOpenings(context)
        self.run = RunRecorder(services.store.runs, services.clock)
        self._hold = SpoutHold(context)
        self._pause = PauseWatch(
            services.store.pause, services.clock, config.application or "", wake
        )
        self._has_assigned = False
        self._end: SpoutCompletion | None = None
        self._until_ms: int | None = None
        self.has_ended = False
        self._pin: StartPin | None = None
        self._conflicts = 0
        self._stored = 0  # of the records that were resolved, those that a commit has stored
        self._must_reload = False
        self._is_list_leader = False
        self._watch_fired = False
        self._loaded_s = services.clock.monotonic_s()
        self._wake = wake

    def open(self) -> None:
        """Acquire the ownership, check that the state is of this stream, pin the start, assign the
        first shards unless the application is paused, and count this opening.
        """
        self._acquire(self._config.owner_wait_s)
        try:
            self._open()
        except Exception as exc:
            if isinstance(exc, ConfigError) and exc.option in _FIELDS:
                named = exc.respelt(_FIELDS[exc.option])
                self.run.failed(named)
                raise named from None
            self.run.failed(exc)
            raise

    def _open(self) -> None:
        close_open_plan(self._store.plans)
        self.catalog.bind()
        # After `bind`, which tells the service's time, and before the first shard is assigned.
        now_ms = self.catalog.service_now_ms()
        self._until_ms = self._config.until_ms(now_ms)
        if self._until_ms is not None and self._until_ms > now_ms + UNTIL_NOW_MARGIN_MS:
            log.warning(
                "stream %s is read until %s, which is in the future of the service, whose clock "
                "says %s, so the spout waits for that time before it ends",
                self._config.stream_ref.name,
                Position.at_timestamp(self._until_ms),
                Position.at_timestamp(now_ms),
            )
        self._end = SpoutCompletion(
            self._config, self._scheduler, self.catalog, self._fetching, until_ms=self._until_ms
        )
        self.catalog.load()
        self._store.shard_list.watch(self._on_watch)
        self._pause.begin()
        self._is_list_leader = self._store.shard_list.try_lead()
        pin, client = self._store.identity.read_start(), self._services.client
        if pin is None:
            listed = client.list_shards()
            pin = pin_start(
                self._store.identity,
                self._config.start,
                self.catalog.service_now_ms(),
                listed,
                new_iterator=client.shard_iterator,
                only=self._config.shards,
            )
        if self._pause.look():
            self._stand_still()
        else:
            self._go_on(pin)
        self._openings.begin()
        self._pin = pin

    def step(self) -> float:
        """List the shards if it is time, and assign new ones; obey a pause. Returns the seconds
        until the next step.
        """
        try:
            if self._pause.look():
                self._stand_still()
            elif self._pin is not None:
                self._go_on(self._pin)
            self._record_history()
            self._outages.succeeded(SpoutPart.LISTING)
        except (KinesisError, StoreUnavailableError) as exc:
            self._outages.failed(SpoutPart.LISTING, exc)
        except ConflictError as exc:
            self._on_conflict(exc)
        except NotListerError:
            self._is_list_leader = (
                False  # this task's session was lost, and another task took the list over
            )
        with self._changed:
            end = self._end if self._has_assigned else None
            self.has_ended = end is not None and end.reached()
            if self.has_ended:
                self._changed.notify_all()
        return self._config.commit_interval_s

    def _record_history(self, *, at_once: bool = False) -> None:
        """Of the shards of all tasks, as this task has loaded their states last. A state that
        another task has stored since is ahead of that, never behind.
        """
        if self._is_list_leader:
            self._history.record(
                self.catalog.states,
                now_ms=self.catalog.known_now_ms(),
                retention_ms=self.catalog.retention_ms,
                at_once=at_once,
            )

    def list_soon(self) -> None:
        """List the shards at the next step, which comes at once. Any thread may call it."""
        self.catalog.expire()
        self._wake()

    # committing -----------------------------------------------------------------------------------
    def commit_step(self) -> float:
        """Commit. Returns the seconds until the next commit."""
        self.run.hold(self._hold.look())
        self.run.throttled(self._outages.throttled())
        self.run.refused_letters(self._outages.refused_letters)
        self.run.not_subscribed(self._outages.not_subscribed)
        self.run.failing_reads(self._outages.failing_reads())
        self.run.no_answers(self._outages.no_answers)
        if self.commit():
            try:
                with self.catalog.lock:
                    if not self._services.closing.is_set():  # the last commit has its own count
                        self._openings.on_commit()
            except StoreUnavailableError as exc:
                self._hooks.error(exc)
            except ConflictError as exc:
                self._on_conflict(exc)
        return self._config.commit_interval_s

    def commit(self) -> bool:
        """Store every state that has changed. False when it failed: they are stored later."""
        try:
            with self.catalog.lock:
                self._reload()
                released = self._release_given_up()
                dirty, changes = self._save_changes()
        except StoreUnavailableError as exc:
            self._outages.failed(SpoutPart.COMMIT, exc)
            return False
        except ConflictError as exc:
            self._on_conflict(exc)
            return False
        for shard_id, change in changes.items():
            self._hooks.checkpointed(shard_id, change.after.checkpoint_text)
        released += self._release_finished(dirty)
        for shard_id in released:
            self._hooks.shard_finished(shard_id)
        if released or any(change.after.end_was_read for change in changes.values()):
            self._wake()  # there may be children to assign, or nothing left to read
        return True

    def _save_changes(self) -> tuple[list[AssignedShard], dict[str, StateChange]]:
        """Store what has changed. Returns the shards that were dirty, and the changes by shard. The
        caller holds the catalog's lock.
        """
        with self._changed:
            dirty = [
                assigned for assigned in self._scheduler.assigned.values() if assigned.is_dirty
            ]
            # Cleared before the write: an outcome that comes during it makes the shard dirty again.
            for assigned in dirty:
                assigned.is_dirty = False
            changes = {
                assigned.shard.shard_id: change
                for assigned in dirty
                if (change := self._change(assigned)) is not None
            }
            ends = self._ends(changes)
            careful = self._scheduler.careful
            with_outcome = careful is not None and careful.has_outcome
            resolved = self._scheduler.resolved
        try:
            written = children_first(
                changes.values(),
                ends,
                self.catalog.states.keys(),
                tracked_since_ms=self._tracked_since_ms(),
            )
            self.catalog.save(written)
        except (StoreUnavailableError, ConflictError):
            with self._changed:
                for assigned in dirty:
                    assigned.is_dirty = True
            raise
        self._conflicts = 0
        self._outages.succeeded(SpoutPart.COMMIT)
        if careful is not None:
            with self._changed:
                careful.on_commit(with_outcome=with_outcome)
                self._changed.notify_all()
        self._stored = resolved
        return dirty, changes

    @property
    def not_stored(self) -> int:
        """How many records were acked or dead-lettered since the last commit."""
        with self._changed:
            return self._scheduler.resolved - self._stored

    def commit_last(self, *, in_order: bool) -> bool:
        """Commit at the end, and note it as an orderly one. Returns whether it succeeded. Conflicts
        are retried at once, as there is no later commit; an outage of the store is not waited for.
        """
        if in_order:
            with self._changed:
                self._scheduler.withdraw()
        for _ in range(MAX_CONFLICTS):
            before = self._conflicts
            if self.commit():
                if in_order:
                    self._end_openings()
                    self._record_history(at_once=True)
                return True
            if self._conflicts == before:
                break
        return False

    def deactivated(self, since_ms: int | None) -> None:
        """The program has deactivated the spout, or activated it (None). Any thread may call it."""
        self._hold.deactivated_ms = since_ms

    def _end_openings(self) -> None:
        try:
            with self.catalog.lock:
                self._openings.end()
        except (StoreUnavailableError, ConflictError) as exc:
            self._hooks.error(exc)

    def _change(self, assigned: AssignedShard) -> StateChange | None:
        """The change to store, or None.

        A later `verified_until_ms` alone is not stored here: the catalog does that at longer
        intervals (`ShardCatalog.save_verified`).
        """
        before = self.catalog.states[assigned.shard.shard_id]
        after = assigned.shard.snapshot()
        known_ms = before.state.verified_until_ms
        is_same = replace(after, verified_until_ms=known_ms) == before.state
        # An earlier one is that of a shard that is read for the first time.
        is_earlier = (after.verified_until_ms or 0) < (known_ms or 0)
        return None if is_same and not is_earlier else StateChange(before=before, after=after)

    def _ends(self, changes: Mapping[str, StateChange]) -> list[ShardReadResult]:
        """The ends of the shards whose states now say that they ended, with their children."""
        ends = []
        for shard_id, change in changes.items():
            page = self._scheduler.assigned[shard_id].shard.pages.last_page
            if page is None or not change.after.end_was_read:
                continue
            self.catalog.expire()  # a shard ends by a split or a merge: list its children
            ends.append(
                ShardReadResult(
                    shard_id=shard_id,
                    at_shard_end=True,
                    tip_ms=page.service_time_ms,
                    children=page.child_shards,
                )
            )
        return ends

    def _tracked_since_ms(self) -> int | None:
        return None if self._pin is None else self.catalog.tracked_since_ms(self._pin)

    def _on_conflict(self, error: ConflictError) -> None:
        """Another task has written a state that this one was about to write: a child's first state,
        or that a shard is given up.
        """
        self._conflicts += 1
        if self._conflicts > MAX_CONFLICTS:
            raise error
        self._must_reload = True

    def _reload(self) -> None:
        """Load all states after a conflict. Raises while the store does not answer, and is called
        again.
        """
        with self.catalog.lock:
            if self._must_reload:
                self.catalog.load()
                self._must_reload = False

    # pause ----------------------------------------------------------------------------------------
    def _stand_still(self) -> None:
        """The application is paused: emit and fetch nothing, and keep the ownership. Outcomes are
        committed.
        """
        with self._changed:
            self._scheduler.pause()
        self._pause.hold(self.keep_ownership)

    def _go_on(self, pin: StartPin) -> None:
        """Assign shards. After a pause, read on once it is known which records it has cost."""
        self._assign(pin)
        if not self._has_assigned:
            self._refuse_unknown_shards()
            self._has_assigned = True
        self._report_lapsed()
        with self._changed:
            if not self._scheduler.is_paused:
                return
            assigned = list(self._scheduler.assigned)
        self.catalog.check_retention(
            [one for one in assigned if not self.catalog.states[one].state.end_was_read]
        )
        with self._changed:
            self._excuse(assigned)
            self._scheduler.resume()
            self._changed.notify_all()
        self._fetching.wake()

    def _report_lapsed(self) -> None:
        """Report shards of which records may have expired before they were read. No later record of
        them is emitted before.
        """
        with self._changed:
            lapsed = []
            for shard_id, assigned in self._scheduler.assigned.items():
                lapse = assigned.shard.pages.lapse
                lapse.retention_ms = self.catalog.retention_ms  # it may have been changed
                if lapse.lapsed_ms is not None:
                    lapsed.append(shard_id)
        if lapsed:
            self.catalog.report_lapsed(lapsed)
            with self._changed:
                self._excuse(lapsed)
                self._changed.notify_all()

    def _excuse(self, shard_ids: Sequence[str]) -> None:
        """Read on behind what was reported. Hold `_changed`."""
        for shard_id in shard_ids:
            assigned = self._scheduler.assigned.get(shard_id)
            if assigned is not None and self.catalog.retention_ms is not None:
                horizon_ms = self.catalog.service_now_ms() - self.catalog.retention_ms
                assigned.shard.pages.lapse.acknowledge(horizon_ms)
                assigned.is_dirty = True  # its end may have been reached
                self._scheduler.reschedule(assigned)

    def keep_ownership(self) -> bool:
        """Check that the ownership is still ours: the session may have lapsed, and another process
        may have taken over, which raises. False while it is being released.
        """
        with self.catalog.lock:
            if self._services.closing.is_set():
                return False
            self._acquire(0.0)
            return True

    # shards ---------------------------------------------------------------------------------------
    def _assign(self, pin: StartPin) -> None:
        """List the shards if it is time, and assign the readable ones that are this task's."""
        self._reload()
        if self._config.total_tasks > 1 or not self._is_list_leader:
            self._follow_tasks()
        if self._is_list_leader:
            self.catalog.refresh(pin)
            self.catalog.give_up_vanished()
        else:
            self.catalog.follow()
        self.catalog.save_verified()
        for shard_id in self._release_given_up():
            self._hooks.shard_finished(shard_id)
        readable = [shard for shard in self.catalog.readable() if self._is_new(shard)]
        self.catalog.check_retention(readable)
        endings = self.catalog.endings()
        for shard_id in readable:
            self._start(shard_id, endings.get(shard_id))
        # Shards that ended and still have retries, as after a restart: no page is read of them.
        for shard_id, stored in self.catalog.states.items():
            if stored.state.end_was_read and stored.state.unresolved and self._is_new(shard_id):
                self._start(shard_id)

    def _follow_tasks(self) -> None:
        """Load the states that other tasks have stored: where the parents of our shards stand, and
        which shards there are.

        At once when the watch on the shard list fires; else at intervals, because the watch does
        not fire for states.
        """
        now_s = self._services.clock.monotonic_s()
        fired, self._watch_fired = self._watch_fired, False
        if not fired and now_s - self._loaded_s < LOAD_INTERVAL_S:
            return
        self._loaded_s = now_s
        if not self.keep_ownership():
            return
        self._is_list_leader = self._store.shard_list.try_lead()
        known = self.catalog.states
        self.catalog.load()
        if fired or self.catalog.states.keys() != known.keys():
            self.catalog.expire()

    def _acquire(self, timeout_s: float) -> None:
        config = self._config
        share = TaskShare(config.task_index, config.total_tasks)
        owner, (reads, size) = this_process(self._services.clock.now_ms()), config.rate.own_limits()
        self._store.ownership.acquire(owner, timeout_s=timeout_s, task=share)
        self.run.begin(
            Run(
                owner=owner,
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
        )

    def _on_watch(self) -> None:
        """The watch on the shard list fires. Called from a thread of the store."""
        self._watch_fired = True
        self._wake()

    def _refuse_unknown_shards(self) -> None:
        for shard_id in self._config.shards:
            if shard_id not in self.catalog.states:
                nearest = nearest_name(shard_id, self.catalog.states)
                hint = (
                    f"did you mean {nearest}?"
                    if nearest
                    else "name shards as the stream lists them"
                )
                raise ConfigError.of(
                    "shards",
                    f"is not a shard of stream {self._config.stream_ref.name}; {hint}",
                    shard_id,
                )

    def _is_new(self, shard_id: str) -> bool:
        if self._config.shards and shard_id not in self._config.shards:
            return False
        return shard_id not in self._scheduler.assigned and is_ours(
            shard_id, self._config.task_index, self._config.total_tasks
        )

    def _start(self, shard_id: str, ending_sequence: SequenceNumber | None = None) -> None:
        """Assign a shard, unless it was assigned, stored as finished and released meanwhile."""
        with self._changed:
            stored = self.catalog.states.get(shard_id)
            if shard_id in self._scheduler.assigned or stored is None or stored.state.finished:
                return
            state = self.catalog.verified_states([shard_id])[shard_id]
            unresolved = by_the_time(state.unresolved, self._now_ms())
            shard = TrackedShard(
                replace(state, unresolved=unresolved),
                retry_policy=self._config.retry,
                random=self._services.random,
                pages=None if state.end_was_read else self._add_pages(state, ending_sequence),
                whole=self._config.aggregated_records == "raw",
                retention_ms=self.catalog.retention_ms,
            )
            self._scheduler.add(shard)
            self._changed.notify_all()
        self._hooks.shard_started(shard_id)

    def _add_pages(self, state: ShardState, ending_sequence: SequenceNumber | None) -> Prefetched:
        return self._fetching.add(
            state,
            ending_sequence=ending_sequence,
            until_ms=self._until_ms,
            unpacker=self.new_unpacker(state.shard_id, is_first=True),
        )

    def new_unpacker(self, shard_id: str, *, is_first: bool = False) -> Unpacker:
        """Unpacks the shard's aggregates. Asks no service: the shard's hash keys are those of the
        last listing that has it. `is_first`: for first deliveries, and so logs what is left out.
        """

        def hash_range() -> HashRange | None:
            found = self.catalog.hash_key_ranges().get(shard_id)
            return None if found is None else HashRange(*found)

        stream = self._config.stream_ref.name
        return Unpacker(hash_range, f"shard {shard_id} of stream {stream}" if is_first else "")

    def _release_given_up(self) -> list[str]:
        """Release the shards that the catalog, or another task, has given up because they are gone
        from the service. Returns them. Also before each commit, which would else store what is
        given up. A shard that is not read, as during a pause, has not been missed here.

        Their unresolved records are assigned again, without pages, by `_assign`.
        """
        with self._changed:
            gone = [
                shard_id
                for shard_id, assigned in self._scheduler.assigned.items()
                if self._is_given_up(shard_id, assigned)
            ]
            self._release(gone)
        return gone

    def _is_given_up(self, shard_id: str, assigned: AssignedShard) -> bool:
        stored, pages = self.catalog.states.get(shard_id), self._fetching.get(shard_id)
        if stored is None:
            return True  # given up, and forgotten since
        is_missed = pages is not None and (pages.gone or not assigned.shard.ended)
        return is_missed and stored.state.end_was_read

    def _release_finished(self, dirty: Iterable[AssignedShard]) -> list[str]:
        """Release those of the shards that are stored as finished, by this commit or by one before
        it that failed later on. Returns them.
        """
        with self._changed:
            finished = [
                one.shard.shard_id
                for one in dirty
                if not one.is_released and self.catalog.states[one.shard.shard_id].state.finished
            ]
            self._release(finished)
        return finished

    def _release(self, shard_ids: Iterable[str]) -> None:
        for shard_id in shard_ids:
            self._scheduler.remove(shard_id)
            self._fetching.remove(shard_id)
            self._outages.forget(shard_id)
