"""FakeKinesis: a Kinesis in this process, with the service's semantics, an injected clock and a
fault plan.

    fake = FakeKinesis()
    fake.create("orders", shards=2)
    fake.put("orders", "key", b"data")
    with FakeKinesisServer(fake) as server:
        boto3.client("kinesis", endpoint_url=server.endpoint_url, ...)

The semantics come from the API reference and the Developer Guide of Amazon Kinesis Data Streams.
The texts of error messages and the layout of sequence numbers come from what the authors of
emulators observed. One contract suite runs on FakeKinesis and on another emulator alike.
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
    """A simulated Kinesis: one AWS account in one region. It does no I/O and starts no thread.

    Time passes only as the injected clock says (default: the system's clock). The operations
    (`put_record`, `get_records`, ...) take the typed requests of
    `kinesis_spout.testing.service.requests` and need `lock`; `FakeKinesisProtocol` adds the lock,
    the fault plan and the JSON. The methods below are short forms for tests. They take the lock
    themselves, so any thread may call them while a server serves this object. They raise
    `ServiceError` where the operation would.
    """

    def __init__(
        self, *, settings: FakeKinesisSettings | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(settings=settings, clock=clock)
        self.faults = FaultPlan()

    def create(
        self,
        stream: str,
        *,
        shards: int = 1,
        max_record_kib: int | None = None,
        distribution: str | None = None,
    ) -> None:
        """Create a stream. It is ACTIVE at once, unless `settings.create_ms` delays that.

        `max_record_kib`: its maximum record size, 1024 to 10240. `distribution`: the record
        distribution strategy of an on-demand stream, `AUTO` or `USER_PARTITION_KEY`; None creates a
        provisioned stream.
        """
        mode = None if distribution is None else requests.StreamMode("ON_DEMAND")
        with self.lock:
            self.create_stream(
                requests.CreateStream(
                    stream_name=stream,
                    shard_count=shards,
                    stream_mode_details=mode,
                    max_record_size_kib=max_record_kib,
                    record_distribution_strategy=distribution,
                )
            )

    def put(
        self,
        stream: str,
        partition_key: str | None,
        data: bytes,
        *,
        arrival_ms: int | None = None,
        explicit_hash_key: int | None = None,
    ) -> str:
        """Put one record, regardless of the limits, and return `shardId:sequence`. The key may be
        None on an AUTO stream.

        `arrival_ms`: its arrival time in ms since 1970, now by default. It may be earlier than the
        arrival of earlier records, or than the stream's creation: within the retention, the record
        is read in the order of its sequence number.
        """
        with self.lock:
            target = self.stream(stream)
            shard = target.shard_for(
                hash_key(partition_key) if explicit_hash_key is None else explicit_hash_key
            )
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
        """Split a shard in the middle of its hash key range."""
        with self.lock:
            hash_keys = self.stream(stream).shard(shard_id).hash_keys
            middle = (hash_keys.start + hash_keys.end + 1) // 2
            self.split_shard(
                requests.SplitShard(
                    stream_name=stream, shard_to_split=shard_id, new_starting_hash_key=str(middle)
                )
            )

    def merge(self, stream: str, shard_id: str, adjacent_id: str) -> None:
        """Merge two shards whose hash key ranges are adjacent."""
        with self.lock:
            self.merge_shards(
                requests.MergeShards(
                    stream_name=stream, shard_to_merge=shard_id, adjacent_shard_to_merge=adjacent_id
                )
            )

    def records(self, stream: str, shard_id: str) -> tuple[StoredRecord, ...]:
        """The records of a shard that are within the retention period, oldest first."""
        with self.lock:
            return self.stream(stream).shard(shard_id).records

    def shards(self, stream: str) -> tuple[Shard, ...]:
        """The shards that the service still lists, oldest first; closed ones included."""
        with self.lock:
            return tuple(self.stream(stream).shards.values())

    def insert_empty_pages(self, stream: str, shard_id: str, pages: int) -> None:
        """Give every reader `pages` empty pages at the current tip, before records that are put
        later.

        Kinesis returns such pages while it searches storage that has none of the shard's records
        (API reference, `GetRecords`).
        """
        with self.lock:
            shard = self.stream(stream).shard(shard_id)
            shard.empty_runs[shard.tip] = pages
