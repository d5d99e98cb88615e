"""The outside of a spout: Kinesis, the state store, the clock, threads and randomness. Tests and
simulations bring their own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, InterruptibleClock, SystemClock
from kinesis_spout.config import ReadRate
from kinesis_spout.reading.pacing import ShardPacers
from kinesis_spout.reading.subscriptions import NewFeed, ThreadFeed
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.threads import DaemonPool, NewPool, StartLoop, ThreadLoop
from state.memory_store import MemoryStateStore
from state.zookeeper.store import ZookeeperStateStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.reading.retry_reader import Search
    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.listener import SpoutNotifier
    from kinesis_spout.spout.outages import SpoutOutages
    from kinesis_spout.spout.scheduler import SpoutScheduler
    from state.znodes.topics import StoreTopics


@dataclass(slots=True, kw_only=True)
class SpoutServices:
    """The connections of one spout, which closes them. `store` is bound to the application and the
    stream. `closing` is set while the spout is closed: no sleep of `connect`'s clock outlasts that.
    `wait_for` waits for a push, so many seconds at most.
    """

    client: KinesisClient
    store: StoreTopics
    clock: Clock = field(default_factory=SystemClock)
    new_pool: NewPool = DaemonPool
    start_loop: StartLoop = ThreadLoop.start
    new_feed: NewFeed = ThreadFeed.start
    wait_for: Callable[[threading.Event, float], object] = threading.Event.wait
    random: Random = field(default_factory=Random)
    pacers: ShardPacers = field(default_factory=lambda: ShardPacers(ReadRate()))
    closing: threading.Event = field(default_factory=threading.Event)
    searches: dict[str, Search] = field(default_factory=dict)

    @classmethod
    def connect(cls, config: SpoutConfig) -> SpoutServices:
        """New connections, none of them opened yet."""
        closing = threading.Event()
        clock = InterruptibleClock(closing)
        client = KinesisClient(config.aws, config.stream_ref, clock=clock, as_lists=True)
        store: StoreTopics
        if config.zookeeper is None or config.application is None:  # state is kept in memory only
            store = MemoryStateStore(application=None, stream=config.stream_ref.name)
        else:
            store = ZookeeperStateStore(
                config.zookeeper,
                root=config.zookeeper_root,
                application=config.application,
                stream=config.stream_ref.name,
                session_timeout_s=config.zookeeper_session_timeout_s,
                security=config.zookeeper_security,
            )
        pacers = ShardPacers(config.rate)
        return cls(client=client, store=store, clock=clock, pacers=pacers, closing=closing)

    def close(self) -> None:
        """Close the store, which releases the ownership, and the client."""
        self.store.close()
        self.client.close()


@dataclass(frozen=True, slots=True)
class SpoutContext:
    """What the parts of an open spout share."""

    config: SpoutConfig
    services: SpoutServices
    scheduler: SpoutScheduler
    hooks: SpoutNotifier
    outages: SpoutOutages
