"""The stream as the service describes and lists it; when it is listed again; the service's time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.clock import SteadyTime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
    from state.sequence_number import SequenceNumber
    from state.store.identity import IdentityStore

NEVER_S = float("-inf")
# At most so long between two listings while one lacks a shard that must exist, or one that has
# retries.
RELIST_S = 10.0
# Two clocks that are read one after the other, and corrected in small steps, differ by less.
CLOCK_WAS_SET_MS = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """One listing, at `listed_s` of the monotonic clock. `is_active`: whether it is complete: while
    a stream is UPDATING, shards may be missing. `closed`: whether each shard is closed.
    """

    shards: tuple[ShardInfo, ...] = ()
    closed: Mapping[str, bool] = field(default_factory=dict)
    is_active: bool = False
    listed_s: float = NEVER_S


class ListedStream:
    """One per catalog. Blocks on Kinesis where it says so. For one thread at a time, except
    `expire` and reading, which are for any thread.

    `listing`: the last one. `retention_ms`: as of the last `describe`; None before it.
    """

    def __init__(
        self, client: KinesisClient, identity: IdentityStore, clock: Clock, *, interval_s: float
    ) -> None:
        self.listing = Listing()
        self.retention_ms: int | None = None
        self._client = client
        self._identity = identity
        self._clock = clock
        self._interval_s = interval_s
        self._relist_s = interval_s
        self._is_expired = False
        self._may_have_ignored_keys = False
        self._service_time = SteadyTime(clock, clock.now_ms())

    # describing -----------------------------------------------------------------------------------
    def describe(self) -> StreamSummary:
        """The stream's summary. Notes the retention and the service's time. Blocks on Kinesis."""
        summary = self._client.describe()
        self.retention_ms = summary.retention_ms
        self._may_have_ignored_keys |= summary.may_have_ignored_keys
        self._service_time = SteadyTime(self._clock, summary.now_ms(self._clock.now_ms()))
        return summary

    def bind(self) -> StreamSummary:
        """`describe`, and bind the stored state to this stream if it is bound to none. Blocks on
        the store, too.

        Raises `StreamMismatchError` when the state belongs to another stream.
        """
        summary = self.describe()
        self._identity.bind(summary.identity)
        return summary

    def now_ms(self) -> int:
        """The service's time, in ms since 1970: what the last `describe` said, and what has passed
        since by the monotonic clock. Who sets this machine's clock does not change it.
        """
        return self._service_time.now_ms()

    def known_now_ms(self) -> int | None:
        """As `now_ms`; None while that may be too early, because this machine may have slept since
        the last `describe`.
        """
        has_slept = self._service_time.set_forward_ms() > CLOCK_WAS_SET_MS
        return None if has_slept else self.now_ms()

    # listing --------------------------------------------------------------------------------------
    def expire(self) -> None:
        """Make the next listing due: a shard has ended, so it has children. Any thread."""
        self._is_expired = True

    def is_due(self) -> bool:
        """Whether the last listing is older than `shardRefreshInterval`."""
        if self._is_expired or self._clock.monotonic_s() - self.listing.listed_s >= self._relist_s:
            return True
        # The machine may have slept, or the service has the same clock.
        return abs(self._service_time.set_forward_ms()) > CLOCK_WAS_SET_MS

    def list_bound(self) -> Listing:
        """`bind`, and list the shards. Blocks on Kinesis."""
        return self._listed(self.bind)

    def list_only(self) -> Listing:
        """`describe`, and list the shards, for a process that writes nothing."""
        return self._listed(self.describe)

    def list_again_soon(self, *, is_late: bool) -> None:
        """When the next listing is due: soon, if the last one lacks a shard that must exist."""
        self._relist_s = min(self._interval_s, RELIST_S) if is_late else self._interval_s

    def _listed(self, described: Callable[[], StreamSummary]) -> Listing:
        now_s = self._clock.monotonic_s()
        # Before the calls: `expire` during them asks for another listing.
        expired, self._is_expired = self._is_expired, False
        try:
            summary = described()
            shards = self._client.list_shards()
        except BaseException:
            self._is_expired = self._is_expired or expired
            raise
        # A shard that is listed twice, open and closed, has been closed in between.
        closed: dict[str, bool] = {}
        for shard in shards:
            closed[shard.shard_id] = shard.is_closed or closed.get(shard.shard_id, False)
        self.listing = Listing(shards, closed, summary.status == "ACTIVE", now_s)
        return self.listing

    # the last listing -----------------------------------------------------------------------------
    def is_closed(self, shard_id: str) -> bool:
        """Whether the last listing shows the shard as closed."""
        return self.listing.closed.get(shard_id, False)

    def endings(self) -> dict[str, SequenceNumber]:
        """The numbers at which closed shards were read to their ends."""
        return {
            shard.shard_id: last
            for shard in self.listing.shards
            if (last := shard.last_sequence) is not None
        }

    def hash_key_ranges(self) -> dict[str, tuple[int, int]]:
        """The hash keys of the shards, inclusive at both ends. Of none where no record is in a
        shard because of its key.
        """
        if self._may_have_ignored_keys:
            return {}
        return {shard.shard_id: shard.hash_key_range for shard in self.listing.shards}
