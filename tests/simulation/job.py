"""Spark's loop over the product's reader in a world. Its driver may die at a write; its tasks may
die and run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_job.data_source import KinesisStreamReader, TaskPartition
from spark_job.driver.query_driver import QueryDriver
from spark_job.executor.task_reader import read_task
from spark_job.settings import QuerySettings
from tests.support.simulated.micro_batch_engine import Crash, MicroBatchEngine, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from spark_job.driver.coordinator import Coordinator
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from tests.simulation.world import SettledTree, World

LATE_S = 3_600.0
COLUMNS = [
    "streamName",
    "shardId",
    "sequenceNumber",
    "partitionKey",
    "data",
    "attempt",
    "messageId",
]


class SimulatedReader(KinesisStreamReader):
    """The product's reader with the simulated connections of a driver and its executors."""

    def __init__(self, world: World, services: ProcessServices) -> None:
        super().__init__(QuerySettings.of([world.settings]))
        self._world = world
        self.coordinator = world.coordinator(services)  # of this history's stream
        self._driver = QueryDriver(self._query, [self.coordinator])

    @property
    def own_settings(self) -> SourceSettings:
        return next(one for one in self._query.streams if one.stream.name == self._world.stream)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The driver asks for no record during a pause, and plans nothing."""
        reads, is_paused = self._world.service.reads, self._world.is_paused
        offset = super().latestOffset(start, limit)
        if is_paused:
            self._world.counts["polls during a pause"] += 1
            assert self._world.service.reads == reads, "the driver has read during a pause"
            assert offset == start, "the driver has planned during a pause"
        return offset

    def read(
        self, partition: Any, services: ProcessServices | None = None, *, is_retry: bool = False
    ) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskPartition)
        services = services or self._world.executor()
        services.settings = self.own_settings
        return read_task(
            partition.plan_id,
            partition.task,
            partition.plan,
            services=services,
            pace=self._world.drawn_pace(),
            is_retry=is_retry,
        )

    @property
    def session(self) -> int:
        """The driver's session at the store."""
        return session_of(self.coordinator)

    @property
    def sessions(self) -> list[int]:
        """All sessions of the driver: one for each stream."""
        return [self.session]


def session_of(coordinator: Coordinator) -> int:
    return int(coordinator._store._tree.session_id())


@dataclass
class SimulatedJob(MicroBatchEngine):
    """An engine whose sinks read a batch in part, or twice. `dies_at`: the driver's last write, and
    whether it is done. `before_task` is called with the number of each of a batch's tasks that is
    about to read, from 0. `dies_settled`: the driver dies when it has settled a plan of its own.
    """

    world: World | None = None
    dies_at: tuple[int, bool] | None = None
    kept: list[Any] = field(default_factory=list)
    choices: dict[tuple[str, int], bool] = field(default_factory=dict)
    before_task: Callable[[int], object] | None = None
    dies_settled: bool = False
    _unread: list[Any] = field(default_factory=list)
    _settling: SettledTree | None = None

    @property
    def there(self) -> World:
        assert self.world is not None
        return self.world

    def start(self) -> None:
        store, self._settling = None, None
        if self.dies_at is not None:
            store = self.there.dying_store(self.dies_at[0], after=self.dies_at[1])
        elif self.dies_settled:
            store, self._settling = self.there.store_dying_settled()
        self.reader = SimulatedReader(self.there, self.there.services(store))
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()

    def start_over(self) -> None:
        """Forget the outcomes of a stream that was deleted."""
        self.delivered, self.sink, self.kept = [], {}, []
        if self.tracked is not None:
            for told in (
                self.tracked.calls,
                self.tracked.letters,
                self.tracked.gone,
                self.tracked.done,
            ):
                told.clear()

    def read(self, partitions: Sequence[Any]) -> list[Row]:
        """The rows that this batch's sink reads: the same in each replay. A sink that already has
        the batch may skip its reads.
        """
        random = self.there.random
        if self._settling is not None:
            self._settling.armed = True  # the plan of this batch is the run's own
        begun_s = self.there.clock.monotonic_s()
        if self.tracked is None and self.committed + 1 in self.sink and random.random() < 0.3:
            self.there.counts["replays that skip their reads"] += 1
            return self.sink[self.committed + 1]
        wanted = [one for one in partitions if self._wants(one)]
        self._unread = [one for one in partitions if not self._wants(one)]
        self.there.counts["tasks that nobody reads"] += len(self._unread)
        self.kept.extend(wanted)
        rows: dict[int, list[Row]] = {}
        for number, one in enumerate(wanted):
            if self.before_task is not None:
                self.before_task(number)
            rows[one.task] = self._attempts(one)
            self._check_replay(one, rows[one.task], begun_s)
        self.delivered.extend(row for one in wanted for row in rows[one.task])
        if random.random() < 0.15:
            self.there.counts["second actions"] += 1
            for one in wanted:
                again = self._attempt(one)
                assert again == rows[one.task] or self._may_differ(begun_s, rows[one.task]), (
                    "a second action has read other rows than the first"
                )
        return [row for one in wanted for row in rows[one.task]]

    def _check_replay(self, partition: Any, rows: list[Row], begun_s: float) -> None:
        """A batch that is replayed, perhaps by another run of the query, has the same rows."""
        first_s, first = self.there.batches.setdefault(
            (partition.plan_id, partition.task), (begun_s, rows)
        )
        if first is not rows:
            self.there.counts["tasks that were replayed"] += 1
        assert first == rows or self._may_differ(first_s, first), (
            "a replay has other rows than its batch"
        )

    def _crash(self, wanted: str | None, here: str) -> None:
        super()._crash(wanted, here)
        if here == "reported":
            self.publish_late()

    def publish_late(self) -> None:
        """Tasks that the report has not seen publish their ends before the plan is closed: a late
        attempt, or a second action. No sink gets their rows.
        """
        for one in self._unread:
            if self.there.random.random() < 0.3:
                self.there.counts["ends that were published after the report"] += 1
                self._attempt(one)

    def _may_differ(self, begun_s: float, rows: list[Row]) -> bool:
        """Whether records may have expired between two attempts that began then, of which the first
        had these rows. Of a backlog at the edge of the retention, some expire at any time.
        """
        there = self.there
        return there.clock.monotonic_s() - begun_s > LATE_S or not there.kept().issuperset(
            name for row in rows for name in there.names(row)
        )

    def _wants(self, partition: Any) -> bool:
        return self.choices.setdefault(
            (partition.plan_id, partition.task), self.there.random.random() < 0.9
        )

    def _attempts(self, partition: Any) -> list[Row]:
        """The rows of a task. Some of its attempts die, before or after one of their writes, or are
        cut off while they yield rows. Others run beside attempts that append between their appends.

        Whatever an attempt has yielded, the one that completes yields too, first.
        """
        random = self.there.random
        begun_s = self.there.clock.monotonic_s()
        earlier: list[list[Row]] = []
        if random.random() < 0.1:
            self.there.counts["task attempts that died"] += 1
            store = self.there.dying_store(random.choice((0, 0, 1, 3)), after=random.random() < 0.5)
            earlier.append(self._cut_off(partition, self.there.services(store), most=1 << 20))
        if random.random() < 0.1:
            self.there.counts["task attempts that were cut off"] += 1
            earlier.append(self._cut_off(partition, None, most=random.choice((1, 2, 5))))
        # Spark says so of the attempts of one batch; of those of another run, it knows nothing.
        is_retry = bool(earlier)
        rows = (
            self._racing_attempts(partition, is_retry=is_retry)
            if random.random() < 0.1
            else self._attempt(partition, is_retry=is_retry)
        )
        assert all(rows[: len(cut)] == cut or self._may_differ(begun_s, cut) for cut in earlier), (
            "an attempt has yielded other rows than one that was cut off"
        )
        return rows

    def _cut_off(self, partition: Any, services: ProcessServices | None, *, most: int) -> list[Row]:
        """The rows of an attempt that dies, or whose consumer stops after so many batches."""
        rows: list[Row] = []
        batches = self._reader().read(partition, services)
        try:
            for number, batch in enumerate(batches, start=1):
                rows.extend(_rows(batch))
                if number == most:
                    break
        except Crash:
            pass
        return rows

    def _racing_attempts(self, partition: Any, *, is_retry: bool) -> list[Row]:
        """The rows of one of two or three attempts that take turns, batch by batch, and append
        between each other's reads and appends.
        """
        random = self.there.random
        begun_s = self.there.clock.monotonic_s()
        rows: list[list[Row]] = []
        others: list[Iterator[pa.RecordBatch]] = []

        def start(services: ProcessServices | None = None) -> Iterator[pa.RecordBatch]:
            rows.append([])
            batches = self._reader().read(partition, services, is_retry=is_retry)
            return self._collected(batches, rows[-1])

        def overtake() -> None:
            self.there.counts["task attempts that were overtaken"] += 1
            # A run that is to end has to read only what came before it.
            self.there.clock.advance(0.5)
            self.there.put(3)
            others.append(start())
            self._advance(others[-1], random.choice((0, 1, 2, 1 << 20)))

        store = self.there.overtaken_store(overtake)
        others.append(start(self.there.services(store)))
        first = others[0]
        while next(first, None) is not None:
            for other in others[1:]:
                self._advance(other, random.choice((0, 0, 1, 2)))
        assert all(
            rows[0][: len(other)] == other or self._may_differ(begun_s, other) for other in rows
        ), "an overtaken attempt has read other rows than the other one"
        return rows[0]

    @staticmethod
    def _collected(batches: Iterator[pa.RecordBatch], rows: list[Row]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows.extend(_rows(batch))
            yield batch

    @staticmethod
    def _advance(batches: Iterator[pa.RecordBatch], most: int) -> None:
        for _ in zip(range(most), batches, strict=False):
            pass

    def _attempt(self, partition: Any, *, is_retry: bool = False) -> list[Row]:
        """The rows of an attempt that completes. One that reads what was published polls."""
        log = self.there.look().plans.read_log(partition.plan_id, partition.task).log
        subscribed = self.there.service.subscriptions
        batches = self._reader().read(partition, is_retry=is_retry)
        rows = [row for batch in batches for row in _rows(batch)]
        self.there.counts["subscriptions"] += self.there.service.subscriptions - subscribed
        if is_retry or log is not None:
            assert self.there.service.subscriptions == subscribed, "a replay has subscribed"
        return rows

    def _reader(self) -> SimulatedReader:
        assert isinstance(self.reader, SimulatedReader)
        return self.reader


def _rows(batch: pa.RecordBatch) -> list[Row]:
    """The rows, whose sequence numbers have sub-sequence numbers as message ids do. The ids are
    those of a query of one stream.
    """
    rows: list[Row] = batch.select(COLUMNS).to_pylist()
    for row in rows:
        row["messageId"] = row["messageId"].rpartition("/")[2]
        row["sequenceNumber"] = row["messageId"].split(":")[1]
    return rows
