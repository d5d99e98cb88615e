"""The shard catalog: what the service lists, and what the store holds of each shard."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec

from kinesis_spout.clock import SteadyTime
from kinesis_spout.shards.data_loss import ACCEPT_LOSS, DataLossDetector
from kinesis_spout.shards.lineage import ShardLineage
from kinesis_spout.shards.start_position import new_shards
from state.shard_state import ShardState, given_up
from state.store.shard_states import StateChange, StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from kinesis_spout.clock import Clock
    from kinesis_spout.config import StreamRef
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
    from state.sequence_number import SequenceNumber
    from state.store.identity import IdentityStore, StartPin
    from state.store.shard_list import ShardListStore
    from state.store.shard_states import ShardStateStore

VERIFIED_SAVES_PER_RETENTION = 24
NEVER_S = float("-inf")
LISTED_LATE_MS = 60_000  # ListShards is eventually consistent: a new shard may be missing so long
# At most so long between two listings while one lacks a shard that must exist, or one that has
# retries.
RELIST_S = 10.0
# Two clocks that are read one after the other, and corrected in small steps, differ by less.
CLOCK_WAS_SET_MS = 1_000


class CatalogSettings(Protocol):
    """The settings that a catalog needs. Durations in milliseconds."""

    @property
    def stream(self) -> StreamRef: ...
    @property
    def shard_refresh_interval_ms(self) -> int: ...
    @property
    def fail_on_data_loss(self) -> bool: ...


class TipWatch(Protocol):
    """Observations of shards since their states were stored. In memory; may be lost."""

    def keep_only(self, shard_ids: Collection[str]) -> None:
        """Forget all other shards."""
        ...

    def is_idle(self, shard_id: str) -> bool:
        """Whether the shard was at its tip at the last observation."""
        ...

    def is_behind(self, shard_id: str) -> bool:
        """Whether the shard is known to have more to read."""
        ...

    def verified_ms(self, shard_id: str) -> int | None:
        """Service time of the last tip observed since the state was stored; None without one."""
        ...


@dataclass(frozen=True)
class _View:
    """What one listing and one mapping of states say. Each answer is computed once, because a
    driver that waits for records asks many times a second.
    """

    listing: tuple[ShardInfo, ...]
    states: Mapping[str, StoredState]
    only: Collection[str]

    @cached_property
    def lineage(self) -> ShardLineage:
        states = {shard: stored.state for shard, stored in self.states.items()}
        return ShardLineage.of(self.listing, states)

    @cached_property
    def wanted(self) -> ShardLineage:
        return self.lineage.among(self.only)

    @cached_property
    def readable(self) -> list[str]:
        return self.wanted.readable()

    @cached_property
    def unfollowed(self) -> list[str]:
        return self.lineage.unfollowed()


class ShardCatalog:
    """One per query. Blocks on Kinesis and on the store. For one thread at a time, except `save`,
    `load`, `expire` and reading `states`, which are for any thread.

    `states` caches what the store holds: a mapping that each load and each write replaces, so a
    reader needs no lock. `lock` is held around each load, and around each write of states together
    with what it is computed from. It is never held while Kinesis is called. `only`: the ids of the
    shards that are read; empty for all. Every listed shard gets a state, but the others are not
    missed when they are gone. `accept_loss`: see `DataLossDetector`.
    """

    def __init__(
        self,
        settings: CatalogSettings,
        client: KinesisClient,
        clock: Clock,
        watch: TipWatch,
        *,
        identity: IdentityStore,
        shard_states: ShardStateStore,
        shard_list: ShardListStore,
        only: Collection[str] = (),
        accept_loss: str = ACCEPT_LOSS,
    ) -> None:
        self.states: dict[str, StoredState] = {}
        self.lock = threading.RLock()
        self._settings = settings
        self._identity = identity
        self._shard_states = shard_states
        self._shard_list = shard_list
        self._client = client
        self._clock = clock
        self._watch = watch
        self._only = only
        self.loss = DataLossDetector(
            client,
            stream_name=settings.stream.name,
            fail_on_data_loss=settings.fail_on_data_loss,
            patience_s=settings.shard_refresh_interval_ms / 1000,
            only=only,
            accept_loss=accept_loss,
        )
        self._listing: tuple[ShardInfo, ...] = ()
        self._view = _View(self._listing, self.states, only)
        self._closed: dict[str, bool] = {}
        self._checked_ms: dict[str, int] = {}  # service time of each shard's last check_retention
        self._is_unjudged = False  # nobody has looked for vanished shards in the last listing
        self._was_active = False
        self._saved_list: tuple[str, ...] = ()
        self._gone: frozenset[str] = frozenset()
        self._listed_s = NEVER_S
        self._is_expired = False
        self.listed_ms = 0  # service time of the last listing
        self._relist_s = settings.shard_refresh_interval_ms / 1000
        self.retention_ms: int | None = None  # as of the last `describe`
        self._may_have_ignored_keys = False
        self._service_time = SteadyTime(clock, clock.now_ms())

    # listing --------------------------------------------------------------------------------------
    def describe(self) -> StreamSummary:
        """The stream's summary. Notes the retention and the service's time."""
        summary = self._client.describe()
        self.retention_ms = summary.retention_ms
        self._may_have_ignored_keys |= summary.may_have_ignored_keys
        self._service_time = SteadyTime(self._clock, summary.now_ms(self._clock.now_ms()))
        return summary

    def bind(self) -> StreamSummary:
        """`describe`, and bind the stored state to this stream if it is bound to none.

        Raises `StreamMismatchError` when the state belongs to another stream.
        """
        summary = self.describe()
        self._identity.bind(summary.identity)
        return summary

    def service_now_ms(self) -> int:
        """The service's time, in ms since 1970: what the last `describe` said, and what has passed
        since by the monotonic clock. Who sets this machine's clock does not change it.
        """
        return self._service_time.now_ms()

    def known_now_ms(self) -> int | None:
        """As `service_now_ms`; None while that may be too early, because this machine may have
        slept since the last `describe`.
        """
        has_slept = self._service_time.set_forward_ms() > CLOCK_WAS_SET_MS
        return None if has_slept else self.service_now_ms()

    def expire(self) -> None:
        """Make the next `refresh` list the shards: a shard has ended, so it has children. Any
        thread.
        """
        self._is_expired = True

    def refresh(self, pin: StartPin) -> bool:
        """List the shards again if the last listing is older than `shardRefreshInterval`. New
        shards get a state at once. Call `give_up_vanished` after it. Returns whether it listed.

        Raises `DataLossError` when a shard is gone that never had a state and `failOnDataLoss` is
        true, `StreamMismatchError` when the stream was deleted and created again meanwhile.
        """
        now_s = self._clock.monotonic_s()
        if not self._is_due(now_s):
            return False
        with self._listing_at(now_s):
            summary = self.bind()
            self._take(self._client.list_shards())
        self._was_active = is_active = summary.status == "ACTIVE"
        # Before the new shards get a state: afterwards they would look as if they had been tracked.
        self._check_never_read(pin, summary.retention_ms)
        with self.lock:
            fresh = new_shards(
                self._listing, self.shard_states(), pin, tracked_since_ms=self.tracked_since_ms(pin)
            )
            # After tracked_since_ms, which needs the time of the listing before this one.
            self.listed_ms = self.service_now_ms()
            self.save([StateChange(before=None, after=state) for state in fresh])
        self._save_list()
        self._watch.keep_only(self.states)
        self.loss.check_holes(self._listing, is_active=is_active, listed_s=now_s)
        if is_active:
            self._remove_tombstones(summary.retention_ms)
        self._is_unjudged = True
        is_late = self._check_gone(is_active=is_active) or bool(self.unfollowed())
        interval_s = self._settings.shard_refresh_interval_ms / 1000
        self._relist_s = min(interval_s, RELIST_S) if is_late else interval_s
        return True

    def follow(self) -> None:
        """List the shards at the same interval, for a process that is not the shard list leader: it
        writes neither states nor the list.
        """
        now_s = self._clock.monotonic_s()
        if self._is_due(now_s):
            with self._listing_at(now_s):
                summary = self.describe()
                self._take(self._client.list_shards())
            interval_s = self._settings.shard_refresh_interval_ms / 1000
            is_late = self._check_gone(is_active=summary.status == "ACTIVE")
            self._relist_s = min(interval_s, RELIST_S) if is_late else interval_s

    def tracked_since_ms(self, pin: StartPin) -> int:
        """The latest service time by which every shard was known to be tracked, that is, to have a
        state. A shard that is new now, and its records, may be as old as that.
        """
        # Every shard was tracked at the last listing of this process. The last listing of a
        # predecessor was not before its last read: reads are settled only after a listing.
        read_ms = [stored.state.verified_until_ms for stored in self.states.values()]
        known_ms = max([pin.time_ms, self.listed_ms, *(ms for ms in read_ms if ms is not None)])
        return min(known_ms - LISTED_LATE_MS, self.service_now_ms())

    def _save_list(self) -> None:
        """Write the list if it has changed: each write fires the other tasks' watches."""
        listed = tuple(shard.shard_id for shard in self._listing)
        if listed != self._saved_list:
            self._shard_list.save(listed)
            self._saved_list = listed

    # the cache ------------------------------------------------------------------------------------
    def save(self, changes: Sequence[StateChange]) -> None:
        """Store states. Any thread; hold `lock` from where the changes are computed."""
        if changes:
            with self.lock, self._replacing() as cache:
                self._shard_states.save(changes, cache=cache)

    def load(self) -> None:
        """Load all states. Any thread."""
        with self.lock:
            self.states = dict(self._shard_states.load())

    # views ----------------------------------------------------------------------------------------
    def shard_states(self) -> dict[str, ShardState]:
        """The cached states without their versions."""
        return dict(self.lineage().states)

    def verified_states(self, shards: Iterable[str]) -> dict[str, ShardState]:
        """The states of these shards, verified up to the last tips that were observed, for a plan
        that is made now.

        What had expired when `check_retention` looked was reported, so it counts as verified: a
        task is to find what expires between then and its read.
        """
        return {shard: self._as_checked(self.states[shard].state) for shard in shards}

    def lineage(self) -> ShardLineage:
        """The lineage of all shards. It does not follow later changes."""
        return self._now().lineage

    def wanted(self) -> ShardLineage:
        """The lineage of the shards that are read."""
        return self._now().wanted

    def readable(self) -> list[str]:
        """The shards to read now, in the order of their ids."""
        return list(self._now().readable)

    def unfollowed(self) -> list[str]:
        """Shards that were read to their ends and whose children are not known yet.

        Without those whose end was read so long before the last listing that the listing is
        complete about them: it will not show their children either.
        """
        late_ms = self.listed_ms - LISTED_LATE_MS
        view = self._now()  # one for both: another thread may replace the states
        return [
            shard
            for shard in view.unfollowed
            if (view.lineage.states[shard].verified_until_ms or 0) > late_ms
        ]

    def gone(self) -> frozenset[str]:
        """Shards with unresolved records of which nothing can be read any more: two listings of the
        ACTIVE stream, and all between them, left the shard out, and it did not answer.
        """
        return self._gone

    def endings(self) -> dict[str, SequenceNumber]:
        """The numbers at which closed shards were read to their ends."""
        return {
            shard.shard_id: last
            for shard in self._listing
            if (last := shard.last_sequence) is not None
        }

    def hash_key_ranges(self) -> dict[str, tuple[int, int]]:
        """The hash keys of the shards of the last listing, inclusive at both ends. Of none where no
        record is in a shard because of its key.
        """
        if self._may_have_ignored_keys:
            return {}
        return {shard.shard_id: shard.hash_key_range for shard in self._listing}

    def is_closed(self, shard_id: str) -> bool:
        """Whether the last listing shows the shard as closed."""
        return self._closed.get(shard_id, False)

    def closed(self) -> Mapping[str, bool]:
        """Whether each shard of the last listing is closed."""
        return self._closed

    def lag_ms(self) -> int:
        """Lag of the shard that is furthest behind, in milliseconds of arrival time; 0 at the
        tip.
        """
        return max(self.lags_ms().values(), default=0)

    def lags_ms(self) -> dict[str, int]:
        """The lag of each shard whose end was not read, as `lag_ms`."""
        now_ms = self.service_now_ms()
        return {
            shard_id: now_ms - (self._verified(stored.state).verified_until_ms or now_ms)
            if self._may_lag(stored.state)
            else 0
            for shard_id, stored in self.states.items()
            if not stored.state.end_was_read
        }

    def _may_lag(self, state: ShardState) -> bool:
        at_tip = state.at_tip and not self._watch.is_behind(state.shard_id)
        return not state.end_was_read and not at_tip and not self._watch.is_idle(state.shard_id)

    # retention ------------------------------------------------------------------------------------
    def check_retention(self, shards: Sequence[str]) -> None:
        """Report shards whose records may have expired unread, each once. A no-op before the first
        `describe`.

        Raises `DataLossError` where `failOnDataLoss` is true.
        """
        if self.retention_ms is not None:
            now_ms, states = self.service_now_ms(), self.states
            wanted = self.wanted()
            others = [
                one
                for one, state in wanted.states.items()
                if one in wanted.listed and not state.end_was_read
            ]
            self.loss.check_retention(
                shards,
                {shard: self._verified(states[shard].state) for shard in {*shards, *others}},
                now_ms=now_ms,
                retention_ms=self.retention_ms,
            )
            self._checked_ms |= dict.fromkeys(shards, now_ms)

    def report_lapsed(self, shards: Sequence[str]) -> None:
        """Report shards of which a task has found that records may have expired before it read
        them. Raises `DataLossError` where `failOnDataLoss` is true.
        """
        horizon_ms = self.service_now_ms() - (self.retention_ms or 0)
        self.loss.report_lapsed(shards, self.shard_states(), horizon_ms=horizon_ms)

    def save_verified(self) -> None:
        """Store the times at which idle shards were last seen at their tips, some 24 times per
        retention.
        """
        # Only probes see the tip of an idle shard, and settling stores nothing of it. Without this,
        # a restart would report an idle shard as unread for longer than the retention.
        if self.retention_ms is None:
            return
        step_ms = self.retention_ms // VERIFIED_SAVES_PER_RETENTION
        with self.lock:
            gained = [
                stored for stored in self.states.values() if self._gain_ms(stored.state) >= step_ms
            ]
            self.save(
                [
                    StateChange(before=stored, after=self._verified(stored.state))
                    for stored in gained
                ]
            )

    def _gain_ms(self, state: ShardState) -> int:
        return (self._watch.verified_ms(state.shard_id) or 0) - (state.verified_until_ms or 0)

    def _verified(self, state: ShardState) -> ShardState:
        """The state, verified up to the last tip that was observed."""
        observed_ms = self._watch.verified_ms(state.shard_id)
        known_ms = state.verified_until_ms
        if observed_ms is None or (known_ms is not None and known_ms >= observed_ms):
            return state
        return msgspec.structs.replace(state, verified_until_ms=observed_ms)

    def _as_checked(self, state: ShardState) -> ShardState:
        verified = self._verified(state)
        checked_ms = self._checked_ms.get(state.shard_id)
        if verified.verified_until_ms is None or self.retention_ms is None or checked_ms is None:
            return verified
        horizon_ms = checked_ms - self.retention_ms
        if horizon_ms <= verified.verified_until_ms:
            return verified
        return msgspec.structs.replace(verified, verified_until_ms=horizon_ms)

    # private --------------------------------------------------------------------------------------
    def _now(self) -> _View:
        # Listing and states are replaced, never changed: the same objects give the same view.
        listing, states = self._listing, self.states
        view = self._view
        if view.listing is not listing or view.states is not states:
            view = self._view = _View(listing, states, self._only)
        return view

    def _take(self, listing: tuple[ShardInfo, ...]) -> None:
        # A shard that is listed twice, open and closed, has been closed in between.
        closed: dict[str, bool] = {}
        for shard in listing:
            closed[shard.shard_id] = shard.is_closed or closed.get(shard.shard_id, False)
        self._listing, self._closed = listing, closed

    def _check_never_read(self, pin: StartPin, retention_ms: int) -> None:
        now_ms = self.service_now_ms()
        lineage = self.lineage()
        self.loss.check_never_read(
            lineage, pin, has_begun=self._has_begun, now_ms=now_ms, retention_ms=retention_ms
        )
        self._forget(self.loss.children_unobserved(lineage, horizon_ms=now_ms - retention_ms))

    def _has_begun(self) -> bool:
        """Whether the list was written: it is after the states of the shards in it. The first
        states are several writes, and a crash may come between them.
        """
        return bool(self._saved_list) or self._shard_list.read() is not None

    def _remove_tombstones(self, retention_ms: int) -> None:
        """Remove the states of finished shards that the service no longer lists: they would pile up
        for ever.
        """
        self._forget(self.lineage().removable(self.service_now_ms() - retention_ms))

    def give_up_vanished(self) -> None:
        """Give up the shards that the last listing proves to be gone before their ends were read.
        A no-op between two listings. No plan that has read of them may be unsettled.

        Raises `DataLossError` where `failOnDataLoss` is true.
        """
        if not self._is_unjudged:
            return
        gone = self.loss.vanished(
            self.wanted(),
            is_active=self._was_active,
            listed_s=self._listed_s,
            horizon_ms=self.service_now_ms() - (self.retention_ms or 0),
        )
        self._is_unjudged = False
        with self.lock:
            known = [self.states[shard] for shard in gone if shard in self.states]
            self.save([StateChange(before=one, after=given_up(one.state)) for one in known])

    def _check_gone(self, *, is_active: bool) -> bool:
        """Whether a shard with unresolved records is not listed and not proven gone."""
        wanted = self.wanted()
        self._gone = self.loss.gone_with_retries(
            wanted, is_active=is_active, listed_s=self._listed_s
        )
        return not self._gone.issuperset(wanted.unlisted_with_retries())

    def _forget(self, shards: Sequence[str]) -> None:
        with self.lock:
            known = [self.states[shard] for shard in shards if shard in self.states]
            if known:
                with self._replacing() as cache:
                    self._shard_states.remove(known, cache=cache)

    @contextmanager
    def _replacing(self) -> Iterator[dict[str, StoredState]]:
        """A copy of the cache for the store to update. It replaces the cache, also after an error:
        a part of the write may be done.
        """
        cache = dict(self.states)
        try:
            yield cache
        finally:
            self.states = cache

    def _is_due(self, now_s: float) -> bool:
        if self._is_expired or now_s - self._listed_s >= self._relist_s:
            return True
        # The machine may have slept, or the service has the same clock.
        return abs(self._service_time.set_forward_ms()) > CLOCK_WAS_SET_MS

    @contextmanager
    def _listing_at(self, now_s: float) -> Iterator[None]:
        """Note a listing, if the block succeeds. `expire` during the block asks for another one."""
        expired, self._is_expired = self._is_expired, False
        try:
            yield
        except BaseException:
            self._is_expired = self._is_expired or expired
            raise
        self._listed_s = now_s
