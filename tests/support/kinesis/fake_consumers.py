"""Consumers and subscriptions of a FakeKinesis in the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import SHARD, STREAM

if TYPE_CHECKING:
    from kinesis_spout.testing import FakeKinesis, Subscription
    from kinesis_spout.testing.service.answers import SubscribeToShardEvent


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


def event_of(subscription: Subscription) -> SubscribeToShardEvent:
    """The event that is there now; the call fails if there is none."""
    event = subscription.next_event()
    assert event is not None
    return event


def pushed(subscription: Subscription) -> list[bytes]:
    """The data of the event that is there now."""
    return [record.data for record in event_of(subscription).records]
