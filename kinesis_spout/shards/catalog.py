"""The driver's view of the shards: what the service lists, what ZooKeeper stores of each, and what
may have been lost.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from kinesis_spout.errors import DataLossError, ShardNotFoundError
from kinesis_spout.shards.lineage import ShardLineage, open_range_holes
from kinesis_spout.shards.start_position import lapsed_shards, new_shards
from state.position import SHARD_END, TRIM_HORIZON
from state.shard_state import Lifecycle, ShardState
from state.state_store import StartPin, StateChange, StateStore, StoredState, StreamIdentity
from state.state_writing import write_states
from state.znodes.shard_states import MAX_STATES_PER_WRITE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kinesis_spout.clock import Clock
    from kinesis_spout.config import StreamRef
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
    from state.sequence_number import SequenceNumber

_T = TypeVar("_T")
log = logging.getLogger("kinesis_spout")
VERIFIED_SAVES_PER_RETENTION = 24
NEVER_S = float("-inf")
LISTED_LATE_MS = 60_000  # a new shard may be missing from the list for so long
RELIST_S = (
    10.0  # the list is read at least as often while it does not show a shard that must be there
)


class CatalogSettings(Protocol):
    """What of its owner's settings a catalog goes by. Durations in milliseconds."""

    @property
    def stream(self) -> StreamRef: ...
    @property
    def shard_refresh_interval_ms(self) -> int: ...
    @property
    def fail_on_data_loss(self) -> bool: ...
    @property
    def states_per_write(self) -> int: ...


class TipWatch(Protocol):
    """What is known of each shard beside its stored state. A memory that may be lost."""

    def keep_only(self, shard_ids: Collection[str]) -> None: ...

    def is_idle(self, shard_id: str) -> bool:
        """At its tip when it was last looked at."""
        ...

    def is_behind(self, shard_id: str) -> bool:
        """Known to have more to read."""
        ...

    def verified_ms(self, shard_id: str) -> int | None:
        """Service time of the last tip that was seen since the state was stored; None
        without one.
        """
        ...


class ShardCatalog:
    """One per query. `states` is a cache of what the store has, always replaced or updated with
    what a write returned.

    `only`: the ids of the shards that are read; none for all. All have a state, but the others are
    not missed when they are gone.
    """

    def __init__(
        self,
        settings: CatalogSettings,
        store: StateStore,
        client: KinesisClient,
        clock: Clock,
        watch: TipWatch,
        *,
        only: Collection[str] = (),
    ) -> None:
        self.states: dict[str, StoredState] = {}
        self._settings = settings
        self._store = store
        self._client = client
        self._clock = clock
        self._watch = watch
        self._only = only
        self._listing: tuple[ShardInfo, ...] = ()
        self._saved_list: tuple[str, ...] = ()
        self._listed_s = NEVER_S
        self.listed_ms = 0  # service time of the last listing
        self._relist_s = settings.shard_refresh_interval_ms / 1000
        self._retention_ms: int | None = None
        self._service_ahead_ms = 0
        self._missing_since_s: dict[str, float] = {}
        self._reported: set[str] = set()
        self._holes_since_s: dict[tuple[int, int], float] = {}
        self._reported_holes: set[tuple[int, int]] = set()

    # the service's side
    # ---------------------------------------------------------------------------------------
    def describe(self) -> StreamSummary:
        """Ask the stream for its summary; notes the retention and how far the service's clock is
        ahead of ours.
        """
        summary = self._client.describe()
        self._retention_ms = summary.retention_ms
        self._service_ahead_ms = (
            0 if summary.service_time_ms is None else summary.service_time_ms - self._clock.now_ms()
        )
        return summary

    def bind(self) -> StreamSummary:
        """`describe`, and raise `StreamMismatchError` when the stream is not the one that the state
        is of. Binds new state.
        """
        summary = self.describe()
        self._store.bind_stream(
            StreamIdentity(arn=summary.arn, name=summary.name, created_ms=summary.created_ms)
        )
        return summary

    def service_now_ms(self) -> int:
        return self._clock.now_ms() + self._service_ahead_ms

    def expire(self) -> None:
        """Have the next `refresh` ask the service: a shard has ended, so there are new ones."""
        self._listed_s = NEVER_S

    def refresh(self, pin: StartPin) -> None:
        """List the shards anew when the last listing is older than `shardRefreshInterval`; new ones
        get a state at once.

        Raises `DataLossError` when a shard has gone unread and `failOnDataLoss` is true,
        `StreamMismatchError` when the stream was deleted and created again meanwhile.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._listed_s < self._relist_s:
            return
        summary = self.bind()
        self._listing = self._client.list_shards()
        self._listed_s = now_s
        self._check_never_seen(pin)
        fresh = new_shards(
            self._listing, self.shard_states(), pin, tracked_since_ms=self.tracked_since_ms(pin)
        )
        self.listed_ms = self.service_now_ms()
        self._save([StateChange(before=None, after=state) for state in fresh])
        self._save_list()
        self._watch.keep_only(self.states)
        self._check_holes(summary)
        self._remove_tombstones(summary)
        self._check_vanished(summary)
        interval_s = self._settings.shard_refresh_interval_ms / 1000
        self._relist_s = min(interval_s, RELIST_S) if self.unfollowed() else interval_s

    def follow(self) -> None:
        """List the shards anew as `refresh` does, for one that only looks: another process keeps
        the states and the list.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._listed_s >= self._settings.shard_refresh_interval_ms / 1000:
            self.describe()
            self._listing = self._client.list_shards()
            self._listed_s = now_s

    def tracked_since_ms(self, pin: StartPin) -> int:
        """When every shard that the service had is known to have had a state: at the last listing,
        which was not long after the last read of any shard: what is read is settled behind a
        listing only. A shard that is new now may be as old as that, and its records too.
        """
        read_ms = [stored.state.verified_until_ms for stored in self.states.values()]
        known_ms = max([pin.time_ms, self.listed_ms, *(ms for ms in read_ms if ms is not None)])
        return min(known_ms - LISTED_LATE_MS, self.service_now_ms())

    def _save_list(self) -> None:
        """Those who share the shards watch the list, so it is written when it is another one."""
        listed = tuple(shard.shard_id for shard in self._listing)
        if listed != self._saved_list:
            self._store.save_shard_list(listed)
            self._saved_list = listed

    # views
    # ----------------------------------------------------------------------------------------------------
    def shard_states(self) -> dict[str, ShardState]:
        return {shard: stored.state for shard, stored in self.states.items()}

    def lineage(self) -> ShardLineage:
        return ShardLineage.of(self._listing, self.shard_states())

    def wanted(self) -> ShardLineage:
        """The lineage of the shards that are read."""
        return self.lineage().among(self._only)

    def readable(self) -> list[str]:
        return self.wanted().readable()

    def unfollowed(self) -> list[str]:
        """Shards that were read to their ends and whose children neither these nor the list have
        told of, but should.

        Not those whose ends were read so long before the last listing that it shows all it will
        ever show.
        """
        late_ms = self.listed_ms - LISTED_LATE_MS
        return [
            shard
            for shard in self.lineage().unfollowed()
            if (self.states[shard].state.verified_until_ms or 0) > late_ms
        ]

    def endings(self) -> dict[str, SequenceNumber]:
        """Where closed shards end. A number below the shard's own start, as an emulator writes it,
        is no place in it.
        """
        closed = (
            (shard, shard.ending_sequence)
            for shard in self._listing
            if shard.ending_sequence is not None
        )
        return {
            shard.shard_id: ending for shard, ending in closed if ending >= shard.starting_sequence
        }

    def is_closed(self, shard_id: str) -> bool:
        return any(shard.is_closed for shard in self._listing if shard.shard_id == shard_id)

    def lag_ms(self) -> int:
        """How far the farthest shard is behind, in milliseconds of arrival time; 0 at the tip."""
        now_ms = self.service_now_ms()
        behind = [
            self._verified(stored.state)
            for stored in self.states.values()
            if self._may_lag(stored.state)
        ]
        return max((now_ms - (state.verified_until_ms or now_ms) for state in behind), default=0)

    def _may_lag(self, state: ShardState) -> bool:
        at_tip = state.at_tip and not self._watch.is_behind(state.shard_id)
        return not state.end_was_read and not at_tip and not self._watch.is_idle(state.shard_id)

    # loss
    # -----------------------------------------------------------------------------------------------------
    def check_retention(self, shards: Sequence[str]) -> None:
        """Raise `DataLossError` (or say so, by `failOnDataLoss`) for shards of which records may
        have expired unread.
        """
        if self._retention_ms is None:
            return
        states = {shard: self._verified(self.states[shard].state) for shard in shards}
        lapsed = lapsed_shards(shards, states, self.service_now_ms(), self._retention_ms)
        new = [shard for shard in lapsed if shard not in self._reported]
        if new:
            self._data_loss(
                new,
                f"were not read for longer than the retention of {self._retention_ms // 3_600_000} "
                "h",
            )
            self._reported.update(new)

    def save_verified(self) -> None:
        """An idle shard's tips are seen by probes only: store them now and then, or a restart would
        take silence for loss.
        """
        if self._retention_ms is None:
            return
        step_ms = self._retention_ms // VERIFIED_SAVES_PER_RETENTION
        gained = [
            stored for stored in self.states.values() if self._gain_ms(stored.state) >= step_ms
        ]
        self._save(
            [StateChange(before=stored, after=self._verified(stored.state)) for stored in gained]
        )

    def _gain_ms(self, state: ShardState) -> int:
        return (self._watch.verified_ms(state.shard_id) or 0) - (state.verified_until_ms or 0)

    def _verified(self, state: ShardState) -> ShardState:
        known = [
            ms
            for ms in (state.verified_until_ms, self._watch.verified_ms(state.shard_id))
            if ms is not None
        ]
        return msgspec.structs.replace(state, verified_until_ms=max(known, default=None))

    def _check_holes(self, summary: StreamSummary) -> None:
        """Say once of each range of hash keys that no open shard takes in two complete listings of
        an active stream.

        Nothing is lost by it: the service takes no record there. But a shard that the list leaves
        out would not be read.
        """
        if summary.status != "ACTIVE":
            self._holes_since_s = {}
            return
        holes = open_range_holes(self._listing)
        self._holes_since_s = self._since(self._holes_since_s, holes)
        self._reported_holes.intersection_update(holes)
        for first, last in self._lasting(self._holes_since_s):
            if (first, last) not in self._reported_holes:
                log.warning(
                    "stream %s has no open shard for the hash keys %d to %d, in every listing for "
                    "%.0f s: should the list leave "
                    "a shard out, its records are not read; compare it with the AWS console",
                    self._settings.stream.name,
                    first,
                    last,
                    self._listed_s - self._holes_since_s[first, last],
                )
                self._reported_holes.add((first, last))

    def _since(self, before: Mapping[_T, float], found: Iterable[_T]) -> dict[_T, float]:
        """When each of what this listing shows was first shown, without a break."""
        return {one: before.get(one, self._listed_s) for one in found}

    def _lasting(self, since_s: Mapping[_T, float]) -> list[_T]:
        """What has been so in two listings at least `shardRefreshInterval` apart, and in all
        between them.
        """
        patience_s = self._settings.shard_refresh_interval_ms / 1000
        return [one for one, first_s in since_s.items() if self._listed_s - first_s >= patience_s]

    def _check_vanished(self, summary: StreamSummary) -> None:
        """A shard that two complete listings of an active stream do not name is gone, with what was
        unread in it.

        The two are at least `shardRefreshInterval` apart, and the service is asked for the shard
        itself: its list may show a new one late, long after its parent's last page has named it.
        """
        missing = self.wanted().vanished() if summary.status == "ACTIVE" else []
        self._missing_since_s = self._since(self._missing_since_s, missing)
        gone = [
            shard for shard in self._lasting(self._missing_since_s) if not self._is_there(shard)
        ]
        if not gone:
            return
        self._data_loss(
            gone, "the service does not list any more, before they were read to their ends"
        )
        self._save(
            [
                StateChange(before=self.states[shard], after=_given_up(self.states[shard].state))
                for shard in gone
            ]
        )

    def _check_never_seen(self, pin: StartPin) -> None:
        """Shards of which nothing was read, and that are gone: open at the pin, or since then
        between two listings.
        """
        lost = [*self._lost_since_pin(pin), *self._lost_between(pin)]
        gone = [
            shard
            for shard in lost
            if not (self._only and shard not in self._only) and not self._is_there(shard)
        ]
        if gone:
            self._report_data_loss(
                "the service does not list any more, before anything of them was read",
                ", ".join(gone),
            )
        self._check_out_of_sight()

    def _check_out_of_sight(self) -> None:
        """Shards that were read, and whose children came and went while nobody looked. They are
        forgotten once that is told.
        """
        if self._retention_ms is None:
            return
        shards = self.lineage().out_of_sight(self.service_now_ms() - self._retention_ms)[
            :MAX_STATES_PER_WRITE
        ]
        alone = [shard for shard in shards if not self._is_there(shard)]
        if alone:
            self._report_data_loss(
                "nobody has seen continued, though the service has closed and forgotten them",
                ", ".join(alone),
            )
            self._forget(alone)

    def _lost_since_pin(self, pin: StartPin) -> list[str]:
        """At the first listing. A shard that was open at the pin stays for the retention at least:
        none is asked for before.
        """
        if (
            self.states
            or self._retention_ms is None
            or self.service_now_ms() - pin.time_ms <= self._retention_ms
        ):
            return []
        listed = {shard.shard_id for shard in self._listing}
        return [shard for shard in pin.shards if shard not in listed]

    def _lost_between(self, pin: StartPin) -> list[str]:
        """Parents of shards that are new since the pin, which were never listed here: they came and
        went while nobody looked.
        """
        known = {shard.shard_id for shard in self._listing} | self.states.keys() | set(pin.shards)
        fresh = [
            shard
            for shard in self._listing
            if shard.shard_id not in self.states and shard.shard_id not in pin.shards
        ]
        return sorted({parent for shard in fresh for parent in shard.parents} - known)

    def _remove_tombstones(self, summary: StreamSummary) -> None:
        """Finished shards that the service has forgotten are forgotten here, or their states would
        pile up for ever.
        """
        if summary.status != "ACTIVE":
            return
        removable = self.lineage().removable(self.service_now_ms() - summary.retention_ms)[
            :MAX_STATES_PER_WRITE
        ]
        self._forget(removable)

    def _forget(self, shards: Sequence[str]) -> None:
        self._store.remove_states([self.states[shard] for shard in shards])
        for shard in shards:
            del self.states[shard]

    def _is_there(self, shard_id: str) -> bool:
        try:
            self._client.shard_iterator(shard_id, TRIM_HORIZON)
        except ShardNotFoundError:
            return False
        return True

    def _data_loss(self, shards: Sequence[str], what: str) -> None:
        self._report_data_loss(
            what,
            ", ".join(
                f"{shard} (read up to {self.states[shard].state.read_position})" for shard in shards
            ),
        )

    def _report_data_loss(self, what: str, named: str) -> None:
        sentence = f"records may be lost: stream {self._settings.stream.name} has shards that {what}: {named}"
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{sentence}; set option failOnDataLoss to false to go on with what is left"
            )
        log.warning("%s; going on with what is left, as failOnDataLoss is false", sentence)

    def _save(self, changes: Sequence[StateChange]) -> None:
        write_states(
            self._store, self.states, changes, states_per_write=self._settings.states_per_write
        )


def _given_up(state: ShardState) -> ShardState:
    """A shard that is gone: nothing of it can be read any more, and its children need not wait for
    it.
    """
    lifecycle = Lifecycle.DRAINED if state.unresolved else Lifecycle.FINISHED
    return msgspec.structs.replace(state, read_position=SHARD_END, lifecycle=lifecycle)
