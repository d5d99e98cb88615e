"""What one process talks through: one Kinesis client, one store connection, one pacer a shard, for
each set of settings.

Spark reuses Python workers over batches, so these are kept per process: credentials are resolved
once, connections stay open, and a shard's read rate holds across the batches that this worker runs.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.reading.pacing import Pacer, RetryPacer
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.threads import NewPool, thread_pool
from state.zookeeper.embedded import resolve_connect_string
from state.zookeeper.store import ZookeeperStateStore

if TYPE_CHECKING:
    from kinesis_spout.reading.retry_reader import Search
    from spark_job.settings import SourceSettings
    from state.state_store import StateStore

_services: dict[tuple[int, SourceSettings], WorkerServices] = {}
_lock = threading.Lock()


@dataclass(slots=True)
class WorkerServices:
    """The connections of one process. `store` is bound to the application and stream; both connect
    at their first use.

    `new_pool` and `random` (jitter) are arguments so that a simulation can be repeated. `searches`:
    by shard, where the next task of this process may go on to look for a retry; a hint, which may
    be lost.
    """

    client: KinesisClient
    store: StateStore
    clock: Clock
    settings: SourceSettings
    new_pool: NewPool = thread_pool
    random: Random = field(default_factory=Random)
    pacers: dict[str, Pacer] = field(default_factory=dict)
    retry_pacers: dict[str, RetryPacer] = field(default_factory=dict)
    searches: dict[str, Search] = field(default_factory=dict)

    @classmethod
    def here(cls, settings: SourceSettings) -> WorkerServices:
        """Services of this process for these settings. A forked process gets its own."""
        key = (os.getpid(), settings)
        with _lock:
            if key not in _services:
                _services[key] = cls.connect(settings)
            return _services[key]

    @classmethod
    def connect(cls, settings: SourceSettings) -> WorkerServices:
        """New services, not shared with anybody. Starts the embedded ZooKeeper if `zookeeper` names
        one that does not run.
        """
        clock = SystemClock()
        return cls(
            client=KinesisClient(settings.aws, settings.stream, clock=clock),
            store=open_store(settings),
            clock=clock,
            settings=settings,
        )

    @classmethod
    def forget_all(cls) -> None:
        """Close what this process keeps. For tests and for long-lived processes that use many
        settings.
        """
        with _lock:
            for services in _services.values():
                services.store.close()
            _services.clear()

    def pacer(self, shard_id: str) -> Pacer:
        if shard_id not in self.pacers:
            self.pacers[shard_id] = Pacer(self.settings.rate)
        return self.pacers[shard_id]

    def retry_pacer(self, shard_id: str) -> RetryPacer:
        """The shard's pace for reading retries: a part of its own, which counts against it."""
        if shard_id not in self.retry_pacers:
            self.retry_pacers[shard_id] = RetryPacer(self.settings.rate, self.pacer(shard_id))
        return self.retry_pacers[shard_id]


def open_store(settings: SourceSettings) -> ZookeeperStateStore:
    """A store of its own for these settings, not connected yet."""
    return ZookeeperStateStore(
        resolve_connect_string(settings.zookeeper),
        root=settings.zookeeper_root,
        application=settings.application,
        stream=settings.stream.name,
        session_timeout_s=settings.zookeeper_session_timeout_ms / 1000,
    )
