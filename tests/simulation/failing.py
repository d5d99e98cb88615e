"""Decides which records fail: once, often, or always; during an outage, all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.simulated.played_outcomes import LateRejection, Rejection, is_whole

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.world import World
    from tests.support.simulated.played_outcomes import Row

ALWAYS = 99
REJECTED = 0.25
PATIENCE = (
    12  # after so many failures in one attempt it is an outage without end, and the record passes
)


@dataclass
class Failing:
    """The failures of a function, drawn when a record is first seen.

    `failed_in`: by record, the attempts in which it failed. `failed_in_outage`: failures during an
    outage. A batch that died may have dead-lettered such a record, and its replay may process it.
    Some of the failing records are rejected from their first or second failure on: `rejects` gives
    the reason, and `rejected_in` the attempts in which they were rejected.
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

    def start_over(self) -> None:
        """Forget the records: others come."""
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
        if is_whole(row):  # the others that are in it neither fail nor pass by themselves
            self.spared.update(name for name in self.world.names(row) if name != record)
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
        """Records that fail in every attempt that they get, or were rejected. An outage may have
        given them further attempts.
        """
        rejected = self.rejected_in.keys() - self.failed_in_outage
        return (
            {record for record, times in self.times.items() if times > limit} | rejected
        ) - self.spared

    def may_be_dead(self, limit: int) -> set[str]:
        """Records that failed in the last attempt that they get, or were rejected."""
        return {
            record for record, attempts in self.failed_in.items() if limit + 1 in attempts
        } | self.rejected_in.keys()
