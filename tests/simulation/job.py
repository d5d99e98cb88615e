"""One stream's part in a query. Its driver may die at a write; its tasks may die and run again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_job.driver.query_driver import RETRY_FOR_S
from tests.support.simulated.micro_batch_engine import Crash, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from spark_job.driver.coordinator import Coordinator
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from tests.simulation.query import StreamsQuery
    from tests.simulation.world import SettledTree, World
    from tests.support.simulated.played_outcomes import PlayedOutcomes

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


@dataclass
class StreamJob:
    """It has the deliveries and the sink of this stream. Its sinks read a batch in part, or twice.

    `tracked`: the outcomes of its records, where the application tracks them. `dies_at`: the
    driver's last write, and whether it is done. `before_task` is called with the number of each of
    a batch's tasks that is about to read, from 0. `dies_settled`: the driver dies when it has
    settled a plan of its own. `new`: how many records came first in the last batch, of all that
    are `known`.
    """

    query: StreamsQuery
    world: World
    sink: dict[int, list[Row]] = field(default_factory=dict)
    delivered: list[Row] = field(default_factory=list)
    tracked: PlayedOutcomes | None = None
    dies_at: tuple[int, bool] | None = None
    kept: list[Any] = field(default_factory=list)
    choices: dict[tuple[str, int], bool] = field(default_factory=dict)
    before_task: Callable[[int], object] | None = None
    dies_settled: bool = False
    known: set[str] = field(default_factory=set)
    new: int = 0
    _unread: list[Any] = field(default_factory=list)
    _settling: SettledTree | None = None

    def __post_init__(self) -> None:
        self.query.jobs[self.world.stream] = self

    @property
    def coordinator(self) -> Coordinator:
        """The driver's part for this stream."""
        return self.query.started().coordinators[self.world.stream]

    def stop(self) -> None:
        """The whole query stops."""
        self.query.stop()

    def driver_services(self, settings: SourceSettings) -> ProcessServices:
        """The services of this stream in a driver that starts."""
        store, self._settling = None, None
        if self.dies_at is not None:
            store = self.world.dying_store(self.dies_at[0], after=self.dies_at[1])
        elif self.dies_settled:
            store, self._settling = self.world.store_dying_settled()
        services = (
            self.world.services(store, retry_for_s=RETRY_FOR_S)
            if settings.named_in_ids
            else self.world.services(store)
        )
        services.settings = settings
        return services

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

    def read_new(self, partitions: Sequence[Any]) -> list[Row]:
        """The rows of the batch that are of this stream. Counts the new ones."""
        rows = self.read(partitions)
        ids = {f"{row['shardId']}:{row['sequenceNumber']}" for row in rows} - self.known
        self.new = len(ids)
        self.known |= ids
        wrong = [row for row in rows if not self._is_own(row)]
        assert not wrong, f"stream {self.world.stream} gave {wrong[:2]}"
        return rows

    def _is_own(self, row: Row) -> bool:
        is_ours = self.world.aggregates or row["data"].startswith(self.world.tag + b"record")
        return is_ours and bool(row["streamName"] == self.world.stream)

    def read(self, partitions: Sequence[Any]) -> list[Row]:
        """The rows that this batch's sink reads: the same in each replay. A sink that already has
        the batch may skip its reads.
        """
        random = self.world.random
        if self._settling is not None:
            self._settling.armed = True  # the plan of this batch is the run's own
        begun_s = self.world.clock.monotonic_s()
        if self.tracked is None and self.query.committed + 1 in self.sink and random.random() < 0.3:
            self.world.counts["replays that skip their reads"] += 1
            return self.sink[self.query.committed + 1]
        wanted = [one for one in partitions if self._wants(one)]
        self._unread = [one for one in partitions if not self._wants(one)]
        self.world.counts["tasks that nobody reads"] += len(self._unread)
        self.kept.extend(wanted)
        rows: dict[int, list[Row]] = {}
        for number, one in enumerate(wanted):
            if self.before_task is not None:
                self.before_task(number)
            rows[one.task] = self._attempts(one)
            self._check_replay(one, rows[one.task], begun_s)
        self.delivered.extend(row for one in wanted for row in rows[one.task])
        if random.random() < 0.15:
            self.world.counts["second actions"] += 1
            for one in wanted:
                again = self._attempt(one)
                assert again == rows[one.task] or self._may_differ(begun_s, rows[one.task]), (
                    "a second action has read other rows than the first"
                )
        return [row for one in wanted for row in rows[one.task]]

    def _check_replay(self, partition: Any, rows: list[Row], begun_s: float) -> None:
        """A batch that is replayed, perhaps by another run of the query, has the same rows."""
        first_s, first = self.world.batches.setdefault(
            (partition.plan_id, partition.task), (begun_s, rows)
        )
        if first is not rows:
            self.world.counts["tasks that were replayed"] += 1
        assert first == rows or self._may_differ(first_s, first), (
            "a replay has other rows than its batch"
        )

    def publish_late(self) -> None:
        """Tasks that the report has not seen publish their ends before the plan is closed: a late
        attempt, or a second action. No sink gets their rows.
        """
        for one in self._unread:
            if self.world.random.random() < 0.3:
                self.world.counts["ends that were published after the report"] += 1
                self._attempt(one)

    def _may_differ(self, begun_s: float, rows: list[Row]) -> bool:
        """Whether records may have expired between two attempts that began then, of which the first
        had these rows. Of a backlog at the edge of the retention, some expire at any time.
        """
        there = self.world
        return there.clock.monotonic_s() - begun_s > LATE_S or not there.kept().issuperset(
            name for row in rows for name in there.names(row)
        )

    def _wants(self, partition: Any) -> bool:
        return self.choices.setdefault(
            (partition.plan_id, partition.task), self.world.random.random() < 0.9
        )

    def _attempts(self, partition: Any) -> list[Row]:
        """The rows of a task. Some of its attempts die, before or after one of their writes, or are
        cut off while they yield rows. Others run beside attempts that append between their appends.

        Whatever an attempt has yielded, the one that completes yields too, first.
        """
        random = self.world.random
        begun_s = self.world.clock.monotonic_s()
        earlier: list[list[Row]] = []
        if random.random() < 0.1:
            self.world.counts["task attempts that died"] += 1
            store = self.world.dying_store(random.choice((0, 0, 1, 3)), after=random.random() < 0.5)
            earlier.append(self._cut_off(partition, self.world.services(store), most=1 << 20))
        if random.random() < 0.1:
            self.world.counts["task attempts that were cut off"] += 1
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
        batches = self.query.started().attempt(self.world, partition, services)
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
        random = self.world.random
        begun_s = self.world.clock.monotonic_s()
        rows: list[list[Row]] = []
        others: list[Iterator[pa.RecordBatch]] = []

        def start(services: ProcessServices | None = None) -> Iterator[pa.RecordBatch]:
            rows.append([])
            batches = self.query.started().attempt(
                self.world, partition, services, is_retry=is_retry
            )
            return self._collected(batches, rows[-1])

        def overtake() -> None:
            self.world.counts["task attempts that were overtaken"] += 1
            # A run that is to end has to read only what came before it.
            self.world.clock.advance(0.5)
            self.world.put(3)
            others.append(start())
            self._advance(others[-1], random.choice((0, 1, 2, 1 << 20)))

        store = self.world.overtaken_store(overtake)
        others.append(start(self.world.services(store)))
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
        log = self.world.look().plans.read_log(partition.plan_id, partition.task).log
        subscribed = self.world.service.subscriptions
        batches = self.query.started().attempt(self.world, partition, is_retry=is_retry)
        rows = [row for batch in batches for row in _rows(batch)]
        self.world.counts["subscriptions"] += self.world.service.subscriptions - subscribed
        if is_retry or log is not None:
            assert self.world.service.subscriptions == subscribed, "a replay has subscribed"
        return rows


def _rows(batch: pa.RecordBatch) -> list[Row]:
    """The rows, whose sequence numbers have sub-sequence numbers as message ids do. The ids are
    those of a query of one stream.
    """
    rows: list[Row] = batch.select(COLUMNS).to_pylist()
    for row in rows:
        row["messageId"] = row["messageId"].rpartition("/")[2]
        row["sequenceNumber"] = row["messageId"].split(":")[1]
    return rows
