"""A query of several streams in simulated worlds: the product's readers of several streams and of
one, and for each stream the job that its history sees.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import KinesisError
from spark_job.data_source import KinesisStreamReader
from spark_job.driver.query_driver import RETRY_FOR_S, QueryDriver, read_offset
from spark_job.query_failure import StreamError
from spark_job.settings import QuerySettings
from state.errors import StateError, StoreUnavailableError
from tests.simulation.in_process import InlinePool
from tests.simulation.job import SimulatedJob, SimulatedReader, session_of
from tests.support.simulated.micro_batch_engine import MicroBatchEngine, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from random import Random

    import pyarrow as pa

    from kinesis_spout.threads import NewPool
    from spark_job.driver.coordinator import Coordinator
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from tests.simulation.world import World


@dataclass
class Running:
    """`stream`: the one whose code runs now. `raised`: those whose code has raised an error in this
    batch. `failed`: the one whose error has ended the query, and whether a task raised it.
    """

    stream: str = ""
    raised: set[str] = field(default_factory=set)
    failed: str = ""
    in_task: bool = False

    def begin(self) -> None:
        self.failed, self.in_task = "", False
        self.raised.clear()

    @contextmanager
    def of(self, stream: str, *, in_task: bool = False) -> Iterator[None]:
        before, self.stream = self.stream, stream
        try:
            yield
        except Exception:
            self.raised.add(stream)
            self.in_task = self.in_task or in_task
            raise
        finally:
            self.stream = before


class StreamPool(InlinePool):
    """Notes whose step runs."""

    def __init__(self, running: Running) -> None:
        super().__init__()
        self._running = running

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def run() -> Any:
            with self._running.of(args[0].settings.stream.name):
                return fn(*args, **kwargs)

        return super().submit(run)


class SimulatedStreamsReader(KinesisStreamReader):
    """The product's reader of several streams in their worlds."""

    def __init__(
        self,
        query: QuerySettings,
        worlds: Sequence[World],
        coordinators: Sequence[Coordinator],
        new_pool: NewPool,
    ) -> None:
        super().__init__(query)
        self._worlds = worlds
        self.coordinators = {one.settings.stream.name: one for one in coordinators}
        self._driver = QueryDriver(query, coordinators, new_pool=new_pool)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The driver asks for no record of a stream during its pause, and plans none."""
        paused = [(one, one.service.reads) for one in self._worlds if one.is_paused]
        offset = super().latestOffset(start, limit)
        for world, reads in paused:
            world.counts["polls during a pause"] += 1
            assert world.service.reads == reads, "the driver has read during a pause"
            name = world.settings.state_name
            before, after = (read_offset(one).get(name) for one in (start, offset))
            assert before in (None, after), "the driver has planned during a pause"
        return offset


class StreamView(SimulatedReader):
    """The reader of a query of several streams as the history of one of them sees it."""

    def __init__(self, query: StreamsQuery, job: StreamJob, reader: SimulatedStreamsReader) -> None:
        KinesisStreamReader.__init__(self, reader._query)
        self._world = job.there
        self.coordinator = reader.coordinators[job.there.stream]
        self._driver = reader.driver
        self._reader = reader
        self._running = query.running

    @property
    def sessions(self) -> list[int]:
        return [session_of(one) for one in self._reader.coordinators.values()]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        return self._reader.initialOffset()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802  # Spark's name
        with own_errors():
            return self._reader.latestOffset(start, limit)

    def read(
        self, partition: Any, services: ProcessServices | None = None, *, is_retry: bool = False
    ) -> Iterator[pa.RecordBatch]:
        with self._naming_errors():
            batches = super().read(partition, services, is_retry=is_retry)
        while True:
            with self._naming_errors(), self._running.of(self._world.stream, in_task=True):
                batch = next(batches, None)
            if batch is None:
                return
            ids = batch.column("messageId").to_pylist()
            assert all(one.startswith(f"{self._world.stream}/") for one in ids), ids[:2]
            yield batch

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        """A task's error names its stream."""
        try:
            with own_errors():
                yield
        except (KinesisError, StateError) as error:
            told = str(error.__cause__ if isinstance(error.__cause__, StreamError) else error)
            assert f"stream {self._world.stream}" in told or f"/{self._world.stream}" in told, told
            raise

    def stop(self) -> None:
        self._reader.stop()


@contextmanager
def own_errors() -> Iterator[None]:
    """The error of a stream, as a query of this stream alone would have raised it."""
    try:
        yield
    except StreamError as error:
        cause = error.__cause__
        if cause is None:
            raise
        raise cause from error


def of_query(name: str) -> property:
    """A field of a stream's job that is the query's."""

    def change(job: StreamJob, value: object) -> None:
        setattr(job.query, name, value)

    return property(lambda job: getattr(job.query, name), change)


class StreamJob(SimulatedJob):
    """One stream's part in a query. It starts, runs and stops with the whole query, and has the
    deliveries and the sink of this stream.
    """

    def __init__(self, query: StreamsQuery, world: World) -> None:
        self.query = query
        super().__init__(world.settings, world=world)
        self.known: set[str] = set()
        self.new = 0
        query.jobs[world.stream] = self

    @property
    def is_read(self) -> bool:
        """Whether the query reads the stream now."""
        return self.there.stream in self.query.active

    @property
    def reader(self) -> KinesisStreamReader | None:
        return self.query.views.get(self.there.stream) if self.query.reader else None

    @reader.setter
    def reader(self, reader: KinesisStreamReader | None) -> None:
        assert reader is None
        self.query.reader = None

    offsets: Any = of_query("offsets")
    committed: Any = of_query("committed")
    available_now: Any = of_query("available_now")

    def start(self) -> None:
        self.query.start()

    def stop(self) -> None:
        self.query.stop()

    def run_batch(self, crash_at: str | None = None) -> bool | str:
        return self.query.run_of(self, crash_at)

    def forget_checkpoint_location(self) -> None:
        self.query.forget_checkpoint_location()

    def driver_services(self, settings: SourceSettings) -> ProcessServices:
        """The services of this stream in a driver that starts."""
        store, self._settling = None, None
        if self.dies_at is not None:
            store = self.there.dying_store(self.dies_at[0], after=self.dies_at[1])
        elif self.dies_settled:
            store, self._settling = self.there.store_dying_settled()
        if not settings.named_in_ids:
            return self.there.services(store)
        services = self.there.services(store, retry_for_s=RETRY_FOR_S)
        services.settings = settings
        return services

    def read_stream(self, partitions: Sequence[Any]) -> list[Row]:
        """The rows of the batch that are of this stream. `new`: how many come first in it."""
        rows = self.read(partitions)
        ids = {f"{row['shardId']}:{row['sequenceNumber']}" for row in rows} - self.known
        self.new = len(ids)
        self.known |= ids
        wrong = [row for row in rows if not self._is_own(row)]
        assert not wrong, f"stream {self.there.stream} gave {wrong[:2]}"
        return rows

    def _is_own(self, row: Row) -> bool:
        world = self.there
        is_ours = world.aggregates or row["data"].startswith(world.tag + b"record")
        return row["streamName"] == world.stream and is_ours


class StreamsOutcomes:
    """The outcomes of a batch of several streams: those of each stream. The query may die between
    those of two of them.
    """

    def __init__(self, query: StreamsQuery) -> None:
        self._query = query

    def play(self, rows: Sequence[Row], on_step: Callable[[str], None]) -> list[Row]:
        jobs = self._query.active_jobs()
        dies_in = self._query.random.randrange(len(jobs))
        processed: list[Row] = []
        for number, job in enumerate(jobs):
            assert job.tracked is not None
            step = partial(self._step, job, on_step if number == dies_in else None)
            own = [row for row in rows if row["streamName"] == job.there.stream]
            with self._query.running.of(job.there.stream):
                processed += job.tracked.play(own, step)
        return processed

    @staticmethod
    def _step(job: StreamJob, on_step: Callable[[str], None] | None, step: str) -> None:
        if on_step is not None:
            on_step(step)
        if step == "reported":
            job.publish_late()


@dataclass
class StreamsQuery(MicroBatchEngine):
    """The engine. `active`: the streams that the query reads, in the order in which it names them.
    `max_records`: of a batch, over all streams. `on_batch`: what a history notes after each run,
    and of an error that another stream than its own has raised.
    """

    random: Random = field(default=None)  # type: ignore[assignment]  # always given
    max_records: int | None = None
    jobs: dict[str, StreamJob] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    views: dict[str, SimulatedReader] = field(default_factory=dict)
    running: Running = field(default_factory=Running)
    run_of: Callable[[StreamJob, str | None], bool | str] = lambda _, __: False
    on_forget: Callable[[], None] = lambda: None

    def track(self) -> None:
        """Its jobs have outcomes; a batch has those of all streams."""
        outcomes: Any = StreamsOutcomes(self)
        self.tracked = outcomes

    def active_jobs(self) -> list[StreamJob]:
        return [self.jobs[stream] for stream in self.active]

    # starting and stopping ------------------------------------------------------------------------
    def start(self) -> None:
        jobs = self.active_jobs()
        if len(jobs) == 1:
            (job,) = jobs
            services = job.driver_services(job.there.settings)
            alone = SimulatedReader(job.there, services)
            self.views, self.reader = {job.there.stream: alone}, alone
        else:
            query = QuerySettings.of([job.there.settings for job in jobs])
            several = SimulatedStreamsReader(
                replace(query, max_records=self.max_records),
                [job.there for job in jobs],
                [
                    job.there.coordinator(job.driver_services(one))
                    for job, one in zip(jobs, query.streams, strict=True)
                ],
                lambda *_: StreamPool(self.running),
            )
            self.reader = several
            self.views = {job.there.stream: StreamView(self, job, several) for job in jobs}
        assert self.reader is not None
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()

    def stop(self) -> None:
        super().stop()
        self.views = {}

    def forget_checkpoint_location(self) -> None:
        super().forget_checkpoint_location()
        for job in self.jobs.values():
            job.sink = {}
        self.on_forget()

    # a batch --------------------------------------------------------------------------------------
    @property
    def is_unfinished(self) -> bool:
        """Whether Spark repeats a batch first."""
        return len(self.offsets) > self.committed + 1

    def run_batch(self, crash_at: str | None = None) -> bool | str:
        """As `MicroBatchEngine.run_batch`. The error of a stream is raised as its own."""
        self.running.begin()
        try:
            with own_errors():
                return super().run_batch(crash_at)
        except (KinesisError, StateError) as error:
            self._note_failed(error)
            raise

    def _note_failed(self, error: Exception) -> None:
        """Of several streams that have raised errors, the query's names its own."""
        joint = error.__context__
        told = str(joint if isinstance(joint, StreamError) else error)
        raised = self.running.raised
        named = [stream for stream in self.active if stream in raised and stream in told]
        # The streams share a store, and a task's error of it is not of one of them.
        if len(self.active) > 1 and raised and not isinstance(error, StoreUnavailableError):
            assert named, f"an error does not name its stream, one of {raised}: {told}"
        self.running.failed = (named or sorted(raised) or self.active)[0]

    def read(self, partitions: Sequence[Any]) -> list[Row]:
        jobs = self.active_jobs()
        rows: list[Row] = []
        for number, job in enumerate(jobs):
            own = [one for one in partitions if one.stream == number]
            with self.running.of(job.there.stream):
                rows += job.read_stream(own)
        self._check_limit(jobs)
        return rows

    def _check_limit(self, jobs: Sequence[StreamJob]) -> None:
        """A batch has no more new records than it may have. Those of an aggregate come together."""
        if self.max_records is None or len(jobs) == 1:
            return
        if "plan" in self.offsets[-1]:
            return  # a query of one stream has planned it, which has a limit of its own
        if any(job.there.aggregates for job in jobs):
            return
        new = sum(job.new for job in jobs)
        jobs[0].there.counts["batches whose limit was checked"] += 1
        assert new <= self.max_records, f"a batch has {new} new records, not {self.max_records}"

    def finish(self, batch: int, rows: list[Row]) -> None:
        for job in self.active_jobs():
            job.sink[batch] = [row for row in rows if row["streamName"] == job.there.stream]
