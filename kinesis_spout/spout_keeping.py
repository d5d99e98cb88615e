"""A spout's shards and their states: taken up as the lineage allows, stored at intervals, laid down when they are finished."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.config import nearest_name
from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.shard_assigner import is_ours
from kinesis_spout.shard_catalog import ShardCatalog
from kinesis_spout.spout_config import STATES_PER_WRITE
from kinesis_spout.spout_end import SpoutEnd
from kinesis_spout.start import pin_start
from kinesis_spout.tracked_shard import TrackedShard
from state.errors import ConflictError, StoreUnavailableError
from state.ownership import this_process
from state.plan import ShardEnd
from state.settle import child_states
from state.state_store import StateChange, StreamIdentity
from state.state_writing import write_states

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kinesis_spout.config import StreamRef
    from kinesis_spout.spout_context import SpoutContext
    from kinesis_spout.spout_core import ShardSeat, SpoutCore
    from kinesis_spout.spout_fetching import SpoutFetching
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState
    from state.state_store import StartPin

log = logging.getLogger("kinesis_spout")
MOST_CONFLICTS = 5  # in a row: another task may write a child's first state at the same time, but not for ever


@dataclass(frozen=True, slots=True)
class CatalogTerms:
    """A spout's settings as its catalog takes them."""

    stream: StreamRef
    shard_refresh_interval_ms: int
    fail_on_data_loss: bool
    states_per_write: int = STATES_PER_WRITE


class SpoutTips:
    """Where shards stand, for the catalog (`shard_catalog.TipWatch`)."""

    def __init__(self, core: SpoutCore) -> None:
        self._core = core

    def keep_only(self, shard_ids: Collection[str]) -> None:
        """Nothing is kept here."""

    def is_idle(self, shard_id: str) -> bool:
        return self.verified_ms(shard_id) is not None

    def is_behind(self, shard_id: str) -> bool:
        return self.verified_ms(shard_id) is None

    def verified_ms(self, shard_id: str) -> int | None:
        """The service's time when the shard was last seen at its tip with everything handed over and answered for."""
        seat = self._core.seats.get(shard_id)
        return None if seat is None or seat.shard.pending else seat.shard.tip_ms()


class SpoutKeeping:
    """One per open spout. All but `open` is called by one thread. Blocks on Kinesis and on the store."""

    def __init__(self, context: SpoutContext, fetching: SpoutFetching) -> None:
        self._config = config = context.config
        self._services = services = context.services
        self._store = services.store
        self._core = core = context.core
        self._fetching = fetching
        self._hooks = context.hooks
        self._changed = context.changed
        terms = CatalogTerms(config.stream_ref, round(config.shard_refresh_interval_s * 1000), config.fail_on_data_loss)
        self.catalog = ShardCatalog(
            terms, services.store, services.client, services.clock, SpoutTips(core), only=frozenset(config.shards)
        )
        self._end = SpoutEnd(config, core, self.catalog, fetching)
        self.has_ended = False
        self._pin: StartPin | None = None
        self._conflicts = 0

    def open(self) -> None:
        """Take the ownership, look whose state it is, pin the start, and take the first shards up."""
        clock = self._services.clock
        self._store.acquire(this_process(clock.now_ms()), timeout_s=self._config.owner_wait_s)
        summary = self.catalog.describe()
        self._end.open()
        self._store.bind_stream(StreamIdentity(arn=summary.arn, name=summary.name, created_ms=summary.created_ms))
        self.catalog.states = dict(self._store.load_states())
        pin = self._store.read_start()
        if pin is None:
            listed = [shard.shard_id for shard in self._services.client.list_shards()]
            pin = pin_start(self._store, self._config.start, self.catalog.service_now_ms(), listed)
        self._take_up(pin)
        self._refuse_unknown_shards()
        self._pin = pin

    def step(self) -> float:
        """Store what has changed, see what the service lists, take shards up."""
        self.commit()
        try:
            if self._pin is not None:
                self._take_up(self._pin)
        except KinesisError as exc:
            if not exc.retryable:
                raise
            self._hooks.error(exc)
        except StoreUnavailableError as exc:
            self._hooks.error(exc)
        with self._changed:
            self.has_ended = self._end.reached()
            if self.has_ended:
                self._changed.notify_all()
        return self._config.commit_interval_s

    # storing --------------------------------------------------------------------------------------------------
    def commit(self) -> bool:
        """Store every state that has changed. False when the store could not be reached: then it is all still to be done."""
        with self._changed:
            dirty = [seat for seat in self._core.seats.values() if seat.is_dirty]
            for seat in dirty:
                seat.is_dirty = False
            changes = {seat.shard.shard_id: change for seat in dirty if (change := self._change(seat)) is not None}
            children = self._children(changes)
        try:
            written = [*children, *changes.values()]
            write_states(self._store, self.catalog.states, written, states_per_write=STATES_PER_WRITE)
        except (StoreUnavailableError, ConflictError) as exc:
            self._put_off(dirty, exc)
            return False
        self._conflicts = 0
        for shard_id, change in changes.items():
            self._hooks.checkpointed(shard_id, change.after.checkpoint_text)
        self._lay_down(change.after for change in changes.values())
        return True

    def _change(self, seat: ShardSeat) -> StateChange | None:
        before = self.catalog.states[seat.shard.shard_id]
        after = seat.shard.snapshot()
        return None if after == before.state else StateChange(before=before, after=after)

    def _children(self, changes: dict[str, StateChange]) -> list[StateChange]:
        """First states of the shards that continue those whose ends are stored now: children first, so that none is missed."""
        states: dict[str, ShardState] = {}
        for shard_id, change in changes.items():
            page = self._core.seats[shard_id].shard.last_page
            if page is None or not change.after.end_was_read:
                continue
            self.catalog.expire()  # it has children, or will have
            end = ShardEnd(shard_id=shard_id, shard_end=True, tip_ms=page.service_time_ms, children=page.child_shards)
            known = self.catalog.states.keys() | states.keys()
            states |= {child.shard_id: child for child in child_states(end, known)}
        return [StateChange(before=None, after=state) for state in states.values()]

    def _put_off(self, dirty: list[ShardSeat], error: Exception) -> None:
        with self._changed:
            for seat in dirty:
                seat.is_dirty = True
        if isinstance(error, ConflictError):
            self._conflicts += 1
            if self._conflicts > MOST_CONFLICTS:
                raise error
            self.catalog.states = dict(self._store.load_states())
        self._hooks.error(error)

    # shards ---------------------------------------------------------------------------------------------------
    def _take_up(self, pin: StartPin) -> None:
        """List the shards when it is time to, and begin with those that may be read and are this task's."""
        self.catalog.refresh(pin)
        self.catalog.save_verified()
        self._leave_given_up()
        readable = [shard for shard in self.catalog.readable() if self._is_new(shard)]
        self.catalog.check_retention(readable)
        endings = self.catalog.endings()
        for shard_id in readable:
            self._begin(self.catalog.states[shard_id].state, endings.get(shard_id))
        for shard_id, stored in self.catalog.states.items():
            if stored.state.end_was_read and stored.state.unresolved and self._is_new(shard_id):
                self._begin(stored.state)

    def _refuse_unknown_shards(self) -> None:
        for shard_id in self._config.shards:
            if shard_id not in self.catalog.states:
                nearest = nearest_name(shard_id, self.catalog.states)
                hint = f"did you mean {nearest}?" if nearest else "name shards as the stream lists them"
                raise ConfigError.of("shards", f"is no shard of stream {self._config.stream_ref.name}; {hint}", shard_id)

    def _is_new(self, shard_id: str) -> bool:
        if self._config.shards and shard_id not in self._config.shards:
            return False
        return shard_id not in self._core.seats and is_ours(shard_id, self._config.task_index, self._config.total_tasks)

    def _begin(self, state: ShardState, ending_sequence: SequenceNumber | None = None) -> None:
        with self._changed:
            shard = TrackedShard(
                state,
                retry_policy=self._config.retry,
                random=self._services.random,
                pages=None if state.end_was_read else self._fetching.add(state, ending_sequence),
                refuse_aggregated=self._config.refuse_aggregated,
            )
            self._core.add(shard)
            self._changed.notify_all()
        self._hooks.shard_started(state.shard_id)

    def _leave_given_up(self) -> None:
        """A shard that is gone was given up by the catalog, which has said so: what is unresolved of it goes on from there."""
        for shard_id in list(self._core.seats):
            pages = self._fetching.get(shard_id)
            if pages is not None and pages.gone and self.catalog.states[shard_id].state.end_was_read:
                self._leave(shard_id)

    def _lay_down(self, states: Iterable[ShardState]) -> None:
        for state in states:
            if state.finished:
                self._leave(state.shard_id)

    def _leave(self, shard_id: str) -> None:
        with self._changed:
            self._core.remove(shard_id)
            self._fetching.remove(shard_id)
        self._hooks.shard_finished(shard_id)
