"""What a spout has counted, per shard and in total, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LATENCY_BUCKETS = 32  # of 2 ** n ms each: up to 24 days


@dataclass(slots=True)
class ShardCounts:
    """Counted since the shard was taken up. `emitted` counts every delivery, `retried` those after
    the first.

    `timed_out` are among the `failed`. `latency[n]` counts acks of records that had arrived less
    than 2 ** n ms before, and not less than 2 ** (n - 1); the service's clock and this machine's
    may differ, so what looks negative counts as 0.
    """

    emitted: int = 0
    acked: int = 0
    failed: int = 0
    retried: int = 0
    timed_out: int = 0
    dead_lettered: int = 0
    malformed: int = 0
    latency: list[int] = field(default_factory=lambda: [0] * LATENCY_BUCKETS)
    latency_sum_ms: int = 0

    def on_ack(self, latency_ms: int) -> None:
        """An ack counted, so long after the record's arrival."""
        self.acked += 1
        latency_ms = max(latency_ms, 0)  # not `max`: once for every record
        self.latency_sum_ms += latency_ms
        try:
            self.latency[latency_ms.bit_length()] += 1
        except IndexError:
            self.latency[-1] += 1

    def add(self, other: ShardCounts) -> None:
        """Count what another one has counted too."""
        for each in fields(self):
            if each.name != "latency":
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.latency = [
            ours + theirs for ours, theirs in zip(self.latency, other.latency, strict=True)
        ]


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
