"""What a spout counts, per shard and in total. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.reading.subscriptions import SubscriptionTotals

LATENCY_BUCKETS = 32  # of 2 ** n ms each: up to 24 days


@dataclass(slots=True)
class ShardCounts:
    """Counts since the shard was assigned. `emitted` counts every delivery, `retried` those after
    the first.

    - `timed_out` are included in `failed`.
    - `left_out`: user records of aggregates that were not delivered, because their hash keys belong
      to other shards.
    - `latency[n]` counts acks between 2 ** (n - 1) ms (included) and 2 ** n ms (excluded) after the
      record's arrival. The service's clock and this machine's may differ; a negative latency counts
      as 0.
    """

    emitted: int = 0
    acked: int = 0
    failed: int = 0
    retried: int = 0
    timed_out: int = 0
    dead_lettered: int = 0
    malformed: int = 0
    left_out: int = 0
    latency: list[int] = field(default_factory=lambda: [0] * LATENCY_BUCKETS)
    latency_sum_ms: int = 0

    @property
    def resolved(self) -> int:
        """How many records were acked or dead-lettered."""
        return self.acked + self.dead_lettered

    def on_ack(self, latency_ms: int) -> None:
        """Count an ack that came `latency_ms` after the record's arrival."""
        self.acked += 1
        if latency_ms <= 0:  # `max` would take as long as all the rest
            self.latency[0] += 1
            return
        self.latency_sum_ms += latency_ms
        try:
            self.latency[latency_ms.bit_length()] += 1
        except IndexError:
            self.latency[-1] += 1

    def add(self, other: ShardCounts) -> None:
        """Add the counts of another one."""
        for each in fields(self):
            if each.name != "latency":
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.latency = [
            ours + theirs for ours, theirs in zip(self.latency, other.latency, strict=True)
        ]


@dataclass(slots=True)
class WaitTimes:
    """Seconds that `emissions()` waited: `idle_s` without a record to emit, `at_limit_s` with
    `max_pending` pending.
    """

    idle_s: float = 0.0
    at_limit_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMetrics:
    """One shard, or all shards. `counts` are since the spout was opened; the total includes
    finished shards.

    - `pending`: delivered, without an outcome. `queued`: waiting for a retry or a dead letter.
    - `refused`: dead letters that were refused several times in a row and are tried again.
    - `lag_ms`: how far the last emitted record is behind the service's time, 0 at the tip, None
      when unknown. In the total: of the shard that is farthest behind.
    """

    counts: ShardCounts
    pending: int
    queued: int
    lag_ms: int | None
    checkpoint: str | None = None
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutMetrics:
    """`shards` holds the shards that are assigned now.

    By part of the spout's work (`fetch`, `retries`, `listing`, `commit`, `letters`, `scheme`):
    `failing_s`, for how many seconds it has failed so far, 0 when it does not; `outages`, how many
    outages it has had.

    `subscriptions`: of a spout that reads by enhanced fan-out; None for one that polls.
    """

    total: ShardMetrics
    shards: Mapping[str, ShardMetrics]
    waits: WaitTimes = field(default_factory=WaitTimes)
    failing_s: Mapping[str, float] = field(default_factory=dict)
    outages: Mapping[str, int] = field(default_factory=dict)
    subscriptions: SubscriptionTotals | None = None


def quantile_ms(latency: list[int], share: float) -> int | None:
    """The upper bound of the latency bucket that holds the quantile `share` of all acks; None
    without acks.
    """
    wanted = share * sum(latency)
    seen = 0
    for bucket in range(LATENCY_BUCKETS):
        seen += latency[bucket]
        if seen and seen >= wanted:
            return 0 if not bucket else int(2**bucket)
    return None
