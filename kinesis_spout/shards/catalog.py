"""The shard catalog: Kinesis's description and listing of a stream's shards, the stored state of
each shard, the schedule of listings, and the service's time.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec

from kinesis_spout.clock import SteadyTime
from kinesis_spout.service.shard_info import HOUR_MS
from kinesis_spout.shards.data_loss import ACCEPT_LOSS, DataLossDetector, oldest_kept_ms
from kinesis_spout.shards.lineage import Listing, ShardLineage
from kinesis_spout.shards.start_position import new_shards
from state.moves import never_settling
from state.shard_state import ShardState, given_up
from state.store.shard_states import StateChange, StoredState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import HashRange, StreamSummary
    from state.plan import Plan
    from state.sequence_number import SequenceNumber
    from state.store.identity import IdentityStore, StartPin, StreamIdentity
    from state.store.shard_states import ShardListStore, ShardStateStore

# The longest time until the next listing if the last one lacks a shard that must exist or that has
# retries.
RELIST_S = 10.0
# Two clocks that are read one after the other and corrected in small steps differ by less than
# this.
CLOCK_WAS_SET_MS = 1_000


class ListedStream:
    """A stream as Kinesis describes and lists it. Methods that block on Kinesis say so. For one
    thread at a time; any thread may call `expire` and read attributes.

    - `listing`: the last listing.
    - `is_late`: whether the last listing lacks a shard that must exist, so that the next listing is
      due soon.
    - `retention_ms`: the retention at the last `describe`; None before it.
    """

    def __init__(
        self, client: KinesisClient, identity: IdentityStore, clock: Clock, *, interval_s: float
    ) -> None:
        self.listing = Listing()
        self.retention_ms: int | None = None
        self.client = client
        self._identity = identity
        self._known: StreamIdentity | None = None  # as it is stored
        self._clock = clock
        self._interval_s = interval_s
        self.is_late = False
        self._is_expired = False
        self._may_have_ignored_keys = False
        self._service_time = SteadyTime(clock, clock.now_ms())

    # describing -----------------------------------------------------------------------------------
    def describe(self, *, bind: bool = False) -> StreamSummary:
        """Return the stream's summary, and note the retention and the service's time. Blocks on
        Kinesis.

        `bind`: bind the stored state to this stream, if it is not bound yet. This blocks on the
        store, and raises `StreamMismatchError` if the state belongs to another stream.
        """
        summary = self.client.describe()
        self.retention_ms = summary.retention_ms
        self._may_have_ignored_keys |= summary.may_have_ignored_keys
        self._service_time = SteadyTime(self._clock, summary.now_ms(self._clock.now_ms()))
        if bind:
            self._known = self._identity.bind(summary.identity)
        return summary

    @property
    def noted_retention_ms(self) -> int:
        """The stored retention, as `note_retention` has stored it; 0 if none is known."""
        return 0 if self._known is None else self._known.retention_ms or 0

    def note_retention(self) -> None:
        """Store the retention, if the application has last seen another one. If it was raised,
        nobody knows when: perhaps only now, unless an older record is there. Blocks on the store
        and on Kinesis, only after a change.
        """
        known, seen_ms = self._known, self.retention_ms
        if known is None or seen_ms is None or known.retention_ms == seen_ms:
            return
        known = self._identity.read() or known  # another task may have stored it
        if known.retention_ms != seen_ms:
            expired_ms = known.expired_ms
            if known.retention_ms is not None and known.retention_ms < seen_ms:
                expired_ms = oldest_kept_ms(self.client, known.horizon_ms(seen_ms, self.now_ms()))
            known = msgspec.structs.replace(known, retention_ms=seen_ms, expired_ms=expired_ms)
            self._identity.amend(known)
        self._known = known

    def horizon_ms(self) -> int:
        """Return the service's time before which records may have expired. Call it after
        `describe`.
        """
        now_ms, retention_ms = self.now_ms(), self.retention_ms or 0
        known = self._known
        return now_ms - retention_ms if known is None else known.horizon_ms(retention_ms, now_ms)

    def kept_ms(self) -> int | None:
        """Return how old a record may be now that cannot have expired, in ms; None before
        `describe`. This is the retention, or less after it was raised.
        """
        return None if self.retention_ms is None else self.now_ms() - self.horizon_ms()

    def now_ms(self) -> int:
        """Return the service's time, in ms since 1970: the time of the last `describe` plus the
        time that has passed by the monotonic clock. Setting this machine's clock does not change
        it.
        """
        return self._service_time.now_ms()

    def known_now_ms(self) -> int | None:
        """Return `now_ms()`; None if that may be too early, because this machine may have slept
        since the last `describe`.
        """
        has_slept = self._service_time.set_forward_ms() > CLOCK_WAS_SET_MS
        return None if has_slept else self.now_ms()

    # listing --------------------------------------------------------------------------------------
    def expire(self) -> None:
        """Make the next listing due, for example because a shard has ended. For any thread."""
        self._is_expired = True

    def is_due(self) -> bool:
        """Whether a listing is due: the last one is older than `shardRefreshInterval`, or older
        than `RELIST_S` if it is late, or `expire` was called.
        """
        interval_s = min(self._interval_s, RELIST_S) if self.is_late else self._interval_s
        if self._is_expired or self._clock.monotonic_s() - self.listing.listed_s >= interval_s:
            return True
        # The machine may have slept, or its clock was set, which may be the service's clock, too.
        return abs(self._service_time.set_forward_ms()) > CLOCK_WAS_SET_MS

    def list_shards(self, *, bind: bool) -> Listing:
        """Describe the stream and list its shards. Blocks on Kinesis."""
        now_s = self._clock.monotonic_s()
        # Reset before the requests: `expire` during them makes another listing due.
        expired, self._is_expired = self._is_expired, False
        try:
            summary = self.describe(bind=bind)
            shards = {shard.shard_id: shard for shard in self.client.list_shards()}
        except BaseException:
            self._is_expired = self._is_expired or expired
            raise
        self.listing = Listing(shards, summary.status == "ACTIVE", now_s)
        return self.listing

    # the last listing -----------------------------------------------------------------------------
    def is_closed(self, shard_id: str) -> bool:
        """Whether the last listing shows the shard as closed."""
        shard = self.listing.shards.get(shard_id)
        return shard is not None and shard.is_closed

    def endings(self) -> dict[str, SequenceNumber]:
        """Return the last sequence numbers of the closed shards, as far as they are known."""
        return {
            shard_id: last
            for shard_id, shard in self.listing.shards.items()
            if (last := shard.last_sequence) is not None
        }

    def hash_key_ranges(self) -> dict[str, HashRange]:
        """Return the hash keys of the shards; empty if the stream does not assign records to shards
        by key.
        """
        if self._may_have_ignored_keys:
            return {}
        return {shard_id: shard.hash_key_range for shard_id, shard in self.listing.shards.items()}


# A `verified_until_ms` that is so much later is stored alone. It is no share of the retention,
# because that may be lowered to a day while nothing runs.
VERIFIED_STEP_MS = HOUR_MS
LISTED_LATE_MS = 60_000  # ListShards is eventually consistent and may omit a new shard for so long


class TipWatch(Protocol):
    """Observations of shards since their states were stored. They are in memory, and may be
    lost.
    """

    def keep_only(self, shard_ids: Collection[str]) -> None:
        """Forget all other shards."""
        ...

    def is_at_tip(self, shard_id: str) -> bool | None:
        """Whether the shard was at its tip at the last observation. False if it has more to read,
        None if that is unknown.
        """
        ...

    def verified_ms(self, shard_id: str) -> int | None:
        """Return the service's time at the last tip that was observed since the state was stored,
        or None.
        """
        ...


@dataclass(frozen=True)
class CatalogView:
    """Conclusions from one listing and one mapping of states. Each is computed only once, because a
    driver that waits for records uses them many times a second. Callers must not change them.

    - `lineage`: the lineage of all shards. `wanted`: the lineage of the shards that are read.
    - `readable`: the shards to read now, in the order of their ids.
    - `childless`: see `ShardLineage.unfollowed`.
    """

    listing: Listing
    states: Mapping[str, StoredState]
    only: Collection[str]

    @cached_property
    def lineage(self) -> ShardLineage:
        states = {shard: stored.state for shard, stored in self.states.items()}
        return ShardLineage(self.listing.shards, states)

    @cached_property
    def wanted(self) -> ShardLineage:
        return self.lineage.among(self.only)

    @cached_property
    def readable(self) -> list[str]:
        return self.wanted.readable()

    @cached_property
    def childless(self) -> list[str]:
        return self.lineage.unfollowed()


class ShardCatalog:
    """The shards of one stream of a consumer. Blocks on Kinesis and on the store. For one thread at
    a time; any thread may call `save` and `load` and read `states`.

    - `stream`: the listed stream. `loss`: detects and reports data loss.
    - `states`: a cache of the stored states. Each load and each write replaces the mapping, so
      readers need no lock. `lock` is held during each load, and from the computation of new states
      until they are written. It is never held during a request to Kinesis.
    - `listed_ms`: the service's time of the last listing whose shards all have states.
    - `only`: the ids of the shards that are read; empty for all shards. Every listed shard gets a
      state, but a loss of the other shards is not reported.
    - `accept_loss`: see `DataLossDetector`.
    """

    def __init__(
        self,
        client: KinesisClient,
        clock: Clock,
        watch: TipWatch,
        *,
        refresh_interval_s: float,
        fail_on_data_loss: bool,
        identity: IdentityStore,
        shard_states: ShardStateStore,
        shard_list: ShardListStore,
        only: Collection[str] = (),
        accept_loss: str = ACCEPT_LOSS,
    ) -> None:
        self.states: dict[str, StoredState] = {}
        self.lock = threading.RLock()
        self.stream = ListedStream(client, identity, clock, interval_s=refresh_interval_s)
        self.loss = DataLossDetector(
            client,
            horizon_ms=self.stream.horizon_ms,
            fail_on_data_loss=fail_on_data_loss,
            lasting_s=refresh_interval_s,
            only=only,
            accept_loss=accept_loss,
        )
        self.listed_ms = 0
        self._shard_states = shard_states
        self._shard_list = shard_list
        self._saved_list: tuple[str, ...] = ()
        self._watch = watch
        self._only = only
        self._view = CatalogView(self.stream.listing, self.states, only)
        self._judged = self.stream.listing  # the last listing that was checked for missing shards
        self._listed_retention_ms = 0  # at the last `refresh`
        self._listed_states: Mapping[str, ShardState] = {}  # then, of the shards that are read

    # listing --------------------------------------------------------------------------------------
    def refresh(self, pin: StartPin, unsettled: Plan | None = None) -> bool:
        """List the shards if a listing is due, and store states for new shards. Returns whether the
        shards were listed. Call `drop_missing_shards` after it.

        `unsettled`: the plan that will be settled next. If a shard of this plan has no state, its
        state was lost, perhaps with an operator's change such as a rewind. So the plan is never
        settled into the shard's new state, and its records are redelivered.

        Raises `DataLossError` if a shard is gone that never had a state, or the retention was
        lowered to less than a shard's lag, and `failOnDataLoss` is true; `StreamMismatchError` if
        the stream was deleted and created again.
        """
        if not self.stream.is_due():
            return False
        listing = self.stream.list_shards(bind=True)
        try:
            self._take(listing, pin, unsettled)
        except BaseException:
            self.stream.expire()  # its new shards may have no states
            raise
        return True

    def _take(self, listing: Listing, pin: StartPin, unsettled: Plan | None) -> None:
        """Store what a listing shows, and report what it shows to be lost."""
        retention_ms = self.stream.retention_ms or 0
        if retention_ms < (self._listed_retention_ms or self.stream.noted_retention_ms):
            # It may have overtaken shards that were read on since then, behind the gap, also by an
            # earlier process, whose last plan is not settled yet.
            states = self._listed_states or self.view.wanted.states
            self.loss.check_retention(
                list(states), states, retention_ms=retention_ms, now_ms=self.stream.now_ms()
            )
        # Before the new shards get states, after which they would look like tracked shards.
        lineage = self.view.lineage
        self.loss.check_never_read(lineage, pin, has_begun=self._has_begun)
        self._give_up(self.loss.children_unobserved(lineage))
        with self.lock:
            fresh = new_shards(
                listing.shards.values(),
                self.view.lineage.states,
                pin,
                tracked_since_ms=self.tracked_since_ms(pin),
            )
            # Set after `tracked_since_ms`, which needs the time of the previous listing.
            self.listed_ms = self.stream.now_ms()
            self.save(
                [StateChange(before=None, after=never_settling(one, unsettled)) for one in fresh]
            )
        shard_ids = tuple(listing.shards)
        if shard_ids != self._saved_list:  # each write triggers the watches of other tasks
            self._shard_list.save(shard_ids)
            self._saved_list = shard_ids
        self._watch.keep_only(self.states)
        self.loss.check_holes(listing)
        if listing.is_active:
            # Otherwise the states of finished shards would accumulate forever.
            self._forget(self.view.lineage.removable(self.stream.horizon_ms()))
        self.stream.is_late = self._lacks_retries() or bool(self.unfollowed())
        self._listed_retention_ms, self._listed_states = retention_ms, self.view.wanted.states

    def follow(self) -> None:
        """List the shards if a listing is due, without writing states or the shard list. For a task
        that is not the shard list leader.
        """
        if self.stream.is_due():
            self._judged = self.stream.list_shards(bind=False)  # the leader checks it
            self.stream.is_late = self._lacks_retries()

    def drop_missing_shards(self) -> None:
        """Give up the shards that are proven gone, by the last listing, before they were read to
        their ends. Does so once per listing. No plan that has read these shards may be unsettled.

        Raises `DataLossError` if `failOnDataLoss` is true.
        """
        listing = self.stream.listing
        if listing is self._judged:
            return
        gone = self.loss.vanished(self.view.wanted, listing)
        self._judged = listing
        self._give_up(gone)

    def tracked_since_ms(self, pin: StartPin) -> int:
        """Return the latest service time at which every shard was known to have a state. A shard
        that is new now, and its records, may be as old as that.
        """
        # Every shard had a state after the last listing of this process. A predecessor's last
        # listing was not before its last read, because reads are settled only after a listing.
        read_ms = [stored.state.verified_until_ms for stored in self.states.values()]
        known_ms = max([pin.time_ms, self.listed_ms, *(ms for ms in read_ms if ms is not None)])
        return min(known_ms - LISTED_LATE_MS, self.stream.now_ms())

    # the cache ------------------------------------------------------------------------------------
    def save(self, changes: Sequence[StateChange]) -> None:
        """Store states. For any thread. Hold `lock` from the computation of the changes on."""
        if changes:
            with self.lock, self._replacing() as cache:
                self._shard_states.save(changes, cache=cache)

    def load(self) -> None:
        """Load all states. For any thread."""
        with self.lock:
            self.states = dict(self._shard_states.load())

    # views ----------------------------------------------------------------------------------------
    @property
    def view(self) -> CatalogView:
        """The conclusions from the last listing and the cached states. Later changes do not change
        them.
        """
        # Both are replaced, never changed, so the same objects give the same view.
        listing, states = self.stream.listing, self.states
        view = self._view
        if view.listing is not listing or view.states is not states:
            view = self._view = CatalogView(listing, states, self._only)
        return view

    def verified_states(self, shards: Iterable[str]) -> dict[str, ShardState]:
        """The states of these shards, verified up to the last tips that were observed, for a plan
        that is made now.

        What had expired when `check_retention` looked was reported, so it counts as verified: a
        task is to find what expires between then and its read.
        """
        found = {shard: self._verified(self.states[shard].state) for shard in shards}
        for shard, state in found.items():
            verified_ms, horizon_ms = state.verified_until_ms, self.loss.checked_until_ms.get(shard)
            if verified_ms is not None and horizon_ms is not None and horizon_ms > verified_ms:
                found[shard] = msgspec.structs.replace(state, verified_until_ms=horizon_ms)
        return found

    def unfollowed(self) -> list[str]:
        """Shards that were read to their ends and whose children are not known yet.

        Without those whose end was read so long before the last listing that the listing is
        complete about them: it will not show their children either.
        """
        late_ms = self.listed_ms - LISTED_LATE_MS
        view = self.view  # one for both: another thread may replace the states
        return [
            shard
            for shard in view.childless
            if (view.lineage.states[shard].verified_until_ms or 0) > late_ms
        ]

    def lags_ms(self) -> dict[str, int]:
        """The lag of each shard whose end was not read, in milliseconds of arrival time; 0 at the
        tip.
        """
        now_ms = self.stream.now_ms()
        lags_ms = {}
        for shard_id, stored in self.states.items():
            if stored.state.end_was_read:
                continue
            seen_at_tip = self._watch.is_at_tip(shard_id)
            is_at_tip = stored.state.at_tip if seen_at_tip is None else seen_at_tip
            verified_ms = self._verified(stored.state).verified_until_ms
            lags_ms[shard_id] = 0 if is_at_tip else now_ms - (verified_ms or now_ms)
        return lags_ms

    # retention ------------------------------------------------------------------------------------
    def check_retention(self, shards: Sequence[str]) -> None:
        """Report shards whose records may have expired unread, each once until it is read on: of
        these shards, and of those that are not listed. A no-op before the first `describe`.

        Raises `DataLossError` where `failOnDataLoss` is true.
        """
        if self.stream.retention_ms is None:
            return
        self.stream.note_retention()
        view = self.view  # one for both: another thread may replace the states
        states, wanted = view.states, view.wanted
        others = [shard for shard, state in wanted.states.items() if not state.end_was_read]
        # A shard that is not listed is never read, and its children wait for it.
        self.loss.check_retention(
            [*shards, *wanted.vanished()],
            {shard: self._verified(states[shard].state) for shard in {*shards, *others}},
            retention_ms=self.stream.retention_ms,
            now_ms=self.stream.now_ms(),
        )

    def save_verified(self, *, at_once: bool = False) -> None:
        """Store the times at which idle shards were last seen at their tips: once an hour, or
        `at_once`.
        """
        # Only probes see the tip of an idle shard, and settling stores nothing of it. Without this,
        # a restart would report an idle shard as unread for longer than the retention.
        step_ms = 1 if at_once else VERIFIED_STEP_MS
        with self.lock:
            self.save(
                [
                    StateChange(before=stored, after=self._verified(stored.state))
                    for shard_id, stored in self.states.items()
                    if (self._watch.verified_ms(shard_id) or 0)
                    - (stored.state.verified_until_ms or 0)
                    >= step_ms
                ]
            )

    def _verified(self, state: ShardState) -> ShardState:
        """The state, verified up to the last tip that was observed, unless its end was read."""
        observed_ms = self._watch.verified_ms(state.shard_id)
        known_ms = state.verified_until_ms
        if observed_ms is None or state.end_was_read or (known_ms or 0) >= observed_ms:
            return state
        return msgspec.structs.replace(state, verified_until_ms=observed_ms)

    # private --------------------------------------------------------------------------------------
    def _has_begun(self) -> bool:
        """Whether the shard list was written. It is written after the states of its shards, and a
        crash may interrupt the writes of the first states.
        """
        return bool(self._saved_list) or self._shard_list.read() is not None

    def _lacks_retries(self) -> bool:
        """Whether a shard with unresolved records is neither listed nor proven gone."""
        wanted = self.view.wanted
        gone = self.loss.gone_with_retries(wanted, self.stream.listing)
        return not gone.issuperset(wanted.unlisted_with_retries())

    def _give_up(self, shards: Sequence[str]) -> None:
        with self.lock:
            known = (self.states[shard] for shard in shards if shard in self.states)
            self.save([StateChange(before=one, after=given_up(one.state)) for one in known])

    def _forget(self, shards: Sequence[str]) -> None:
        with self.lock:
            known = [self.states[shard] for shard in shards if shard in self.states]
            if known:
                with self._replacing() as cache:
                    self._shard_states.remove(known, cache=cache)

    @contextmanager
    def _replacing(self) -> Iterator[dict[str, StoredState]]:
        """Yield a copy of the cache for the store to update. The copy replaces the cache even after
        an error, because a part of the write may be done.
        """
        cache = dict(self.states)
        try:
            yield cache
        finally:
            self.states = cache
