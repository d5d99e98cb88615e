"""The readers that `spout.py` compares. Each is a process that reads every record once.

    python spout_readers.py spout|spout-cbor|boto3|async-kinesis ENDPOINT RECORDS [CORE]

It prints what it read and the time it took. All readers pass every payload as bytes to the same few
lines, which count it and add up its checksum. The reader of async-kinesis imports nothing of ours,
so that it can run in an environment that has only that package.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM = "benchmark"
KEYS = {
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class Seen:
    """The records read, and their cost from `start` on. `add` is all that a reader does per
    payload.
    """

    def __init__(self) -> None:
        self.records = 0
        self.payload_bytes = 0
        self.checksum = 0
        self._began_s = self._began_cpu_s = 0.0

    def start(self) -> None:
        """Start measuring, after imports and connecting.

        A stream is read for days, so the start-up does not count.
        """
        self._began_s, self._began_cpu_s = time.perf_counter(), time.process_time()

    def told(self) -> dict[str, float]:
        took = {
            "wall_s": time.perf_counter() - self._began_s,
            "cpu_s": time.process_time() - self._began_cpu_s,
        }
        return {
            "records": self.records,
            "payload_bytes": self.payload_bytes,
            "checksum": self.checksum,
        } | took

    def add(self, data: bytes) -> None:
        self.records += 1
        self.payload_bytes += len(data)
        self.checksum = (self.checksum + zlib.crc32(data)) & 0xFFFFFFFF


def spout(endpoint_url: str, records: int, seen: Seen, **aws: str) -> None:
    """With tracking, round robin, acks record by record, and a commit once a second."""
    from kinesis_spout.config import AwsConfig, ReadRate  # noqa: PLC0415  # not there in the process of async-kinesis
    from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig  # noqa: PLC0415

    config = SpoutConfig(
        stream=STREAM,
        aws=AwsConfig(region="us-east-1", endpoint_url=endpoint_url, **aws),
        starting_position="TRIM_HORIZON",
        rate=ReadRate(reads_per_second=1000, bytes_per_second=1e9),
    )
    add = seen.add
    with KinesisSpout(config) as opened:
        seen.start()
        for emission in opened.emissions():
            add(emission.data)
            emission.ack()
            if seen.records == records:
                break


def boto3(endpoint_url: str, _records: int, seen: Seen) -> None:
    """The usual loop: one shard after the other, nothing tracked, nothing stored."""
    import boto3 as boto  # noqa: PLC0415  # not there in the process of async-kinesis

    client = boto.client("kinesis", endpoint_url=endpoint_url)
    add = seen.add
    shards = client.list_shards(StreamName=STREAM)["Shards"]
    seen.start()
    for shard in shards:
        iterator = client.get_shard_iterator(
            StreamName=STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        answer = client.get_records(ShardIterator=iterator["ShardIterator"], Limit=10_000)
        while answer["Records"]:
            for record in answer["Records"]:
                add(record["Data"])
            answer = client.get_records(ShardIterator=answer["NextShardIterator"], Limit=10_000)


def async_kinesis(endpoint_url: str, records: int, seen: Seen) -> None:
    """Its consumer, with a checkpointer that stores nothing, and payloads unchanged."""
    from kinesis import Consumer  # type: ignore[import-not-found]  # noqa: PLC0415  # installed in its own place only
    from kinesis.aggregators import SimpleAggregator  # type: ignore[import-not-found]  # noqa: PLC0415
    from kinesis.processors import Processor  # type: ignore[import-not-found]  # noqa: PLC0415

    class Payloads(Processor, SimpleAggregator):  # type: ignore[misc]  # the package has no types here
        def serialize(self, item: bytes) -> bytes:
            return item

        def deserialize(self, data: bytes) -> bytes:
            return data

    async def read() -> None:
        options: dict[str, Any] = {
            "shard_fetch_rate": 1000,
            "sleep_time_no_records": 0.01,
            "max_queue_size": 100_000,
        }
        async with Consumer(
            STREAM,
            endpoint_url=endpoint_url,
            region_name="us-east-1",
            processor=Payloads(),
            **options,
        ) as consumer:
            seen.start()
            async for data in consumer:
                seen.add(data)
                if seen.records == records:
                    break

    asyncio.run(read())


READERS: dict[str, Callable[[str, int, Seen], None]] = {
    "spout": spout,
    "spout-cbor": partial(spout, wire_format="cbor"),
    "boto3": boto3,
    "async-kinesis": async_kinesis,
}


def main() -> None:
    name, endpoint_url, records, *core = sys.argv[1:]
    if core:
        os.sched_setaffinity(0, set(map(int, core)))
    os.environ.update(KEYS)
    seen = Seen()
    READERS[name](endpoint_url, int(records), seen)
    print(json.dumps(seen.told()))


if __name__ == "__main__":
    main()
