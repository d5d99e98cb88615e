"""FakeKinesis: a Kinesis in this process, with the service's semantics, an injected clock and a
plan of faults.

    fake = FakeKinesis()
    fake.create("orders", shards=2)
    fake.put("orders", "key", b"data")
    with FakeKinesisServer(fake) as server:
        boto3.client("kinesis", endpoint_url=server.endpoint_url, ...)

Where its semantics come from: the API reference and the Developer Guide of Amazon Kinesis Data
Streams; messages and the layout of sequence numbers from what the authors of emulators saw the
service do. A contract suite runs on it and on another emulator alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.testing.faults.plan import FaultPlan
from kinesis_spout.testing.service import requests
from kinesis_spout.testing.service.control_plane import ControlPlane
from kinesis_spout.testing.service.data_plane import DataPlane
from kinesis_spout.testing.service.list_shards import ShardListing
from kinesis_spout.testing.service.subscribe_to_shard import Subscriptions
from kinesis_spout.testing.stream.hash_keys import hash_key

if TYPE_CHECKING:
    from kinesis_spout.clock import Clock
    from kinesis_spout.testing.settings import FakeKinesisSettings
    from kinesis_spout.testing.stream.shard import Shard, StoredRecord


class FakeKinesis(ControlPlane, ShardListing, DataPlane, Subscriptions):
    """One account in one region. Does no I/O and starts no thread; time passes only as the injected
    clock says.

    The operations (`put_record`, `get_records`, ...) take the typed requests of
    `kinesis_spout.testing.service.requests`; `FakeKinesisProtocol` puts the fault plan, the lock
    and the JSON in front of them. The short forms below are for tests and are safe to use while a
    server serves this object.
    """

    def __init__(
        self, *, settings: FakeKinesisSettings | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(settings=settings, clock=clock)
        self.faults = FaultPlan()

    def create(self, stream: str, *, shards: int = 1) -> None:
        with self.lock:
            self.create_stream(requests.CreateStream(stream_name=stream, shard_count=shards))

    def put(
        self, stream: str, partition_key: str, data: bytes, *, arrival_ms: int | None = None
    ) -> str:
        """Put one record, whatever the limits say; returns `shardId:sequence`.

        `arrival_ms`: its arrival time, if not now; it may be earlier than that of records before
        it.
        """
        with self.lock:
            target = self.stream(stream)
            shard = target.shard_for(hash_key(partition_key))
            now_ms = self.clock.now_ms()
            arrival_ms = now_ms if arrival_ms is None else arrival_ms
            record = shard.append(
                counter=target.next_counter(),
                arrival_ms=arrival_ms,
                put_ms=now_ms,
                partition_key=partition_key,
                data=data,
            )
            return f"{shard.shard_id}:{record.sequence}"

    def split(self, stream: str, shard_id: str) -> None:
        """Split a shard in the middle of its hash keys."""
        with self.lock:
            hash_keys = self.stream(stream).shard(shard_id).hash_keys
            middle = (hash_keys.start + hash_keys.end + 1) // 2
            self.split_shard(
                requests.SplitShard(
                    stream_name=stream, shard_to_split=shard_id, new_starting_hash_key=str(middle)
                )
            )

    def merge(self, stream: str, shard_id: str, adjacent_id: str) -> None:
        with self.lock:
            self.merge_shards(
                requests.MergeShards(
                    stream_name=stream, shard_to_merge=shard_id, adjacent_shard_to_merge=adjacent_id
                )
            )

    def records(self, stream: str, shard_id: str) -> tuple[StoredRecord, ...]:
        """What retention has left of a shard's records, oldest first."""
        with self.lock:
            return self.stream(stream).shard(shard_id).records

    def shards(self, stream: str) -> tuple[Shard, ...]:
        """The shards that the service still knows, oldest first."""
        with self.lock:
            return tuple(self.stream(stream).shards.values())

    def insert_empty_pages(self, stream: str, shard_id: str, pages: int) -> None:
        """Let every reader get `pages` empty pages at the present tip, before the records that are
        put from now on.

        The service answers so where it searches storage that holds none of the shard's records (API
        reference, `GetRecords`).
        """
        with self.lock:
            shard = self.stream(stream).shard(shard_id)
            shard.empty_runs[shard.tip] = pages
