"""What is counted of a shard, exactly, and how long its records took from their arrival to their
ack.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

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
