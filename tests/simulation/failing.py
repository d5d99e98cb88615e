"""Which records fail: some once, some often, some always, and all of them while there
is an outage.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.simulated.played_outcomes import LateRejection, Rejection

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.world import World
    from tests.support.simulated.played_outcomes import Row

ALWAYS = 99
REJECTED = 0.25
PATIENCE = 12  # what has failed so often in one attempt is in an outage without end, and is spared


@dataclass
class Failing:
    """A function's failures, drawn when a record is first seen. `failed_in`: the attempts in which
    it did, by record.

    `failed_in_outage`: what a batch that died has dead-lettered then may be processed when the
    batch comes again. Some of those that fail are not to be tried again from their first or their
    second failure on: `rejects` says why, and `rejected_in` in which attempts they were rejected.
    """

    world: World
    random: Random
    weights: tuple[int, ...]
    outage_until_s: float = 0.0
    times: dict[str, int] = field(default_factory=dict)
    failed_in: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    spared: set[str] = field(default_factory=set)
    failed_in_outage: set[str] = field(default_factory=set)
    rejects: dict[str, tuple[int, Rejection]] = field(default_factory=dict)
    rejected_in: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _calls: Counter[str] = field(default_factory=Counter)

    def begin_anew(self) -> None:
        """Other records come."""
        for told in (
            self.times,
            self.failed_in,
            self.spared,
            self.failed_in_outage,
            self.rejects,
            self.rejected_in,
            self._calls,
        ):
            told.clear()

    def __call__(self, row: Row) -> str | None:
        record = f"{row['shardId']}:{row['sequenceNumber']}"
        if record not in self.times:
            self._draw(record)
        out = self.world.clock.monotonic_s() < self.outage_until_s
        if row["attempt"] > self.times[record] and not out:
            return None
        self._calls[row["messageId"]] += 1
        if self._calls[row["messageId"]] > PATIENCE:
            self.spared.add(record)
            return None
        if out:
            self.failed_in_outage.add(record)
        from_attempt, rejection = self.rejects.get(record, (ALWAYS, None))
        if not out and row["attempt"] >= from_attempt:
            self.rejected_in[record].add(row["attempt"])
            return rejection
        self.failed_in[record].add(row["attempt"])
        return "an outage" if out else "as drawn"

    def _draw(self, record: str) -> None:
        times = self.times[record] = self.random.choices((0, 1, 2, ALWAYS), weights=self.weights)[0]
        if times and self.random.random() < REJECTED:
            kind = self.random.choice((Rejection, LateRejection))
            self.rejects[record] = self.random.randint(1, min(times, 2)), kind("rejected")

    def must_be_dead(self, limit: int) -> set[str]:
        """Records that fail in every attempt that they get, or were rejected; in an outage another
        attempt may have come.
        """
        rejected = self.rejected_in.keys() - self.failed_in_outage
        return (
            {record for record, times in self.times.items() if times > limit} | rejected
        ) - self.spared

    def may_be_dead(self, limit: int) -> set[str]:
        """Records that have failed in the last attempt that they get, or were rejected."""
        return {
            record for record, attempts in self.failed_in.items() if limit + 1 in attempts
        } | self.rejected_in.keys()
