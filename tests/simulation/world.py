"""The surroundings of a simulated application: a stream, time, a memory store in ZooKeeper's place,
and the book of the records that were put.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from kinesis_spout.testing import FakeKinesis, FakeKinesisSettings, ManualClock
from kinesis_spout.testing.service import requests
from kinesis_spout.testing.stream.hash_keys import hash_key
from spark_job.driver.backlog import PROBE_MAX_SHARDS
from spark_job.driver.coordinator import Coordinator
from spark_job.executor.task_reader import DEFAULT_PACE, Pace
from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
from state.codec.shard_states import decode_shard_state
from state.errors import StoreUnavailableError
from state.memory_store import MemoryBackend, MemoryStateStore, MemoryTree
from state.sequence_number import SequenceNumber
from state.znodes.paths import ZookeeperPaths, is_shard
from state.znodes.shard_states import MAX_STATES_PER_WRITE
from state.znodes.topics import StoreTopics
from state.znodes.tree import Set
from state.zookeeper.store import DEFAULT_ROOT
from tests.simulation.in_process import (
    RETRY_FOR_S,
    InlineFeed,
    InlinePool,
    InProcessClient,
    Service,
    wait_in,
)
from tests.support.aggregates.wire import aggregate_of
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.simulated.played_outcomes import is_whole
from tests.support.state.trees import DyingTree, ForwardingTree, interposed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from spark_job.settings import SourceSettings
    from state.shard_state import ShardState
    from state.znodes.tree import Operation, Znode, ZnodeTree
    from tests.support.simulated.played_outcomes import Row


@dataclass
class StoreOutage:
    """After `skipped` more calls, `left` calls fail. `lands`: if the first of them is a write, it
    is done though it fails.
    """

    skipped: int = 0
    left: int = 0
    lands: bool = False

    def strikes(self) -> bool:
        if not self.left:
            return False
        if self.skipped:
            self.skipped -= 1
            return False
        self.left -= 1
        return True

    def check(self) -> None:
        if self.strikes():
            self.lands = False
            raise StoreUnavailableError("the simulated store does not answer")


class OutageTree(ForwardingTree):
    """A tree as one process sees it through the outage."""

    def __init__(self, tree: ZnodeTree, outage: StoreOutage) -> None:
        super().__init__(tree)
        self._outage = outage

    def commit(self, operations: Sequence[Operation]) -> None:
        lands = self._outage.lands
        try:
            self._outage.check()
        except StoreUnavailableError:
            if lands:
                self._tree.commit(operations)
            raise
        self._tree.commit(operations)

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self._outage.check()
        return self._tree.read(paths)

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        self._outage.check()
        return self._tree.children(paths)


class SettledTree(ForwardingTree):
    """A tree as a process sees it that dies, once it is `armed`, when it has settled a plan."""

    def __init__(self, tree: ZnodeTree, plan_path: str) -> None:
        super().__init__(tree)
        self.armed = False
        self._plan_path = plan_path

    def commit(self, operations: Sequence[Operation]) -> None:
        self._tree.commit(operations)
        if self.armed and any(
            isinstance(one, Set) and one.path == self._plan_path and b"settled" in one.data
            for one in operations
        ):
            raise Crash("after a plan was settled")


STREAM, APPLICATION = "orders", "orders-etl"
SHORTEST_SLEEP_S = 0.001
LISTED_S = 10.0  # by then a new stream's first shards are listed
IDLE_S = 0.4  # between two batches that find nothing, of shards that are too many to probe
LOGGER = logging.getLogger("kinesis_spout")


class SkewedClock:
    """The clock of the application's machines. Its time of day differs from the service's; time
    passes for both alike.
    """

    def __init__(self, service: ManualClock) -> None:
        self._service = service
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._service.now_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        return self._service.monotonic_s()

    def sleep(self, seconds: float) -> None:
        """Sleeps at least a millisecond: the remainder of a float sum may be too small to move the
        clock, and time would stand still.
        """
        if seconds > 0:
            self._service.sleep(max(seconds, SHORTEST_SLEEP_S))


class Warnings(logging.Handler):
    """The warnings that the product has logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@cache
def base_settings(stream: str = STREAM) -> SourceSettings:
    """As a user would give them."""
    return KinesisSource(
        stream=stream,
        application=APPLICATION,
        zookeeper="in-memory:2181",
        region="us-east-1",
        starting_position="TRIM_HORIZON",
        owner_wait="0s",
        probe_interval="200ms",
    ).settings()


@cache
def latest() -> Any:
    """The requested start LATEST."""
    return KinesisSource(
        stream=STREAM, application=APPLICATION, zookeeper="in-memory:2181", region="us-east-1"
    ).settings()


@dataclass
class Inner:
    """What users cannot set, and a history draws: so that a few shards are too many to probe, and
    too many for one transaction.
    """

    probe_max_shards: int = PROBE_MAX_SHARDS
    states_per_write: int = MAX_STATES_PER_WRITE


@dataclass
class World:
    """A stream and an application. `records` and `parents`, by shard and in order, are the book:
    the records that were put, and which shards each shard continues. With `aggregates`, some are
    user records of aggregates; `users` has their numbers by aggregate. With `strays`, some user
    records are not of the shard: their producer would put them again, so `foreign` ones may come or
    not. `forgotten`: what was put before a start at LATEST, and comes only where the start was
    lost. `batches`, by plan and task: when its rows were first read, and these.
    """

    random: Random
    settings: SourceSettings
    fake: FakeKinesis
    clock: ManualClock
    skewed: SkewedClock
    service: Service
    stream: str = STREAM
    inner: Inner = field(default_factory=Inner)
    backend: MemoryBackend = field(default_factory=MemoryBackend)
    outage: StoreOutage = field(default_factory=StoreOutage)
    records: dict[str, list[SequenceNumber]] = field(default_factory=dict)
    users: dict[int, list[SequenceNumber]] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    aggregates: bool = False
    strays: bool = False
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: Warnings = field(default_factory=Warnings)
    keys: int = 50
    count: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    batches: dict[tuple[str, int], tuple[float, list[Row]]] = field(default_factory=dict)
    _executors: list[ProcessServices] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _decoded: dict[str, tuple[Znode, ShardState]] = field(default_factory=dict)

    @classmethod
    def drawn(cls, random: Random, stream: str, clock: ManualClock) -> World:
        """A stream and an application, drawn at random. Its first shards are not listed yet."""
        settings = FakeKinesisSettings(
            end_with_last_records=random.random() < 0.5,
            listing_delay_ms=random.choice((0, 0, 0, 300, 5_000)),
            reshard_ms=random.choice((0, 0, 500, 3_000)),
            limits=random.random() < 0.15,
        )
        fake = FakeKinesis(settings=settings, clock=clock)
        source, inner = drawn_settings(random, stream)
        world = cls(
            random,
            source,
            fake,
            clock,
            SkewedClock(clock),
            Service(fake),
            stream=stream,
            inner=inner,
        )
        world.keys = random.choice((3, 50, 50))
        world._create()
        return world

    @property
    def tag(self) -> bytes:
        """What the records of a second stream begin with: its numbers may be those of the first."""
        return b"" if self.stream == STREAM else b"%s " % self.stream.encode()

    @property
    def paths(self) -> ZookeeperPaths:
        return _paths(self.stream, self.settings.application)

    @property
    def retention_ms(self) -> int:
        return self.fake.stream(self.stream).retention_hours * 3_600_000

    # the stream -----------------------------------------------------------------------------------
    def _create(self) -> None:
        self.fake.create(self.stream, shards=self.random.choice((1, 1, 2, 3)))

    def await_listing(self) -> None:
        self.clock.advance(LISTED_S)
        self.note_shards()

    def recreate(self) -> None:
        """Delete the stream and create another one under its name. The book starts empty."""
        self.fake.faults.clear()
        self.fake.delete_stream(
            requests.DeleteStream(stream_name=self.stream, enforce_consumer_deletion=True)
        )
        self.records, self.parents, self.users = {}, {}, {}
        for names in (self._ids, self.foreign, self.forgotten):
            names.clear()
        self._create()
        self.await_listing()

    def read_by_subscription(self) -> None:
        """The job subscribes, and an event has a few records only, or many."""
        self.change(read_mode="efo", consumer_name="reader")
        self.fake.settings = dataclasses.replace(
            self.fake.settings, event_records=self.random.choice((1, 2, 7, 10_000))
        )

    def put(self, count: int) -> None:
        late = self.random.random() < 0.2
        for _ in range(count):
            arrival_ms = self.clock.now_ms() - self.random.randrange(5_000) if late else None
            key = f"key {self.random.randrange(self.keys)}"
            users = 1
            keys = [key]
            data = self.tag + b"record %d" % self.count
            if self.aggregates and self.random.random() < 0.4:
                users = self.random.choice((1, 2, 5))
                if self.strays and self.random.random() < 0.3:
                    keys.append(f"key {self.random.randrange(self.keys)}")
                data = aggregate_of([data, *(b"user %d" % user for user in range(1, users))], keys)
            shard, _, number = self.fake.put(
                self.stream, key, data, arrival_ms=arrival_ms
            ).partition(":")
            owned = self.fake.stream(self.stream).shard(shard).hash_keys
            numbers = []
            for user in range(users):
                each = SequenceNumber(int(number), user)
                if owned.start <= hash_key(keys[user % len(keys)]) <= owned.end:
                    numbers.append(each)
                else:
                    self.foreign.add(f"{shard}:{each}")
            self.users[int(number)] = numbers
            self.records.setdefault(shard, []).extend(numbers)
            names = [f"{shard}:{one}" for one in numbers]
            self._ids.update(names)
            self.arrivals.update(dict.fromkeys(names, arrival_ms or self.clock.now_ms()))
            self.count += users

    def share(self, other: World) -> None:
        """What the streams of a query have together: its ZooKeeper, its machines' clock, counts."""
        self.backend, self.outage, self.skewed = other.backend, other.outage, other.skewed
        self.counts = other.counts

    def forget_records(self) -> None:
        """Nobody wants what was put so far."""
        self.forgotten |= self._ids | self.foreign
        self.records = {}
        self._ids.clear()
        self.foreign.clear()

    def note_shards(self) -> None:
        self.parents |= {shard.shard_id: shard.parents for shard in self.fake.shards(self.stream)}

    def has(self, name: str) -> bool:
        """Whether the record was put."""
        return name in self._ids

    def ids(self) -> set[str]:
        return set(self._ids)

    def names(self, row: Row) -> list[str]:
        """The records in a row: one, or the user records of an aggregate that came as one."""
        shard, number = row["shardId"], SequenceNumber.parse(row["sequenceNumber"])
        if not is_whole(row):
            return [f"{shard}:{number}"]
        return [f"{shard}:{one}" for one in self.users.get(number.sequence, [number])]

    def lists(self, shard_id: str) -> bool:
        """Whether the service still lists the shard."""
        return any(shard.shard_id == shard_id for shard in self.fake.shards(self.stream))

    def kept(self) -> set[str]:
        """Records that are still within retention."""
        return {
            f"{shard.shard_id}:{number}"
            for shard in self.fake.shards(self.stream)
            for one in shard.records
            for number in self.users[one.sequence]
        }

    def states(self) -> dict[str, ShardState]:
        """The shard states as the store has them now, by shard id in order."""
        found: dict[str, ShardState] = {}
        for name in sorted(filter(is_shard, (self.backend.children([self.paths.base])[0] or ()))):
            path = self.paths.shard_state(name)
            (node,) = self.backend.read([path])
            if node is None:
                continue
            known = self._decoded.get(path)
            if known is None or known[0] is not node:
                known = self._decoded[path] = node, decode_shard_state(node.data, name, path)
            found[name] = known[1]
        return found

    # processes ------------------------------------------------------------------------------------
    def look(self) -> MemoryStateStore:
        """The store as the checks see it."""
        return MemoryStateStore(
            self.backend, application=APPLICATION, stream=self.stream, root=DEFAULT_ROOT
        )

    def store(self) -> StoreTopics:
        """The store of another process."""
        return self._topics(OutageTree(MemoryTree(self.backend), self.outage))

    def dying_store(self, writes: int, *, after: bool) -> StoreTopics:
        """A store whose process dies at the write after `writes` others."""
        return self._topics(DyingTree(MemoryTree(self.backend), writes, after=after))

    def store_dying_settled(self) -> tuple[StoreTopics, SettledTree]:
        """A store whose process dies when it has settled a plan, and its tree, which arms it."""
        tree = SettledTree(OutageTree(MemoryTree(self.backend), self.outage), self.paths.plan)
        return self._topics(tree), tree

    def _topics(self, tree: ZnodeTree) -> StoreTopics:
        topics = StoreTopics(tree, self.paths, reset_command="kinesis-spout reset")
        topics.shard_states.states_per_write = self.inner.states_per_write
        return topics

    def overtaken_store(self, act: Callable[[], object]) -> StoreTopics:
        """A store whose process is about to publish an end when another process acts."""
        store, tree = interposed(self.store())
        tree.before_write("/end", act)
        return store

    def services(
        self, store: StoreTopics | None = None, *, retry_for_s: float = RETRY_FOR_S
    ) -> ProcessServices:
        return ProcessServices(
            client=InProcessClient(
                self.service, self.settings, self.skewed, self.random, retry_for_s=retry_for_s
            ),
            store=store or self.store(),
            clock=self.skewed,
            settings=self.settings,
            new_pool=InlinePool,
            new_feed=InlineFeed,
            wait_for=wait_in(self.skewed),
            random=self.random,
        )

    def coordinator(self, services: ProcessServices) -> Coordinator:
        """A driver's, with the settings that its services have."""
        return Coordinator(
            services.settings,
            services,
            probe_max_shards=self.inner.probe_max_shards,
            idle_interval_s=IDLE_S,
        )

    def drawn_pace(self) -> Pace:
        """How an attempt appends: all at once mostly, or page by page."""
        random = self.random
        if random.random() < 0.4:
            return DEFAULT_PACE
        return Pace(
            round_bytes=random.choice((1, 40, 1 << 20)),
            linger_s=random.choice((0.0, 0.2)),
            max_small_rounds=random.choice((0, 1, 4, 16)),
            max_log_bytes=random.choice((200, 2_000, 1 << 18)),
            held_bytes=random.choice((1, 100, 1 << 20)),
            held_records=random.choice((1, 2, 7, None)),
        )

    def executor(self) -> ProcessServices:
        """One of two long-lived worker processes."""
        if len(self._executors) < 2:
            self._executors.append(self.services())
            return self._executors[-1]
        return self.random.choice(self._executors)

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused the application."""
        return self.backend.read([self.paths.paused])[0] is not None

    @property
    def is_narrow(self) -> bool:
        """Whether a batch holds a few records only."""
        most = self.settings.max_records_per_trigger or self.settings.max_records_per_shard
        settings = self.settings
        return (
            min(
                most,
                settings.max_records_per_shard,
                settings.max_bytes_per_task,
                settings.max_unresolved_per_shard,
            )
            < 100
        )

    def change(self, **settings: Any) -> None:
        """Settings for the drivers and executors that start from now on."""
        self.settings = dataclasses.replace(self.settings, **settings)
        self._executors.clear()

    # backups --------------------------------------------------------------------------------------
    def znodes(self) -> dict[str, Znode]:
        """A copy of the application's nodes, without its owner's."""
        # A backup has no sessions, and an epoch that goes back is not under test here.
        owned = {self.paths.owner, self.paths.epoch}
        nodes = self.backend.nodes(self.paths.base)
        return {path: node for path, node in nodes.items() if path not in owned}

    def restore(self, nodes: dict[str, Znode]) -> None:
        self.batches.clear()
        self.backend.remove(self.znodes().keys() - nodes.keys())
        self.backend.restore(nodes)


@cache
def _paths(stream: str, application: str) -> ZookeeperPaths:
    return ZookeeperPaths(root=DEFAULT_ROOT, application=application, stream=stream)


def drawn_settings(random: Random, stream: str = STREAM) -> tuple[SourceSettings, Inner]:
    """Settings of a source, drawn so that plans, reads and writes are small or large."""
    settings = dataclasses.replace(
        base_settings(stream),
        rate=dataclasses.replace(
            base_settings().rate, reads_per_second=random.choice((5, 1000, 1000))
        ),
        idle_wait_ms=250,
        max_records_per_shard=random.choice((3, 20, 1000, 1000)),
        max_records_per_trigger=random.choice((None, None, None, 2, 25)),
        max_bytes_per_task=random.choice((30, 64 << 20, 64 << 20)),
        max_tasks=random.choice((1, 2, 64)),
    )
    probe_max_shards = random.choice((0, PROBE_MAX_SHARDS, PROBE_MAX_SHARDS))
    settings = dataclasses.replace(
        settings, shard_refresh_interval_ms=random.choice((100, 1_000, 10_000))
    )
    inner = Inner(
        probe_max_shards=probe_max_shards,
        states_per_write=random.choice((1, 2, MAX_STATES_PER_WRITE)),
    )
    settings = dataclasses.replace(
        settings,
        max_unresolved_per_shard=random.choice((1, 6, 100_000)),
        fail_on_data_loss=random.random() < 0.5,
        starting_position=random.choice(
            (base_settings(), base_settings(), latest())
        ).starting_position,
    )
    return settings, inner
