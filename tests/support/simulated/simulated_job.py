"""A stream on FakeKinesis and state in memory, in simulated time: for tests of single modules of
`spark_job`.

A sleep advances the clock, so an idle hour takes no time and its requests can be counted.
"""

from __future__ import annotations

import hashlib
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.service.client import KinesisClient
from kinesis_spout.testing import (
    FakeKinesis,
    FakeKinesisServer,
    FakeKinesisSettings,
    ManualClock,
    slow,
)
from kinesis_spout.testing.stream.hash_keys import hash_key
from scheme.record import KPL_MAGIC
from spark_job.driver.backlog import PROBE_MAX_SHARDS
from spark_job.driver.coordinator import Coordinator
from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
from state.memory_store import MemoryBackend, MemoryStateStore
from state.process import this_process
from tests.simulation.in_process import InlineFeed, InlinePool, InProcessClient, Service, wait_in
from tests.support.kinesis.services import fields_of
from tests.support.spark.source import READ_MODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.threads import NewPool
    from spark_job.settings import SourceSettings
    from state.shard_state import ShardState
    from state.znodes.topics import StoreTopics

STREAM, APPLICATION = "orders", "etl"
_MESSAGE = b"\x0a\x01k\x1a\x00"
AGGREGATE = KPL_MAGIC + _MESSAGE + hashlib.md5(_MESSAGE, usedforsecurity=False).digest()
"""An aggregate of several records, as by the Kinesis Producer Library."""


@dataclass
class SimulatedJob:
    """The services of a job. `put` bypasses the service's limits; shards are `shard(0)`,
    `shard(1)`, and so on. `read_mode`: fields of all its sources.
    """

    fake: FakeKinesis
    clock: ManualClock
    endpoint_url: str
    read_mode: dict[str, Any] = field(default_factory=dict)
    backend: MemoryBackend = field(default_factory=MemoryBackend)
    opened: list[Coordinator | KinesisClient] = field(default_factory=list)
    _executor: ProcessServices | None = None

    def settings(self, **changes: Any) -> SourceSettings:
        """As a user would give them; fast unless the test sets something else."""
        given: dict[str, Any] = {
            "stream": STREAM,
            "application": APPLICATION,
            "zookeeper": "in-memory:2181",
            **fields_of(self.endpoint_url),
            "starting_position": "TRIM_HORIZON",
            "reads_per_second": 1000,
            "read_bytes_per_second": "1GiB",
        }
        return KinesisSource(**(given | self.read_mode | changes)).settings()

    def store(self) -> MemoryStateStore:
        """Another process's store of the same state."""
        return MemoryStateStore(self.backend, application=APPLICATION, stream=STREAM)

    @contextmanager
    def owned_store(self) -> Iterator[MemoryStateStore]:
        """A store whose process owns the application meanwhile."""
        with closing(self.store()) as store:
            store.ownership.acquire(this_process(0), timeout_s=1)
            yield store

    def client(self, settings: SourceSettings | None = None) -> KinesisClient:
        """Another process's client, to close."""
        settings = settings or self.settings()
        return KinesisClient(settings.aws, settings.stream, clock=self.clock)

    def services(
        self, settings: SourceSettings | None = None, store: StoreTopics | None = None
    ) -> ProcessServices:
        settings = settings or self.settings()
        client = self.client(settings)
        self.opened.append(client)
        return ProcessServices(
            client=client, store=store or self.store(), clock=self.clock, settings=settings
        )

    def executor(self) -> ProcessServices:
        """The services that an executor's process keeps between its tasks, with the default
        settings. Events are pushed in this process, when somebody looks.
        """
        if self._executor is None:
            self.restart_executor()
        assert self._executor is not None
        return self._executor

    def restart_executor(self, **changes: Any) -> None:
        """A new process for the executor, with these settings."""
        settings = self.settings(**changes)
        made = self.services(settings)
        if self.read_mode:
            jitter = Random(0)  # noqa: S311  # not a secret
            made.client = InProcessClient(Service(self.fake), settings, self.clock, jitter)
            made.new_feed, made.wait_for = InlineFeed, wait_in(self.clock)
        self._executor = made

    def coordinator(
        self,
        *,
        store: StoreTopics | None = None,
        new_pool: NewPool = InlinePool,  # a real one answers late on a busy machine
        probe_max_shards: int = PROBE_MAX_SHARDS,
        **changes: Any,
    ) -> Coordinator:
        """A driver's coordinator, with a store of its own."""
        settings = self.settings(**changes)
        services = self.services(settings, store)
        services.new_pool = new_pool
        coordinator = Coordinator(settings, services, probe_max_shards=probe_max_shards)
        self.opened.append(coordinator)
        return coordinator

    def states(self) -> dict[str, ShardState]:
        return {shard: stored.state for shard, stored in self.store().shard_states.load().items()}

    def put(
        self,
        records: int,
        *,
        key: str = "key",
        data: bytes | None = None,
        arrival_ms: int | None = None,
    ) -> list[int]:
        """The new records' sequence numbers."""
        answers = [
            self.fake.put(
                STREAM,
                key,
                f"record {number}".encode() if data is None else data,
                arrival_ms=arrival_ms,
            )
            for number in range(records)
        ]
        return [int(answer.partition(":")[2]) for answer in answers]

    def key_of(self, index: int) -> str:
        """A partition key whose records go to that shard."""
        hash_keys = self.fake.stream(STREAM).shard(shard(index)).hash_keys
        return next(
            key for key in map(str, count()) if hash_keys.start <= hash_key(key) <= hash_keys.end
        )

    def count_calls(self) -> None:
        """From now on, `calls` returns how often an operation was requested."""
        self.fake.faults.add(slow(0.0), times=None)

    def calls(self, operation: str) -> int:
        return [struck for struck, _ in self.fake.faults.struck].count(operation)

    def close(self) -> None:
        for each in self.opened:
            each.close()


@pytest.fixture
def read_mode(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The fields of a source that polls, or of the mode that `in_both_modes` names."""
    return READ_MODES[getattr(request, "param", "polling")]


in_both_modes = pytest.mark.parametrize("read_mode", READ_MODES, indirect=True)
"""Runs a test with a source that polls, and with one that subscribes."""


@pytest.fixture
def one(read_mode: dict[str, Any]) -> Iterator[SimulatedJob]:
    """A job on a stream of one shard."""
    with simulated(shards=1, read_mode=read_mode) as made:
        yield made


@pytest.fixture
def job(read_mode: dict[str, Any]) -> Iterator[SimulatedJob]:
    """A job on a stream of two shards."""
    with simulated(shards=2, read_mode=read_mode) as made:
        yield made


@contextmanager
def simulated(
    *, shards: int, read_mode: dict[str, Any] | None = None, **settings: Any
) -> Iterator[SimulatedJob]:
    """A job on a stream of `shards` shards; `settings` are FakeKinesis's."""
    clock = ManualClock()
    fake = FakeKinesis(settings=FakeKinesisSettings(**settings), clock=clock)
    fake.create(STREAM, shards=shards)
    with FakeKinesisServer(fake) as server:
        made = SimulatedJob(fake, clock, server.endpoint_url, read_mode or {})
        try:
            yield made
        finally:
            made.close()


def shard(index: int) -> str:
    return f"shardId-{index:012d}"
