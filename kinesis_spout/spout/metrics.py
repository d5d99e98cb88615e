"""What a spout has counted, per shard and in total, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.spout.shard_counts import LATENCY_BUCKETS, ShardCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.spout.scheduler import ShardSeat, SpoutCore


@dataclass(slots=True)
class WaitTimes:
    """Seconds that `emissions()` has waited: for want of a record, and because `max_pending` were
    pending.
    """

    idle_s: float = 0.0
    at_limit_s: float = 0.0

    def add(self, seconds: float, *, at_limit: bool) -> None:
        if at_limit:
            self.at_limit_s += seconds
        else:
            self.idle_s += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMetrics:
    """One shard's, or all shards'. `counts` since the spout was opened, of shards that are finished
    too in the total.

    `pending`: without an outcome; `queued`: waiting for a retry or a dead letter. `lag_ms`: how far
    what was handed over last is behind the service's time, 0 at the tip, the farthest shard's in
    the total; None where that is not known yet.
    """

    counts: ShardCounts
    pending: int
    queued: int
    lag_ms: int | None
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutMetrics:
    """`shards` holds those that the spout has taken up now."""

    total: ShardMetrics
    shards: Mapping[str, ShardMetrics]
    waits: WaitTimes = field(default_factory=WaitTimes)


def metrics_of(core: SpoutCore, waits: WaitTimes, service_now_ms: int) -> SpoutMetrics:
    """Copies, so that they stay as they are. The caller holds the spout's lock."""
    shards = {
        shard_id: _of_shard(seat, service_now_ms) for shard_id, seat in sorted(core.seats.items())
    }
    counts = ShardCounts()
    counts.add(core.past)
    for one in shards.values():
        counts.add(one.counts)
    lags = [one.lag_ms for one in shards.values() if one.lag_ms is not None]
    total = ShardMetrics(
        counts=counts,
        pending=sum(one.pending for one in shards.values()),
        queued=sum(one.queued for one in shards.values()),
        lag_ms=max(lags, default=None),
    )
    return SpoutMetrics(total=total, shards=shards, waits=WaitTimes(waits.idle_s, waits.at_limit_s))


def quantile_ms(latency: list[int], share: float) -> int | None:
    """The upper bound of the bucket in which so large a share of the acks ends; None when there are
    none.
    """
    wanted = share * sum(latency)
    seen = 0
    for bucket in range(LATENCY_BUCKETS):
        seen += latency[bucket]
        if seen and seen >= wanted:
            return 0 if not bucket else int(2**bucket)
    return None


def _of_shard(seat: ShardSeat, service_now_ms: int) -> ShardMetrics:
    shard = seat.shard
    counts = ShardCounts()
    counts.add(seat.counts)
    checkpoint = shard.tracker.checkpoint
    return ShardMetrics(
        counts=counts,
        pending=shard.pending,
        queued=shard.unresolved - shard.pending,
        lag_ms=shard.lag_ms(service_now_ms),
        checkpoint=None if checkpoint is None else str(checkpoint),
    )
