"""SubscribeToShard over HTTP, as boto3 reads it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing import ManualClock
from tests.support.kinesis.fake_calls import SHARD, STREAM
from tests.support.kinesis.services import ServedFake, kinesis_client, serve

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fake(clock: ManualClock) -> Iterator[ServedFake]:
    with serve(clock=clock) as served:
        served.model.create(STREAM)
        yield served


@pytest.fixture
def client(fake: ServedFake) -> Iterator[Any]:
    with kinesis_client(fake.endpoint_url) as vendor:
        yield vendor


@pytest.fixture
def consumer_arn(fake: ServedFake, client: Any) -> str:
    arn: str = client.register_stream_consumer(
        StreamARN=fake.model.stream(STREAM).arn, ConsumerName="reader"
    )["Consumer"]["ConsumerARN"]
    return arn


def subscribe(client: Any, consumer_arn: str, kind: str = "TRIM_HORIZON") -> Any:
    answer = client.subscribe_to_shard(
        ConsumerARN=consumer_arn, ShardId=SHARD, StartingPosition={"Type": kind}
    )
    return closing(answer["EventStream"])


def test_boto3_reads_a_shard_to_its_end(fake: ServedFake, client: Any, consumer_arn: str) -> None:
    """The records as they were put, then the children, then the end of the event stream."""
    fake.model.put(STREAM, "key \u00e4", bytes(range(256)))
    with subscribe(client, consumer_arn) as pushes:
        events = iter(pushes)
        (record,) = next(events)["SubscribeToShardEvent"]["Records"]
        assert (record["Data"], record["PartitionKey"]) == (bytes(range(256)), "key \u00e4")
        fake.model.put(STREAM, "key", b"later")
        pushed = next(events)["SubscribeToShardEvent"]
        assert [record["Data"] for record in pushed["Records"]] == [b"later"]
        assert pushed["ContinuationSequenceNumber"] == pushed["Records"][-1]["SequenceNumber"]
        fake.model.split(STREAM, SHARD)
        end = next(events)["SubscribeToShardEvent"]
        assert [child["ShardId"][-1] for child in end["ChildShards"]] == ["1", "2"]
        assert list(events) == []
