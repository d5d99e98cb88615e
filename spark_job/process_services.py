"""The connections of one process: a Kinesis client, a store connection and a pacer for each shard,
for each set of settings.

Spark reuses Python workers over batches, so a process keeps them. Credentials are resolved once,
connections stay open, and a shard's read rate holds over all batches that this worker runs.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.reading.pacing import ShardPacers
from kinesis_spout.reading.read_ahead import PageLimits
from kinesis_spout.reading.subscriptions import NewFeed, ThreadFeed
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.threads import NewPool, thread_pool
from state.zookeeper.store import ZookeeperStateStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.reading.retry_reader import Search
    from spark_job.settings import SourceSettings
    from state.znodes.topics import StoreTopics

_services: dict[tuple[int, SourceSettings], ProcessServices] = {}
_lock = threading.Lock()


@dataclass(slots=True)
class ProcessServices:
    """The connections of one process. The client and the store connect at their first use.

    - `store`: bound to the application and the stream.
    - `new_pool`, `new_feed`, `wait_for` (waits for a push, so many seconds at most), `random`
      (jitter): arguments, so that a simulation can be repeated.
    - `page_limits`: how many records the pages of a shard are to have.
    - `searches`: by shard, where the next task of this process continues to search for a retry. A
      hint that may be lost.
    """

    client: KinesisClient
    store: StoreTopics
    clock: Clock
    settings: SourceSettings
    new_pool: NewPool = thread_pool
    new_feed: NewFeed = ThreadFeed.start
    wait_for: Callable[[threading.Event, float], object] = threading.Event.wait
    random: Random = field(default_factory=Random)
    pacers: ShardPacers = field(init=False)
    page_limits: PageLimits = field(default_factory=PageLimits)
    searches: dict[str, Search] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pacers = ShardPacers(self.settings.rate)

    @classmethod
    def here(cls, settings: SourceSettings) -> ProcessServices:
        """The services of this process for these settings, whose driver has reached Kinesis. Makes
        them at the first call.

        A forked process gets its own: two processes must not share a connection.
        """
        key = (os.getpid(), settings)
        with _lock:
            if key not in _services:
                _services[key] = cls.connect(settings, answered_before=True)
            return _services[key]

    @classmethod
    def connect(
        cls, settings: SourceSettings, *, retry_for_s: float = 60, answered_before: bool = False
    ) -> ProcessServices:
        """New services, not shared with other callers. `retry_for_s`: how long calls to Kinesis are
        retried. `answered_before`: as of `KinesisClient`.
        """
        clock = SystemClock()
        return cls(
            client=KinesisClient(
                settings.aws,
                settings.stream,
                clock=clock,
                retry_for_s=retry_for_s,
                answered_before=answered_before,
            ),
            store=open_store(settings),
            clock=clock,
            settings=settings,
        )

    @classmethod
    def forget_all(cls) -> None:
        """Close all services of this process. For tests, and for long-lived processes that use many
        settings.
        """
        with _lock:
            for services in _services.values():
                services.store.close()
            _services.clear()


def open_store(settings: SourceSettings) -> ZookeeperStateStore:
    """A new store for these settings, not connected yet."""
    return ZookeeperStateStore(
        settings.zookeeper,
        root=settings.zookeeper_root,
        application=settings.application,
        stream=settings.stream.name,
        session_timeout_s=settings.zookeeper_session_timeout_ms / 1000,
        security=settings.zookeeper_security,
    )
