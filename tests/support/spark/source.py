"""A stream on FakeKinesis and the source's settings for it, for tests of the Spark protocol."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.clock import SystemClock
from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import (
    create_stream,
    fields_of,
    kinesis_client,
    options_of,
    serve,
)
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import SourceSettings
    from state.shard_state import ShardState

STREAM = "orders"
APPLICATION = "orders-etl"


class ShiftedClock(SystemClock):
    """The machine's clock with an offset. Tests advance it for the service."""

    __slots__ = ("ahead_s",)

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead_s * 1000)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s

    def advance(self, seconds: float) -> None:
        self.ahead_s += seconds


@dataclass
class StreamUnderTest:
    """A stream of four shards that tests put records on and reshard. `put` remembers the records by
    shard, in order. `read_mode`: fields of all sources.
    """

    client: Any
    endpoint_url: str
    zookeeper: str
    clock: ShiftedClock
    records: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0
    read_mode: dict[str, Any] = field(default_factory=dict)

    def put(self, count: int) -> None:
        end = self.count + count
        while self.count < end:
            numbers = range(self.count, min(end, self.count + 500))
            entries = [{"Data": b"record %d" % n, "PartitionKey": f"key {n}"} for n in numbers]
            for answer in self.client.put_records(StreamName=STREAM, Records=entries)["Records"]:
                self.records.setdefault(answer["ShardId"], []).append(answer["SequenceNumber"])
            self.count = numbers.stop

    def put_record(self, partition_key: str, data: bytes) -> str:
        """Returns `shardId:sequenceNumber`."""
        answer = self.client.put_record(StreamName=STREAM, PartitionKey=partition_key, Data=data)
        self.records.setdefault(answer["ShardId"], []).append(answer["SequenceNumber"])
        self.count += 1
        return f"{answer['ShardId']}:{answer['SequenceNumber']}"

    def open_shards(self) -> list[dict[str, Any]]:
        shards = self.client.list_shards(StreamName=STREAM)["Shards"]
        return [
            shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
        ]

    def split(self, index: int = 0) -> str:
        """Split an open shard in the middle; returns its id."""
        shard = self.open_shards()[index]
        middle = sum(map(int, shard["HashKeyRange"].values())) // 2
        self.client.split_shard(
            StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
        )
        return str(shard["ShardId"])

    def merge(self) -> tuple[str, str]:
        """Merge the two open shards with the lowest hash keys; returns their ids."""
        first, second = sorted(
            self.open_shards(), key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"])
        )[:2]
        self.client.merge_shards(
            StreamName=STREAM, ShardToMerge=first["ShardId"], AdjacentShardToMerge=second["ShardId"]
        )
        return str(first["ShardId"]), str(second["ShardId"])

    def ids(self) -> set[str]:
        return {
            f"{shard}:{sequence}"
            for shard, sequences in self.records.items()
            for sequence in sequences
        }

    def settings(self, **changes: Any) -> SourceSettings:
        return self.source(**changes).settings()

    def source(self, **changes: Any) -> KinesisSource:
        return KinesisSource(**self.fields(**changes))

    def connection(self, **more: str) -> dict[str, str]:
        """The options of a batch read and of the sink."""
        return {
            "streamName": STREAM,
            **options_of(self.endpoint_url),
        } | more

    def fields(self, **changes: Any) -> dict[str, Any]:
        """The fields that a user gives to `KinesisSource`, for a job in another process."""
        defaults: dict[str, Any] = {
            "stream": STREAM,
            "application": APPLICATION,
            "zookeeper": self.zookeeper,
            **fields_of(self.endpoint_url),
            "starting_position": "TRIM_HORIZON",
            "reads_per_second": 1000,
            "read_bytes_per_second": "1GiB",
            "probe_interval": "200ms",
            "idle_wait": "500ms",
            "shard_refresh_interval": "100ms",
        }
        return defaults | self.read_mode | changes

    def states(self, application: str = APPLICATION, name: str = STREAM) -> dict[str, ShardState]:
        with self._store(application, name) as store:
            return {shard: stored.state for shard, stored in store.shard_states.load().items()}

    def tells_errors(self) -> bool:
        """Whether the newest run says that an error of its sink or function would be told."""
        with self._store(APPLICATION) as store:
            told = store.runs.read().get(None)
            return told is not None and told.newest is not None and told.newest.tells_errors

    def last_end(self) -> str | None:
        """What the last run that ended has told of its end."""
        with self._store(APPLICATION) as store:
            ends = [run.end for log in store.runs.read().values() for run in log.runs if run.end]
            return ends[-1].says if ends else None

    def _store(self, application: str, name: str = STREAM) -> closing[ZookeeperStateStore]:
        return closing(
            ZookeeperStateStore(
                self.zookeeper, root="kinesis-spout", application=application, stream=name
            )
        )

    def checkpoints(self) -> dict[str, str]:
        """Checkpoints of shards that have delivered a record."""
        return {
            shard: str(state.checkpoint)
            for shard, state in self.states().items()
            if state.checkpoint is not None
        }

    def tips(self) -> dict[str, str]:
        return {shard: sequences[-1] for shard, sequences in self.records.items()}


@pytest.fixture
def stream(zookeeper_chroot: str) -> Iterator[StreamUnderTest]:
    with served_stream(zookeeper_chroot) as stream:
        yield stream


@contextmanager
def served_stream(zookeeper: str) -> Iterator[StreamUnderTest]:
    """On a FakeKinesis of its own, with four shards."""
    clock = ShiftedClock()
    with serve(clock=clock) as fake, kinesis_client(fake.endpoint_url) as client:
        create_stream(client, STREAM, shards=4)
        yield StreamUnderTest(client, fake.endpoint_url, zookeeper, clock)
        ProcessServices.forget_all()


READ_MODES: dict[str, dict[str, Any]] = {
    "polling": {},
    "efo": {"read_mode": "efo", "consumer_name": "reader"},
}
"""The fields of a source for each mode. A module whose tests hold in both replaces the stream:

    @pytest.fixture(params=READ_MODES)
    def stream(request, stream):
        stream.read_mode = READ_MODES[request.param]
        return stream
"""


@contextmanager
def stream_at(endpoint_url: str, zookeeper: str, *, shards: int) -> Iterator[StreamUnderTest]:
    """The stream on a service that others use, too: it is removed at the end."""
    with kinesis_client(endpoint_url) as client:
        create_stream(client, STREAM, shards=shards)
        try:
            yield StreamUnderTest(client, endpoint_url, zookeeper, ShiftedClock())
        finally:
            ProcessServices.forget_all()
            client.delete_stream(StreamName=STREAM, EnforceConsumerDeletion=True)
            wait_until(lambda: STREAM not in client.list_streams()["StreamNames"])


def ids_of(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['shardId']}:{row['sequenceNumber']}" for row in rows]
