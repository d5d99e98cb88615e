"""The history of a query of one stream: its steps, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_job.driver.backlog import PROBE_MAX_SHARDS
from tests.simulation.checks import Checks
from tests.simulation.query_steps import Turns
from tests.simulation.state_steps import Pauses, Rewinds, StateSteps
from tests.simulation.stream_steps import Stories

if TYPE_CHECKING:
    import logging

STEPS = 30
MOST_BATCHES = 5_000
WIDE = {
    "max_records_per_trigger": None,
    "max_records_per_shard": 1000,
    "max_bytes_per_task": 64 << 20,
    "max_unresolved_per_shard": 100_000,
    "idle_wait_ms": 0,
}
SETTLES_S = 15.0  # by then a reshard under way is done and listed


class History(Stories, StateSteps, Turns, Pauses, Rewinds, Checks):
    """`weights`: of the steps, by name."""

    weights: dict[str, float]

    @property
    def parts(self) -> list[History]:
        """The histories of all streams of the query."""
        return [self]

    @property
    def handler(self) -> logging.Handler:
        """Hears the product's warnings."""
        return self.world.warnings

    def play(self) -> None:
        weights = self.weights
        for _ in range(STEPS):
            name = self.random.choices(list(weights), weights=list(weights.values()))[0]
            self.log.append(name)
            self.obeying(name, getattr(self, f"do_{name}"))
            self.check()
            self.remember()
        self.log.append("drain")
        self.drain()
        self.check()
        self.check_end()

    def drain(self) -> None:
        """Stop the faults and end a pause, then run until nothing is left to read and nothing
        waits.
        """
        self.world.fake.faults.clear()
        self.do_resume_application()
        self.job.stop()
        self.world.change(**WIDE)
        self.world.inner.probe_max_shards = PROBE_MAX_SHARDS
        if self.failing is not None:
            self.failing.outage_until_s = 0.0
        self.world.clock.advance(SETTLES_S)
        self.world.note_shards()
        for _ in range(MOST_BATCHES):
            ran = self.run_batch()
            # A query that has ended leaves its batch in the sink, unfinished: it is replayed first.
            if not isinstance(ran, str) and not self.missing() and not self.stuck():
                return
            if not ran:
                self.world.clock.advance(10.0)
