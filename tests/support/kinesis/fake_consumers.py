"""Consumers and subscriptions of a FakeKinesis in the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.testing.service import requests

if TYPE_CHECKING:
    from kinesis_spout.testing import FakeKinesis, Subscription


STREAM = "orders"
SHARD = "shardId-000000000000"


def register(fake: FakeKinesis, name: str = "reader") -> str:
    """Register a consumer of the stream; its ARN."""
    request = requests.RegisterStreamConsumer(
        stream_arn=fake.stream(STREAM).arn, consumer_name=name
    )
    return fake.register_stream_consumer(request).consumer.consumer_arn


def subscribe(
    fake: FakeKinesis,
    consumer_arn: str,
    kind: str = "TRIM_HORIZON",
    *,
    shard_id: str = SHARD,
    **members: Any,
) -> Subscription:
    starting = requests.StartingPosition(type=kind, **members)
    return fake.subscribe_to_shard(
        requests.SubscribeToShard(
            consumer_arn=consumer_arn, shard_id=shard_id, starting_position=starting
        )
    )
