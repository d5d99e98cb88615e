"""The usual loop with boto3: one shard after the other, nothing tracked, nothing stored.

Run as

    python -m benchmarks.peers.readers.boto3_loop --endpoint URL --warm NAME:RECORDS
        --measured NAME:RECORDS
"""

from __future__ import annotations

import argparse
from typing import Any

import boto3

from benchmarks.peers.readers import marks


def read(client: Any, stream: str) -> None:
    name, _, records = stream.partition(":")
    count = size = 0
    for shard in client.list_shards(StreamName=name)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        answer = client.get_records(ShardIterator=iterator["ShardIterator"], Limit=10_000)
        while answer["Records"]:
            for record in answer["Records"]:
                count += 1
                size += len(record["Data"])
            answer = client.get_records(ShardIterator=answer["NextShardIterator"], Limit=10_000)
    if count != int(records):
        raise SystemExit(f"the loop read {count} records of {name}, which has {records}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--warm", required=True)
    parser.add_argument("--measured", required=True)
    options = parser.parse_args()
    client = boto3.client(
        "kinesis",
        endpoint_url=options.endpoint,
        region_name="us-east-1",
        aws_access_key_id="peers",
        aws_secret_access_key="peers",  # noqa: S106
    )
    read(client, options.warm)
    marks.begin()
    read(client, options.measured)
    marks.end(int(options.measured.partition(":")[2]))


if __name__ == "__main__":
    main()
