"""Seeds a local Kinesis: a stream, JSON records with keys, and optionally a split in the middle.

    .venv/bin/python -m localstack.seed --stream demo --shards 2 --records 1000 --split

The stream is created unless it exists. The same arguments put the same data and keys again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_ENTRIES = 500  # of one PutRecords: the service's limit
KEYS = 100
_LIMIT_S = 120.0
_PAUSE_S = 0.1


class SeedError(Exception):
    """The stream could not be seeded. The message says what to do."""


def entries(first: int, last: int) -> Iterator[list[dict[str, Any]]]:
    """PutRecords entries for the records `first` to before `last`, in lists of at most 500.

    Each record has the next of `KEYS` keys.
    """
    for start in range(first, last, MAX_ENTRIES):
        numbers = range(start, min(start + MAX_ENTRIES, last))
        yield [
            {"Data": json.dumps({"n": n}).encode(), "PartitionKey": f"key-{n % KEYS}"}
            for n in numbers
        ]


def create(client: Any, stream: str, shards: int) -> None:
    """Create the stream unless it exists. Blocks until it is ACTIVE."""
    with suppress(client.exceptions.ResourceInUseException):
        client.create_stream(StreamName=stream, ShardCount=shards)
    wait_until_active(client, stream)


def put(client: Any, stream: str, first: int, last: int) -> None:
    """Put the records. Blocks.

    Throttled ones are put again, which may change the order within a key.
    """
    for batch in entries(first, last):
        left = batch
        deadline = time.monotonic() + _LIMIT_S
        while left:
            answers = client.put_records(StreamName=stream, Records=left)["Records"]
            left = [
                entry for entry, answer in zip(left, answers, strict=True) if "ErrorCode" in answer
            ]
            _pause(bool(left), deadline, f"stream {stream} accepts no more records")


def split_first(client: Any, stream: str) -> str:
    """Split the first open shard in the middle of its hash keys, and return its id.

    Blocks until the stream is ACTIVE.
    """
    shards = client.list_shards(StreamName=stream, ShardFilter={"Type": "AT_LATEST"})["Shards"]
    shard: dict[str, Any] = shards[0]
    start, end = (int(shard["HashKeyRange"][edge]) for edge in ("StartingHashKey", "EndingHashKey"))
    client.split_shard(
        StreamName=stream,
        ShardToSplit=shard["ShardId"],
        NewStartingHashKey=str((start + end + 1) // 2),
    )
    wait_until_active(client, stream)
    return str(shard["ShardId"])


def wait_until_active(client: Any, stream: str) -> None:
    """Wait until no change of the stream is in progress, at most two minutes."""
    deadline = time.monotonic() + _LIMIT_S
    changing = True
    while changing:
        status = client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"][
            "StreamStatus"
        ]
        changing = status != "ACTIVE"
        _pause(changing, deadline, f"stream {stream} is still {status}")


def _pause(needed: bool, deadline: float, problem: str) -> None:  # noqa: FBT001  # the loops' own condition
    if needed and time.monotonic() > deadline:
        raise SeedError(f"{problem} after {_LIMIT_S:.0f} s: check the log of the local service")
    if needed:
        time.sleep(_PAUSE_S)  # noqa: TID251  # the service can only be polled


def seed(client: Any, *, stream: str, shards: int, records: int, split: bool) -> list[str]:
    """Create the stream and put the records; with `split`, split a shard after half of them.

    Returns a line for each step.
    """
    create(client, stream, shards)
    half = records // 2 if split else records
    put(client, stream, 0, half)
    lines = [f"{half} records are on stream {stream}"]
    if split:
        lines.append(f"{split_first(client, stream)} is split")
        put(client, stream, half, records)
        lines.append(f"{records - half} more records are in the shards that are now open")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Seed as the arguments say. Returns 1 after one sentence when that fails."""
    parser = argparse.ArgumentParser(prog="seed", description="Put records on a local Kinesis.")
    parser.add_argument(
        "--endpoint",
        default="http://127.0.0.1:4566",
        help="endpoint of the local Kinesis (default: %(default)s)",
    )
    parser.add_argument("--region", default="us-east-1", help="(default: %(default)s)")
    parser.add_argument("--stream", default="demo", help="(default: %(default)s)")
    parser.add_argument(
        "--shards",
        type=int,
        default=2,
        help="number of shards of a new stream (default: %(default)s)",
    )
    parser.add_argument("--records", type=int, default=1_000, help="(default: %(default)s)")
    parser.add_argument(
        "--split", action="store_true", help="split the first open shard after half of the records"
    )
    options = parser.parse_args(arguments)
    client = boto3.client(
        "kinesis",
        endpoint_url=options.endpoint,
        region_name=options.region,
        # Never the user's own keys: whatever listens there would see their signatures.
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106  # a local service accepts any
        config=Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 2}),
    )
    try:
        lines = seed(
            client,
            stream=options.stream,
            shards=options.shards,
            records=options.records,
            split=options.split,
        )
        print(*lines, sep="\n")
    except (SeedError, BotoCoreError, ClientError) as error:
        print(
            f"stream {options.stream} at {options.endpoint} does not contain all records: {error}",
            file=sys.stderr,
        )
        return 1
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
