"""The service's contract, tested against FakeKinesis and LocalStack alike: SubscribeToShard, by the
client of the product; registered consumers, and the limits of the account.

What only the real service and FakeKinesis do is not tested here: five minutes of life,
ResourceInUse within five seconds, the pace of 2 MB a second. The emulator cuts the list of
consumers into pages without a token.
"""

from __future__ import annotations

import time
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.errors import KinesisError, ServiceUnavailableError
from kinesis_spout.service.client import KinesisClient
from state.position import TRIM_HORIZON, Position
from tests.support.kinesis.calls import LIMIT_S, put, refusal, shards_of, split, summary_of
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
def consumer_arn(one_shard: Service) -> str:
    """Of an ACTIVE consumer."""
    return str(register(one_shard, "reader")["ConsumerARN"])


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
    """Those from before the subscription, and those that are put while it lives; with the service's
    time.
    """
    for number in range(3):
        put(one_shard, str(number).encode())
    (shard,) = shards_of(one_shard)
    subscription = client.subscribe(consumer_arn, shard["ShardId"], TRIM_HORIZON)
    first = subscription.next_event()
    assert first is not None
    put(one_shard, b"3")
    events = [first, *events_until(subscription, lambda more: has(4)([first, *more]))]
    assert data_of(events) == [b"0", b"1", b"2", b"3"]
    assert {key for event in events for key in event.page.columns.lists().keys} == {"key"}
    assert first.page.service_time_ms is not None
    assert abs(first.page.service_time_ms - SystemClock().now_ms()) < 5_000


def test_the_next_subscription_goes_on_after_the_continuation(
    one_shard: Service, client: KinesisClient, consumer_arn: str
) -> None:
    (shard,) = shards_of(one_shard)
    put(one_shard, b"0")
    events = events_until(client.subscribe(consumer_arn, shard["ShardId"], TRIM_HORIZON), has(1))
    number = events[-1].page.continuation
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
        while not events or events[-1].page.continuation is not None:
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


# consumers and limits  ------------------------------------------------------------
def arn_of(service: Service) -> str:
    return str(summary_of(service)["StreamARN"])


def register(service: Service, name: str) -> dict[str, Any]:
    """Register a consumer, and wait until it is ACTIVE."""
    consumer: dict[str, Any] = service.client.register_stream_consumer(
        StreamARN=arn_of(service), ConsumerName=name
    )["Consumer"]
    deadline = time.monotonic() + LIMIT_S
    while described(service, ConsumerARN=consumer["ConsumerARN"])["ConsumerStatus"] != "ACTIVE":
        assert time.monotonic() < deadline, f"consumer {name} does not become ACTIVE"
        time.sleep(0.02)  # noqa: TID251  # the service announces nothing: its status can only be asked for
    return consumer


def described(service: Service, **named: str) -> dict[str, Any]:
    description: dict[str, Any] = service.client.describe_stream_consumer(**named)[
        "ConsumerDescription"
    ]
    return description


def test_a_consumer_is_described_listed_counted_and_deregistered(one_shard: Service) -> None:
    """By its ARN and by its name. The answer to the registration says CREATING; the emulator
    leaves some DELETING for ever.
    """
    consumer = register(one_shard, "reader")
    assert consumer["ConsumerStatus"] == "CREATING"
    by_arn = described(one_shard, ConsumerARN=consumer["ConsumerARN"])
    assert by_arn == described(one_shard, StreamARN=arn_of(one_shard), ConsumerName="reader")
    assert (by_arn["ConsumerName"], by_arn["StreamARN"]) == ("reader", arn_of(one_shard))
    assert by_arn["ConsumerARN"].startswith(f"{arn_of(one_shard)}/consumer/reader:")
    assert summary_of(one_shard)["ConsumerCount"] == 1
    one_shard.client.deregister_stream_consumer(ConsumerARN=consumer["ConsumerARN"])
    listed = one_shard.client.list_stream_consumers(StreamARN=arn_of(one_shard))["Consumers"]
    assert [consumer["ConsumerStatus"] for consumer in listed] in ([], ["DELETING"])
    with pytest.raises(ClientError) as error:
        described(one_shard, StreamARN=arn_of(one_shard), ConsumerName="nobody")
    assert refusal(error) == "ResourceNotFoundException"


def test_a_name_in_use_and_the_deletion_of_a_stream_with_consumers_are_refused(
    one_shard: Service,
) -> None:
    """ResourceInUseException, as for streams; without `EnforceConsumerDeletion`."""
    register(one_shard, "reader")
    again = {"StreamARN": arn_of(one_shard), "ConsumerName": "reader"}
    with pytest.raises(ClientError) as error:
        one_shard.client.register_stream_consumer(**again)
    assert refusal(error) == "ResourceInUseException"
    with pytest.raises(ClientError) as error:
        one_shard.client.delete_stream(StreamName=one_shard.name)
    assert refusal(error) == "ResourceInUseException"


def test_the_open_shards_of_the_account_are_counted(one_shard: Service) -> None:
    """A split adds one. The account is shared with other tests, so only the difference is
    asserted.
    """
    before = one_shard.client.describe_limits()
    split(one_shard, shards_of(one_shard)[0])
    after = one_shard.client.describe_limits()
    assert after["OpenShardCount"] == before["OpenShardCount"] + 1
    assert after["ShardLimit"] == before["ShardLimit"] >= after["OpenShardCount"]
