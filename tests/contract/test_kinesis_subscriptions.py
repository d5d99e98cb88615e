"""The service's contract, tested against FakeKinesis and LocalStack alike: SubscribeToShard, by the
client of the product.

What only the real service and FakeKinesis do is not tested here: five minutes of life,
ResourceInUse within five seconds, the pace of 2 MB a second.
"""

from __future__ import annotations

import time
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.config import StreamRef
from kinesis_spout.errors import KinesisError, ServiceUnavailableError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.consumers import ConsumerRegistry
from state.position import TRIM_HORIZON, Position
from tests.support.kinesis.calls import LIMIT_S, put, shards_of, split
from tests.support.kinesis.services import ACCESS_KEY, REGION
from tests.support.kinesis.stub_kinesis import config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.service.subscription import ShardSubscription, SubscriptionEvent
    from tests.support.kinesis.services import Service

Events = list["SubscriptionEvent"]


@pytest.fixture
def client(one_shard: Service, kinesis_service: str) -> Iterator[KinesisClient]:
    aws = config_of(kinesis_service, region=REGION, access_key_id=ACCESS_KEY)
    stream = StreamRef(one_shard.name)
    with closing(KinesisClient(aws, stream, random=Random(0))) as found:  # noqa: S311  # jitter
        yield found


@pytest.fixture
def consumer_arn(client: KinesisClient) -> str:
    """Of an ACTIVE consumer."""
    registry = ConsumerRegistry(client)
    arn = registry.register("reader").arn
    deadline = time.monotonic() + LIMIT_S
    while registry.find(arn=arn).status != "ACTIVE":
        assert time.monotonic() < deadline, "the consumer does not become ACTIVE"
        time.sleep(0.02)  # noqa: TID251  # the service announces nothing: its status can only be asked for
    return arn


def events_until(
    subscription: ShardSubscription, done: Callable[[Events], bool]
) -> list[SubscriptionEvent]:
    """What comes until `done`, or until the subscription is over. Releases it."""
    found: Events = []
    deadline = time.monotonic() + LIMIT_S
    try:
        while not done(found):
            assert time.monotonic() < deadline, f"{len(found)} events within {LIMIT_S} s"
            event = subscription.next_event()
            if event is None:
                break
            found.append(event)
    finally:
        subscription.release()
    return found


def data_of(events: Events) -> list[bytes]:
    return [data for event in events for data in event.page.columns.lists().data]


def has(count: int) -> Callable[[Events], bool]:
    return lambda events: len(data_of(events)) >= count


def test_records_come_in_order_from_the_oldest_on(
    one_shard: Service, client: KinesisClient, consumer_arn: str
) -> None:
    """Those from before the subscription, and those that are put while it lives."""
    for number in range(3):
        put(one_shard, str(number).encode())
    (shard,) = shards_of(one_shard)
    subscription = client.subscribe(consumer_arn, shard["ShardId"], TRIM_HORIZON)
    first = subscription.next_event()
    assert first is not None
    put(one_shard, b"3")
    events = [first, *events_until(subscription, lambda more: has(4)([first, *more]))]
    assert data_of(events) == [b"0", b"1", b"2", b"3"]


def test_the_next_subscription_goes_on_after_the_continuation(
    one_shard: Service, client: KinesisClient, consumer_arn: str
) -> None:
    """Neither a record twice, nor one left out."""
    (shard,) = shards_of(one_shard)
    put(one_shard, b"0")
    events = events_until(client.subscribe(consumer_arn, shard["ShardId"], TRIM_HORIZON), has(1))
    number = events[-1].continuation
    assert number is not None
    assert events[-1].page.last is None or number >= events[-1].page.last
    put(one_shard, b"1")
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            following = client.subscribe(consumer_arn, shard["ShardId"], Position.after(number))
        except KinesisError:  # within five seconds of the one before
            assert time.monotonic() < deadline
            time.sleep(0.5)  # noqa: TID251  # the service announces nothing: it can only be asked again
        else:
            break
    assert data_of(events_until(following, has(1))) == [b"1"]


def test_the_last_event_of_a_closed_shard_names_its_children(
    one_shard: Service, client: KinesisClient, consumer_arn: str
) -> None:
    """And no continuation. The subscription is over.

    LocalStack breaks the connection off instead, after the last records; then the shard's end is
    read by polling, and a reader may not take the break for the end.
    """
    (parent,) = shards_of(one_shard)
    put(one_shard, b"last")
    split(one_shard, parent)
    subscription = client.subscribe(consumer_arn, parent["ShardId"], TRIM_HORIZON)
    events: Events = []
    try:
        while not events or events[-1].continuation is not None:
            event = subscription.next_event()
            assert event is not None, "it is over without a word of the shard's end"
            events.append(event)
    except ServiceUnavailableError:
        assert data_of(events) == [b"last"]
        return
    finally:
        subscription.release()
    assert data_of(events) == [b"last"]
    children = {child.shard_id for child in events[-1].page.child_shards}
    assert children == {one["ShardId"] for one in shards_of(one_shard)} - {parent["ShardId"]}
