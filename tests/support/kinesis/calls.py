"""Calls of the contract tests of a Kinesis service, over boto3: put, read to the tip or the end,
split, merge.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.kinesis.services import Service, wait_until_active

if TYPE_CHECKING:
    import pytest
    from botocore.exceptions import ClientError

LIMIT_S = 20.0


class ShardRead(NamedTuple):
    """The records that a reader got from a shard, and the last page."""

    records: list[dict[str, Any]]
    last_page: dict[str, Any]

    @property
    def data(self) -> list[bytes]:
        return [record["Data"] for record in self.records]


def summary_of(service: Service) -> dict[str, Any]:
    """What DescribeStreamSummary tells."""
    answer = service.client.describe_stream_summary(StreamName=service.name)
    found: dict[str, Any] = answer["StreamDescriptionSummary"]
    return found


def shards_of(service: Service, **arguments: Any) -> list[dict[str, Any]]:
    shards: list[dict[str, Any]] = service.client.list_shards(StreamName=service.name, **arguments)[
        "Shards"
    ]
    return shards


def put(service: Service, data: bytes, key: str = "key", **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = service.client.put_record(
        StreamName=service.name, Data=data, PartitionKey=key, **arguments
    )
    return answer


def iterator(service: Service, shard_id: str, kind: str = "TRIM_HORIZON", **arguments: Any) -> str:
    answer = service.client.get_shard_iterator(
        StreamName=service.name, ShardId=shard_id, ShardIteratorType=kind, **arguments
    )
    text: str = answer["ShardIterator"]
    return text


def read(
    service: Service, start: str, *, records: int | None = None, to_end: bool = False
) -> ShardRead:
    """Read from an iterator until `records` have come, or the tip (an empty page, 0 ms behind; not
    if `to_end`), or the end.
    """
    found: list[dict[str, Any]] = []
    following: str | None = start
    deadline = time.monotonic() + LIMIT_S
    while True:
        page = service.client.get_records(ShardIterator=following)
        found += page["Records"]
        following = page.get("NextShardIterator")
        at_tip = not to_end and not page["Records"] and page["MillisBehindLatest"] == 0
        if (
            following is None
            or (records is None and at_tip)
            or (records is not None and len(found) >= records)
        ):
            return ShardRead(found, page)
        assert time.monotonic() < deadline, f"no tip, end or {records} records within {LIMIT_S} s"


def read_shard(service: Service, shard_id: str) -> ShardRead:
    return read(service, iterator(service, shard_id))


def read_to_end(service: Service, shard_id: str) -> ShardRead:
    """Read a closed shard until the service reports its end, with its last records or after
    them.
    """
    return read(service, iterator(service, shard_id), to_end=True)


def split(service: Service, shard: dict[str, Any]) -> None:
    start, end = hash_keys(shard)
    service.client.split_shard(
        StreamName=service.name,
        ShardToSplit=shard["ShardId"],
        NewStartingHashKey=str((start + end + 1) // 2),
    )
    wait_until_active(service.client, service.name)


def merge(service: Service, shard: dict[str, Any], adjacent: dict[str, Any]) -> None:
    service.client.merge_shards(
        StreamName=service.name,
        ShardToMerge=shard["ShardId"],
        AdjacentShardToMerge=adjacent["ShardId"],
    )
    wait_until_active(service.client, service.name)


def hash_keys(shard: dict[str, Any]) -> tuple[int, int]:
    return int(shard["HashKeyRange"]["StartingHashKey"]), int(
        shard["HashKeyRange"]["EndingHashKey"]
    )


def is_open(shard: dict[str, Any]) -> bool:
    return "EndingSequenceNumber" not in shard["SequenceNumberRange"]


def refusal(error: pytest.ExceptionInfo[ClientError]) -> str:
    code: str = error.value.response["Error"]["Code"]
    return code
