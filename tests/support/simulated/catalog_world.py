"""A shard catalog on a simulated job: the shared part of its tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.shards.catalog import ShardCatalog
from kinesis_spout.testing.manual_clock import START_MS
from spark_job.driver.prober import ShardTips
from state.position import Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.identity import StartPin
from state.store.shard_states import StateChange
from tests.support.simulated.simulated_job import shard

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.support.simulated.simulated_job import SimulatedJob

GONE = ShardState(
    shard_id="shardId-000000000099",
    read_position=Position.after(SequenceNumber(7)),
    checkpoint=SequenceNumber(7),
)
PIN = StartPin(
    time_ms=START_MS,
    requested="LATEST",
    position=Position.at_timestamp(1_000),
    shards=(shard(0), shard(1)),
)


class World:
    """A catalog, and the watch that it checks."""

    def __init__(self, job: SimulatedJob, *, only: Collection[str] = (), **options: Any) -> None:
        self.job = job
        settings = job.settings(**({"shard_refresh_interval": "10s"} | options))
        self.services = job.services(settings)
        self.watch = ShardTips()
        self.services.store.ownership.acquire(this_process(0), timeout_s=1)
        self.catalog = ShardCatalog(
            self.services.client,
            job.clock,
            self.watch,
            stream_name=settings.stream.name,
            refresh_interval_s=settings.shard_refresh_interval_ms / 1000,
            fail_on_data_loss=settings.fail_on_data_loss,
            identity=self.services.store.identity,
            shard_states=self.services.store.shard_states,
            shard_list=self.services.store.shard_list,
            only=only,
        )
        self.catalog.states = dict(self.services.store.shard_states.load())

    def refresh(self, after_s: float = 0) -> None:
        self.job.clock.advance(after_s)
        self.catalog.refresh(PIN)
        self.catalog.drop_missing_shards()

    def store(self, *states: ShardState) -> None:
        self.catalog.save([StateChange(before=None, after=state) for state in states])

    def close(self) -> None:
        self.services.store.close()
