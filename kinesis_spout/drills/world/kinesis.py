"""The stream of a drill: what is put on it, and what shards it has. And our own Kinesis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeAlias

from kinesis_spout.clock import SystemClock
from kinesis_spout.drills.credentials import REGION, aws_of
from kinesis_spout.drills.world.remote_stream import FIRST_SHARDS, RemoteStream, SeenShard
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from kinesis_spout.testing.service.requests import UpdateShardCount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.config import AwsConfig


_AGE_MS = 12 * 3_600_000  # of our own stream when a drill begins


class ServiceClock(SystemClock):
    """The clock of our own Kinesis. `ahead_ms`: by how much it is wrong; any thread may set it."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class OwnStream:
    """A stream of our own Kinesis, which runs in this process and listens on loopback. A drill
    reaches it without HTTP, so no fault hits its own calls. `clock`: the service's. `is_local`: it
    takes any credentials. `fake` makes faults on demand; another stream has none.
    """

    is_local = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock = ServiceClock()
        self.fake = FakeKinesis(clock=self.clock)
        self._server = FakeKinesisServer(self.fake)

    @property
    def aws(self) -> AwsConfig:
        return aws_of(region=REGION, endpoint=self._server.endpoint_url, is_local=True)

    def __enter__(self) -> Self:
        # An older stream still exists when its clock is set back.
        self.clock.ahead_ms = -_AGE_MS
        self.fake.create(self.name, shards=FIRST_SHARDS)
        self.clock.ahead_ms = 0
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)

    def put(self, records: Sequence[tuple[str, bytes]]) -> list[tuple[str, int]]:
        """Put records with their partition keys, no two of one key. Returns the shard and the
        sequence number of each.
        """
        placed = (self.fake.put(self.name, key, data).partition(":") for key, data in records)
        return [(shard_id, int(sequence)) for shard_id, _, sequence in placed]

    def shards(self) -> list[SeenShard]:
        """All that the service lists, closed ones included."""
        return [
            SeenShard(
                one.shard_id,
                tuple(parent for parent in one.parents if parent),
                one.is_open,
                one.hash_keys.start,
                one.hash_keys.end,
            )
            for one in self.fake.shards(self.name)
        ]

    def split(self, shard_id: str) -> None:
        """In the middle. Returns when the stream is active again, as all that reshard do."""
        self.fake.split(self.name, shard_id)

    def merge(self, shard_id: str, adjacent_id: str) -> None:
        self.fake.merge(self.name, shard_id, adjacent_id)

    def update_shard_count(self, shards: int) -> None:
        request = UpdateShardCount(
            stream_name=self.name, target_shard_count=shards, scaling_type="UNIFORM_SCALING"
        )
        with self.fake.lock:
            self.fake.update_shard_count(request)


DrillStream: TypeAlias = OwnStream | RemoteStream
"""A stream that a drill makes and removes, as a context manager. Any thread may call it; its
methods block on the service and raise `KinesisError`.
"""
