"""The consumer of async-kinesis: payloads unchanged, checkpoints that store nothing.

Runs in an environment that has only that package.

    python -m benchmarks.peers.readers.async_kinesis --endpoint URL --warm NAME:RECORDS
        --measured NAME:RECORDS
"""

from __future__ import annotations

import argparse
import asyncio
import os

from kinesis import Consumer  # type: ignore[import-not-found]  # installed in its own place only
from kinesis.aggregators import SimpleAggregator  # type: ignore[import-not-found]
from kinesis.processors import Processor  # type: ignore[import-not-found]

from benchmarks.peers.readers import marks

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "peers",
    "AWS_SECRET_ACCESS_KEY": "peers",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class Payloads(Processor, SimpleAggregator):  # type: ignore[misc]  # the package has no types here
    def serialize(self, item: bytes) -> bytes:
        return item

    def deserialize(self, data: bytes) -> bytes:
        return data


async def read(endpoint: str, stream: str) -> None:
    name, _, records = stream.partition(":")
    wanted = int(records)
    count = size = 0
    async with Consumer(
        name,
        endpoint_url=endpoint,
        region_name="us-east-1",
        processor=Payloads(),
        shard_fetch_rate=1000,
        sleep_time_no_records=0.01,
        max_queue_size=100_000,
    ) as consumer:
        while count < wanted:  # its iteration ends whenever its queue is empty
            async for data in consumer:
                count += 1
                size += len(data)
                if count == wanted:
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--warm", required=True)
    parser.add_argument("--measured", required=True)
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    asyncio.run(read(options.endpoint, options.warm))
    marks.begin()
    asyncio.run(read(options.endpoint, options.measured))
    marks.end(int(options.measured.partition(":")[2]))


if __name__ == "__main__":
    main()
