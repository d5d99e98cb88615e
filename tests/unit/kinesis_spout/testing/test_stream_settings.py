"""What an existing stream can be changed to: its maximum record size and record distribution. Calls
go through boto3, which knows the shapes of both.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.support.kinesis.large_records import take_large_records
from tests.support.kinesis.services import kinesis_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kinesis.services import ServedFake

pytestmark = pytest.mark.skipif(
    not hasattr(boto3.client("kinesis", region_name="us-east-1"), "update_max_record_size"),
    reason="this boto3 is older than these settings",
)
STREAM = "orders"
MIB = 1024 * 1024


@pytest.fixture
def client(fake_kinesis: ServedFake) -> Iterator[Any]:
    with kinesis_client(fake_kinesis.endpoint_url) as client:
        yield client


def create(client: Any, **members: Any) -> str:
    """A stream of three shards. Returns its ARN."""
    client.create_stream(StreamName=STREAM, ShardCount=3, **members)
    return str(summary(client)["StreamARN"])


def summary(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.describe_stream_summary(StreamName=STREAM)
    return dict(found["StreamDescriptionSummary"])


def keys(client: Any) -> Counter[str | None]:
    """The keys of all records, None for a record without one."""
    found: Counter[str | None] = Counter()
    for shard in client.list_shards(StreamName=STREAM)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        page = client.get_records(ShardIterator=iterator)
        found.update(record.get("PartitionKey") for record in page["Records"])
    return found


def put_without_keys(client: Any, count: int) -> list[str]:
    """The shards that took the records."""
    answer = client.put_records(StreamName=STREAM, Records=[{"Data": b"x"}] * count)
    return [record["ShardId"] for record in answer["Records"]]


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def test_the_maximum_record_size_is_raised_to_ten_mebibytes_at_most(client: Any) -> None:
    arn = create(client)
    largest = b"x" * (10 * MIB - 1)
    with pytest.raises(ClientError) as refused:
        client.put_record(StreamName=STREAM, PartitionKey="k", Data=largest)
    assert code(refused) == "ValidationException"
    take_large_records(client, STREAM)
    assert summary(client)["MaxRecordSizeInKiB"] == 10_240
    client.put_record(StreamName=STREAM, PartitionKey="k", Data=largest)
    with pytest.raises(ClientError) as refused:
        client.update_max_record_size(StreamARN=arn, MaxRecordSizeInKiB=10_241)
    assert code(refused) == "ValidationException"


def test_an_auto_stream_takes_records_without_keys_and_spreads_all_of_them(client: Any) -> None:
    """A key that is given comes back, and decides nothing."""
    create(
        client,
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        RecordDistributionStrategy="AUTO",
    )
    shards = Counter(put_without_keys(client, 300))
    shards.update(
        client.put_record(StreamName=STREAM, PartitionKey="same", ExplicitHashKey="0", Data=b"x")[
            "ShardId"
        ]
        for _ in range(30)
    )
    assert set(shards.values()) == {110}
    assert keys(client) == {None: 300, "same": 30}
    assert summary(client)["RecordDistributionStrategy"] == "AUTO"
    with pytest.raises(ClientError) as refused:
        client.put_record(StreamName=STREAM, Data=b"x", SequenceNumberForOrdering="0")
    assert code(refused) == "InvalidArgumentException"
