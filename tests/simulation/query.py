"""A query of one stream or several in simulated worlds: the product's reader, and Spark's loop over
it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import KinesisError
from spark_job.data_source import KinesisStreamReader, TaskPartition
from spark_job.driver.query_driver import QueryDriver, read_offset
from spark_job.executor.task_reader import read_task
from spark_job.query_failure import StreamError
from spark_job.settings import QuerySettings
from state.errors import StateError, StoreUnavailableError
from tests.simulation.in_process import InlinePool
from tests.support.simulated.micro_batch_engine import MicroBatchEngine, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from random import Random

    import pyarrow as pa

    from spark_job.process_services import ProcessServices
    from tests.simulation.job import StreamJob
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


class SimulatedReader(KinesisStreamReader):
    """The product's reader with the simulated connections of a driver and its executors."""

    def __init__(self, query: StreamsQuery, jobs: Sequence[StreamJob]) -> None:
        settings = QuerySettings.of([job.world.settings for job in jobs])
        if len(jobs) > 1:
            settings = replace(settings, max_records=query.max_records)
        super().__init__(settings)
        self._worlds = [job.world for job in jobs]
        self._running = query.running
        coordinators = [
            job.world.coordinator(job.driver_services(one))
            for job, one in zip(jobs, settings.streams, strict=True)
        ]
        self.coordinators = {one.settings.stream.name: one for one in coordinators}
        self._driver = QueryDriver(
            settings, coordinators, new_pool=lambda *_: StreamPool(query.running)
        )

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The driver asks for no record of a stream during its pause, and plans none."""
        paused = [(one, one.service.reads) for one in self._worlds if one.is_paused]
        with own_errors():
            offset = super().latestOffset(start, limit)
        for world, reads in paused:
            world.counts["polls during a pause"] += 1
            assert world.service.reads == reads, "the driver has read during a pause"
            before, after = (self._plan_in(one, world) for one in (start, offset))
            assert before in (None, after), "the driver has planned during a pause"
        return offset

    def _plan_in(self, offset: dict[str, Any], world: World) -> str | None:
        plans = read_offset(offset)
        of_one = plans.get("") if self._query.is_of_one else None
        return plans.get(world.settings.state_name, of_one)

    def attempt(
        self,
        world: World,
        partition: Any,
        services: ProcessServices | None = None,
        *,
        is_retry: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The batches of an attempt of a task of this world's stream, perhaps of an earlier run,
        which had other streams.
        """
        assert isinstance(partition, TaskPartition)
        services = services or world.executor()
        services.settings = self.coordinators[world.stream].settings
        with self._naming_errors(world):
            batches = read_task(
                partition.plan_id,
                partition.task,
                partition.plan,
                services=services,
                pace=world.drawn_pace(),
                is_retry=is_retry,
            )
        while True:
            with self._naming_errors(world), self._running.of(world.stream, in_task=True):
                batch = next(batches, None)
            if batch is None:
                return
            ids = batch.column("messageId").to_pylist()
            prefix = "" if self._query.is_of_one else f"{world.stream}/"
            assert all(one.startswith(prefix) for one in ids), ids[:2]
            yield batch

    @contextmanager
    def _naming_errors(self, world: World) -> Iterator[None]:
        """A task's error names its stream, if there are several."""
        try:
            with own_errors():
                yield
        except (KinesisError, StateError) as error:
            told = str(error.__cause__ if isinstance(error.__cause__, StreamError) else error)
            is_named = f"stream {world.stream}" in told or f"/{world.stream}" in told
            assert is_named or self._query.is_of_one, told
            raise

    @property
    def sessions(self) -> dict[str, int]:
        """The driver's session at the store, for each stream."""
        return {
            stream: int(one._store._tree.session_id()) for stream, one in self.coordinators.items()
        }


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


class StreamsOutcomes:
    """The outcomes of a batch: those of each stream. The query may die between those of two of
    them.
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
            own = [row for row in rows if row["streamName"] == job.world.stream]
            with self._query.running.of(job.world.stream):
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
    `max_records`: of a batch, over all streams, if these are several. `run_of`: runs a batch in a
    step of one stream. `on_forget`: the checkpoint location is a new one.
    """

    random: Random = field(default=None)  # type: ignore[assignment]  # always given
    max_records: int | None = None
    jobs: dict[str, StreamJob] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    running: Running = field(default_factory=Running)
    run_of: Callable[[StreamJob, str | None], bool | str] = lambda _, __: False
    on_forget: Callable[[], None] = lambda: None
    is_of_one: bool = field(default=False, init=False)  # as its last batch was planned

    def track(self) -> None:
        """Its jobs have outcomes; a batch has those of all streams."""
        outcomes: Any = StreamsOutcomes(self)
        self.tracked = outcomes

    def active_jobs(self) -> list[StreamJob]:
        return [self.jobs[stream] for stream in self.active]

    def start(self) -> None:
        self.reader = SimulatedReader(self, self.active_jobs())
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()

    def started(self) -> SimulatedReader:
        """Its reader. It starts if need be."""
        if self.reader is None:
            self.start()
        assert isinstance(self.reader, SimulatedReader)
        return self.reader

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
        if not self.is_unfinished:
            self.is_of_one = len(self.active) == 1
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
            with self.running.of(job.world.stream):
                rows += job.read_new(own)
        self._check_limit(jobs)
        return rows

    def _check_limit(self, jobs: Sequence[StreamJob]) -> None:
        """A batch has no more new records than it may have. Those of an aggregate come together."""
        if self.max_records is None or len(jobs) == 1:
            return
        if self.is_of_one:
            return  # a query of one stream has a limit of its own, and a crash can leave its batch
        if any(job.world.aggregates for job in jobs):
            return
        new = sum(job.new for job in jobs)
        jobs[0].world.counts["batches whose limit was checked"] += 1
        assert new <= self.max_records, f"a batch has {new} new records, not {self.max_records}"

    def finish(self, batch: int, rows: list[Row]) -> None:
        for job in self.active_jobs():
            job.sink[batch] = [row for row in rows if row["streamName"] == job.world.stream]
