"""Spark's micro-batch loop without Spark: its two logs, its calls to the source, its replay after a
crash.

As `MicroBatchExecution` does it: an offset is logged before its batch runs, and a batch is logged
as committed after its sink is done. A restart runs the last logged batch again when it is not
committed. The source under test is the product's own reader with its real ZooKeeper and its HTTP
client.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_job.data_source import KinesisStreamReader
from spark_job.settings import QuerySettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.settings import SourceSettings
    from tests.support.simulated.played_outcomes import PlayedOutcomes

CRASHES = ("planned", "logged", "partitioned", "read", "sunk", "committed")
TRACKED_CRASHES = (
    "planned",
    "logged",
    "partitioned",
    "read",
    "opened",
    "reported",
    "sunk",
    "committed",
)
Row = dict[str, Any]


class Crash(Exception):  # noqa: N818  # it is the event that a test injects, no error
    """The driver has died."""


@dataclass
class MicroBatchEngine:
    """`offsets` and `committed` are the checkpoint location. `sink` is keyed by batch id, so a
    replay overwrites its batch.

    `tracked`: the outcomes of a batch's records, where the application tracks them; the sink gets
    the processed ones.
    """

    settings: SourceSettings
    available_now: bool = False
    offsets: list[dict[str, Any]] = field(default_factory=list)
    committed: int = -1
    sink: dict[int, list[Row]] = field(default_factory=dict)
    delivered: list[Row] = field(default_factory=list)
    reader: KinesisStreamReader | None = None
    tracked: PlayedOutcomes | None = None

    def start(self) -> None:
        self.reader = KinesisStreamReader(QuerySettings.of([self.settings]))
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()

    def stop(self) -> None:
        if self.reader is not None:
            self.reader.stop()
            self.reader = None

    def run_batch(self, crash_at: str | None = None) -> bool | str:
        """Replay or run one batch; returns False when there was nothing new. Raises `Crash` where
        the test asks for one.
        """
        if self.reader is None:
            self.start()
        assert self.reader is not None
        batch = self.committed + 1
        start = self.offsets[batch - 1] if batch else self.reader.initialOffset()
        if batch == len(self.offsets):
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            if end == start:
                return False
            self._crash(crash_at, "planned")
            self.offsets.append(end)
        self._crash(crash_at, "logged")
        partitions = self.reader.partitions(start, self.offsets[batch])
        self._crash(crash_at, "partitioned")
        rows = self.read(partitions)
        self._crash(crash_at, "read")
        if self.tracked is not None:
            rows = self.tracked.play(rows, lambda step: self._crash(crash_at, step))
        self.finish(batch, rows)
        self._crash(crash_at, "sunk")
        self.committed = batch
        self._crash(crash_at, "committed")
        return True

    def finish(self, batch: int, rows: list[Row]) -> None:
        """The sink is done with the batch."""
        self.sink[batch] = rows

    def run_until_idle(self, most: int = 500) -> int:
        """Run batches until there is nothing new; returns how many ran."""
        for ran in range(most):
            if not self.run_batch():
                return ran
        raise AssertionError(f"still not idle after {most} batches")

    def read(self, partitions: Sequence[Any]) -> list[Row]:
        """The rows that the executors would read. The reader is pickled for them, as in Spark."""
        assert self.reader is not None
        executor_side = pickle.loads(pickle.dumps(self.reader))  # noqa: S301  # our own bytes
        rows: list[Row] = []
        for partition in partitions:
            sent = pickle.loads(pickle.dumps(partition))  # noqa: S301  # our own bytes
            for record_batch in executor_side.read(sent):
                rows.extend(record_batch.to_pylist())
        self.delivered.extend(rows)
        return rows

    def forget_checkpoint_location(self) -> None:
        """A new checkpoint location: Spark has no record of any batch. The sink is a
        new one too.
        """
        self.stop()
        self.offsets, self.committed = [], -1

    def _crash(self, wanted: str | None, here: str) -> None:
        if wanted == here:
            self.stop()
            raise Crash(here)
