"""One task of an open plan, and its attempts: the product's task reader over a `SimulatedJob`'s
stream, with state of its own. Fetches run in the thread of the test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from spark_job.executor.task_reader import DEFAULT_PACE, Pace, read_task
from spark_job.process_services import ProcessServices
from state.memory_store import MemoryBackend, MemoryStateStore
from state.plan import Plan, ShardReadResult, ShardSlice, TaskPlan
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.store.ownership import OwnerInfo
from state.task_log import TaskLog
from tests.simulation.in_process import InlineFeed, InlinePool, InProcessClient, Service, wait_in
from tests.support.simulated.simulated_job import APPLICATION, STREAM, SimulatedJob, shard
from tests.support.state.trees import interposed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from kinesis_spout.threads import NewPool
    from state.znodes.topics import StoreTopics

PLAN_ID = "1-ab"
Row = tuple[str, int, int]
"""A row's shard, sequence number and attempt."""

BY_TWOS = Pace(round_bytes=1, held_records=2)
"""Pages of two records, and a round for each."""


def task(*slices: ShardSlice, **limits: Any) -> TaskPlan:
    return TaskPlan(
        shards=slices,
        **({"max_bytes": 2**20, "fetch_time_ms": 5_000, "fetch_cap_ms": 60_000} | limits),
    )


def whole(
    index: int = 0, *, max_records: int = 1_000, position: Position = TRIM_HORIZON, **rest: Any
) -> ShardSlice:
    """A slice of everything that the shard has."""
    return ShardSlice(shard_id=shard(index), position=position, max_records=max_records, **rest)


def after(sequence: int) -> Position:
    return Position.after(SequenceNumber(sequence))


def entry_of(sequences: list[int], *, index: int = 0, **rest: Any) -> ShardReadResult:
    """An entry of these records."""
    fields: dict[str, Any] = {
        "first": SequenceNumber(sequences[0]),
        "last": SequenceNumber(sequences[-1]),
        "count": len(sequences),
    }
    return ShardReadResult(shard_id=shard(index), **(fields | rest))


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [
        (row["shardId"], int(row["sequenceNumber"]), row["attempt"])
        for batch in batches
        for row in batch.select(["shardId", "sequenceNumber", "attempt"]).to_pylist()
    ]


def numbers_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for _, number, _ in rows_of(batches)]


@dataclass
class PlannedTask:
    """A plan of one task. Each instance has state of its own; several may be on one stream."""

    job: SimulatedJob
    plan: TaskPlan
    backend: MemoryBackend = field(default_factory=MemoryBackend)

    def __post_init__(self) -> None:
        self._owner = self.store()
        self._owner.ownership.acquire(OwnerInfo(host="host", pid=1, since_ms=0), timeout_s=1)
        self._owner.plans.create(Plan(plan_id=PLAN_ID, created_ms=1, tasks=(self.plan,)))

    def store(self) -> MemoryStateStore:
        return MemoryStateStore(self.backend, application=APPLICATION, stream=STREAM)

    def overtaken_store(self, act: Callable[[], object]) -> StoreTopics:
        """A store whose process is about to append for the first time when `act` is called."""
        store, tree = interposed(self.store())
        tree.before_write("/end", act)
        return store

    def attempt(
        self,
        *,
        pace: Pace = DEFAULT_PACE,
        store: StoreTopics | None = None,
        service: Service | None = None,
        new_pool: NewPool = InlinePool,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Another attempt of the task, in a process of its own."""
        settings = self.job.settings(**options)
        random = Random(0)  # noqa: S311  # jitter, not a secret
        client = InProcessClient(
            service or Service(self.job.fake), settings, self.job.clock, random
        )
        services = ProcessServices(
            client=client,
            store=store or self.store(),
            clock=self.job.clock,
            settings=settings,
            new_pool=new_pool,
            new_feed=InlineFeed,
            wait_for=wait_in(self.job.clock),
            random=random,
        )
        return read_task(PLAN_ID, 0, self.plan, services=services, pace=pace)

    def append(self, *entries: ShardReadResult, sealed: bool = False) -> None:
        """Append to the log as another attempt does."""
        stored = self._owner.plans.read_log(PLAN_ID, 0)
        log = (stored.log or TaskLog()).extended(entries, seal=sealed)
        self._owner.plans.append_log(PLAN_ID, 0, log, stored.version)

    @property
    def path(self) -> str:
        """Of the log."""
        return self._owner.paths.end(PLAN_ID, 0)

    @property
    def log(self) -> TaskLog:
        """The log as it is stored; empty without one."""
        return self._owner.plans.read_log(PLAN_ID, 0).log or TaskLog()

    @property
    def ends(self) -> dict[str, ShardReadResult]:
        """What the log says was read, by shard."""
        return {end.shard_id: end for end in self.log.folded().shards}

    def close_plan(self) -> None:
        self._owner.plans.close(PLAN_ID)
