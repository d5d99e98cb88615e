"""Cost of a batch in the Spark source's driver, by the number of shards.

    python benchmarks/shards.py [--shards N,N,...] [--batches N] [--json]

The driver's coordinator plans and settles batches of a stream on FakeKinesis, with its state in an
embedded ZooKeeper; both are processes of their own. Instead of executors, this program writes the
tasks' logs: three records of each busy shard, the tip of each idle one. `busy`: all shards have
records. `idle`: all but five are at their tips. Each row is a process of its own and shows medians
over the batches, without the first three.

- `list`: a listing of the shards, which is due every `shardRefreshInterval` (here: each batch).
- `settle`, `look` (which shards to read, with probes), `plan`: the other parts of `latestOffset`.
- `history`: writing an entry of the history that `checkpoint history` shows. It is written every 10
  seconds at most, and for 2 % of the time at most; here it is written after each batch.
- `tasks`: `partitions`.
- `driver`: settle, look, plan and tasks. `x`: `driver` by shard, as a ratio to the row before.
  `hist %`: `history` as a share of `driver` and `history`, so at the most that it can be.
- `B/shard`: bytes of the plan by planned shard. `MB`: growth of the process up to its peak.
- `reads`, `states`: znodes that are read, and shard states that are written, by batch. `multis`:
  transactions of the driver and of the executors. `ops`: the most operations of one.
- `w/task`: transactions by task, without those of shard states.
- `kB`: that the driver writes by batch, without the history. `hist kB`: of an entry of the history.
  `B/state`: `hist kB` by shard state.
- `waiting`: CPU of the driver while it waits for new records and all shards are idle, in percent of
  a core.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from kinesis_spout.clock import SystemClock
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer, FakeKinesisSettings
from kinesis_spout.testing.service import requests
from spark_job import KinesisSource
from spark_job.driver.backlog import PROBE_MAX_SHARDS, Backlog, Found
from spark_job.driver.coordinator import Coordinator
from spark_job.driver.query_driver import QueryDriver
from spark_job.process_services import ProcessServices
from spark_job.settings import QuerySettings, SourceSettings
from state.codec.values import encode_unchecked
from state.plan import ShardReadResult
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from state.znodes.tree import Check
from state.zookeeper import embedded as embedded_zookeeper
from state.zookeeper.tree import ZookeeperTree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from multiprocessing.connection import Connection

    from state.plan import Plan, TaskPlan
    from state.store.identity import StartPin
    from state.znodes.tree import Operation, Znode

CLOCK = SystemClock()
WARM_UP, FEW, RECORDS = 3, 5, 3
ITERATOR = "i" * 224  # as long as the service's
FIRST = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898


class CountedTree(ZookeeperTree):
    """Counts requests and what they are for."""

    def __init__(self, address: str) -> None:
        super().__init__(
            address, session_timeout_s=30, operation_timeout_s=30, connect_timeout_s=30
        )
        self.counts: Counter[str] = Counter()
        self.is_history = False
        self.max_operations = 0

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self.counts["reads"] += len(paths)
        return super().read(paths)

    def commit(self, operations: Sequence[Operation]) -> None:
        writes = [one for one in operations if not isinstance(one, Check)]
        states = sum(one.path.endswith("/state") for one in writes)
        self.counts["multis"] += 1
        self.counts["other multis"] += bool(writes) and not states
        self.counts["states"] += states
        kind = "history bytes" if self.is_history else "bytes"
        self.counts[kind] += sum(len(getattr(one, "data", b"")) for one in writes)
        self.max_operations = max(self.max_operations, len(operations))
        super().commit(operations)


class TimedBacklog(Backlog):
    """Measures how long it takes to find which shards are due."""

    timed: Callable[[str], AbstractContextManager[None]]

    def _due_shards(self, shards: Sequence[str]) -> Sequence[str]:
        with self.timed("look"):
            return super()._due_shards(shards)


def next_plan(coordinator: Coordinator, start: str) -> str:
    """The plan that a query of this stream alone makes next."""
    driver = QueryDriver(QuerySettings.of([coordinator.settings]), [coordinator])
    return str(driver.next_offset({"format": 1, "plan": start}, max_records=None)["plan"])


class TimedCoordinator(Coordinator):
    """Measures the parts of `next_plan`, in seconds."""

    def __init__(
        self, settings: SourceSettings, services: ProcessServices, tree: CountedTree
    ) -> None:
        super().__init__(settings, services)
        self.tree = tree
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        self._backlog = TimedBacklog(
            settings,
            services,
            tips=self._tips,
            catalog=self._catalog,
            outcomes=self._outcomes,
            retries=self._retries,
        )
        self._backlog.timed = self.timed
        self._recorded = self.session.record_history
        self.session.record_history = self._record_history  # type: ignore[method-assign]  # timed

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        begun_s = time.perf_counter()
        try:
            yield
        finally:
            self.spent_s[part] += time.perf_counter() - begun_s

    def _refresh(self, pin: StartPin, unsettled: Plan | None = None) -> None:
        begun_s = time.perf_counter()
        super()._refresh(pin, unsettled)
        # The second one of a batch is due only if the settling took long.
        self.spent_s["list"] = max(self.spent_s["list"], time.perf_counter() - begun_s)

    def settle(self, start: str) -> bool | None:
        with self.timed("settle"):
            return super().settle(start)

    def _record_history(self, *, at_once: bool = False) -> None:
        """At each look, not every ten seconds."""
        del at_once
        with self.timed("history"):
            self.tree.is_history = True
            try:
                self._recorded(at_once=True)
            finally:
                self.tree.is_history = False

    @property
    def known_states(self) -> Collection[str]:
        return self._catalog.states

    def plan(self, start: str, found: Found, **limits: Any) -> str | None:
        with self.timed("plan"):
            return super().plan(start, found, **limits)


@dataclass
class Job:
    """The driver of one application, and the store of its executors."""

    coordinator: TimedCoordinator
    tree: CountedTree
    executors: StoreTopics
    executors_tree: CountedTree
    busy: frozenset[str]
    has_hints: bool
    last: int = FIRST
    batches: list[dict[str, float]] = field(default_factory=list)

    def batch(self, start: str) -> str:
        """Plan, run and measure one batch."""
        for tree in (self.tree, self.executors_tree):
            tree.counts.clear()
        self.coordinator.spent_s.clear()
        plan_id = next_plan(self.coordinator, start)
        if plan_id == start:
            return start
        with self.coordinator.timed("tasks"):
            tasks = self.coordinator.tasks(plan_id)
        self.last += RECORDS
        for number, task in tasks.items():
            self.executors.plans.append_log(plan_id, number, self._log(task), None)
        self.batches.append(self._measured(tasks))
        return plan_id

    def _measured(self, tasks: dict[int, TaskPlan]) -> dict[str, float]:
        spent_ms = {part: 1000 * s for part, s in self.coordinator.spent_s.items()}
        counts = self.tree.counts + self.executors_tree.counts
        shards = sum(len(task.shards) for task in tasks.values())
        plan_bytes = sum(len(encode_unchecked(task)) for task in tasks.values())
        history_ms = spent_ms["history"]
        driver_ms = sum(spent_ms.values()) - spent_ms["list"] - history_ms
        states = max(1, len(self.coordinator.known_states))
        history_bytes = self.tree.counts["history bytes"]
        return spent_ms | {
            "driver": driver_ms,
            "hist %": 100 * history_ms / (driver_ms + history_ms),
            "kB": self.tree.counts["bytes"] / 1000,
            "hist kB": history_bytes / 1000,
            "B/state": history_bytes / states,
            "planned": shards,
            "B/shard": plan_bytes / max(1, shards),
            "reads": counts["reads"],
            "states": counts["states"],
            "multis": counts["multis"],
            "w/task": counts["other multis"] / max(1, len(tasks)),
        }

    def _log(self, task: TaskPlan) -> TaskLog:
        return TaskLog(entries=tuple(self._read(one.shard_id) for one in task.shards), sealed=True)

    def _read(self, shard_id: str) -> ShardReadResult:
        now_ms = CLOCK.now_ms()
        hint = ITERATOR if self.has_hints else None
        if shard_id not in self.busy:
            return ShardReadResult(shard_id=shard_id, at_tip=True, tip_ms=now_ms, iterator=hint)
        return ShardReadResult(
            shard_id=shard_id,
            first=SequenceNumber(self.last - RECORDS + 1),
            last=SequenceNumber(self.last),
            count=RECORDS,
            last_arrival_ms=now_ms,
            millis_behind_latest=1,
            iterator=hint,
            payload_bytes=1000,
        )


@dataclass(frozen=True)
class Case:
    """What one process measures. `kind`: busy, idle, or empty: no shard ever has a record."""

    shards: int
    kind: str
    endpoint_url: str
    zookeeper: str


@contextmanager
def running(case: Case) -> Iterator[tuple[Job, int]]:
    """A new application's job, and how many kB the process had before it."""
    settings = KinesisSource(
        stream=f"{case.kind}-{case.shards}",
        application="benchmark",
        zookeeper=case.zookeeper,
        endpoint_url=case.endpoint_url,
        region="us-east-1",
        access_key_id="benchmark",
        secret_access_key="benchmark",  # noqa: S106  # a local server asks for some
        starting_position="TRIM_HORIZON",
        shard_refresh_interval="10s" if case.kind == "empty" else "100ms",
    ).settings()
    trees = CountedTree(case.zookeeper), CountedTree(case.zookeeper)
    paths = ZookeeperPaths(
        root="kinesis-spout", application="benchmark", stream=settings.stream.name
    )
    stores = [StoreTopics(tree, paths, reset_command="-") for tree in trees]
    client = KinesisClient(settings.aws, settings.stream)
    services = ProcessServices(client=client, store=stores[0], clock=CLOCK, settings=settings)
    names = [shard.shard_id for shard in client.list_shards()]
    client.get_records(client.shard_iterator(names[0], TRIM_HORIZON), 1)
    stores[1].plans.pointer()
    # All modules are imported, and all connections are open.
    before_kb = peak_kb()
    coordinator = TimedCoordinator(settings, services, trees[0])
    busy = frozenset({"busy": names, "idle": names[:FEW], "empty": []}[case.kind])
    has_hints = case.shards > PROBE_MAX_SHARDS
    yield Job(coordinator, trees[0], stores[1], trees[1], busy, has_hints), before_kb
    coordinator.close()
    stores[1].close()


def peak_kb() -> int:
    """The process's peak of resident memory. Linux only: `ru_maxrss` is inherited there."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def row(case: Case, batches: int, pipe: Connection) -> None:
    """One row of the table, in a process of its own."""
    with running(case) as (job, before_kb):
        start = ""
        for _ in range(WARM_UP + batches):
            start = job.batch(start)
        measured = job.batches[WARM_UP:]
        found: dict[str, Any] = {name: median(b[name] for b in measured) for name in measured[0]}
        found["ops"] = max(tree.max_operations for tree in (job.tree, job.executors_tree))
        found["MB"] = (peak_kb() - before_kb) / 1024
    pipe.send({"shards": case.shards, "kind": case.kind} | found)


def waiting_percent(case: Case, pipe: Connection) -> None:
    """CPU of a wait, in a process of its own."""
    with running(case) as (job, _):
        start = ""
        while (newer := job.batch(start)) != start:
            start = newer  # until all are known to be idle
        begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
        next_plan(job.coordinator, start)
        pipe.send(100 * (time.process_time() - begun_cpu_s) / (time.perf_counter() - begun_s))


def serve(shards: Sequence[int], pipe: Connection) -> None:
    """The server's process: create the streams, send the address, end when the pipe closes."""
    fake = FakeKinesis(settings=FakeKinesisSettings(shard_limit=4 * sum(shards)))
    for kind, most in (("busy", 100), ("idle", FEW), ("empty", 0)):
        for count in shards:
            name = f"{kind}-{count}"
            fake.create(name, shards=count)
            for shard in fake.shards(name)[:most]:  # a first record, for the probes to find
                key = str(shard.hash_keys.start)
                fake.put_record(
                    requests.PutRecord(
                        stream_name=name, data=b"1", partition_key="k", explicit_hash_key=key
                    )
                )
    with FakeKinesisServer(fake) as server:
        pipe.send(server.endpoint_url)
        try:
            pipe.recv()
        except EOFError:
            return


@contextmanager
def process(target: Any, *arguments: Any) -> Iterator[Connection]:
    """A process, and the pipe to it; it is told to end by closing the pipe."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    started = multiprocessing.get_context("spawn").Process(
        target=target, args=(*arguments, theirs), daemon=True
    )
    started.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        started.join(10)


def result_of(target: Any, *arguments: Any) -> Any:
    with process(target, *arguments) as pipe:
        return pipe.recv()


def measure(shards: Sequence[int], batches: int, directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    zookeeper = embedded_zookeeper.ensure_running(directory / "zookeeper")
    try:
        with process(serve, shards) as server:
            endpoint_url = server.recv()
            for kind in ("busy", "idle"):
                for count in shards:
                    found = result_of(row, Case(count, kind, endpoint_url, zookeeper), batches)
                    found["x"] = _of_linear(found, rows[-1]) if count > shards[0] else None
                    empty = Case(count, "empty", endpoint_url, zookeeper)
                    found["waiting"] = result_of(waiting_percent, empty) if kind == "idle" else None
                    rows.append(found)
    finally:
        embedded_zookeeper.stop(directory / "zookeeper")
    return rows


def _of_linear(found: dict[str, Any], before: dict[str, Any]) -> float:
    return float(found["driver"] / found["shards"] / (before["driver"] / before["shards"]))


COLUMNS = (
    *("kind", "shards", "planned", "list", "settle", "look", "plan", "tasks", "driver", "x"),
    *("B/shard", "MB", "reads", "states", "multis", "ops", "w/task", "waiting"),
    *("history", "hist %", "kB", "hist kB", "B/state"),
)


def shown(value: Any) -> str:
    if value is None:
        return "-"
    digits = 2 if value < 10 else 1 if value < 1000 else 0
    return f"{value:,.{digits}f}" if isinstance(value, float) else f"{value:,}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", default="10,100,1000,10000")
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    shards = sorted(map(int, options.shards.split(",")))
    with tempfile.TemporaryDirectory(prefix="kinesis-spout-benchmark-") as directory:
        rows = measure(shards, options.batches, Path(directory))
    if options.json:
        print(json.dumps({"benchmark": "shards", "rows": rows}))
        return
    print(" ".join(f"{name:>7}" for name in COLUMNS))
    for each in rows:
        texts = [each["kind"], *(shown(each[name]) for name in COLUMNS[1:])]
        print(" ".join(f"{text:>7}" for text in texts))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
