"""Consumers and subscriptions of a FakeKinesis: phases, events, ends. The test moves the clock."""

from __future__ import annotations

import pytest

from kinesis_spout.testing import FakeKinesis, ServiceError
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import SHARD, STREAM, new_fake
from tests.support.kinesis.fake_consumers import deregister, event_of, pushed, register, subscribe


def test_a_quiet_shard_pushes_an_empty_event_every_five_seconds() -> None:
    """The first comes at once; each says that the reader is at the tip."""
    fake, clock = new_fake()
    subscription = subscribe(fake, register(fake), "LATEST")
    assert event_of(subscription).millis_behind_latest == 0
    clock.advance(4.999)
    assert subscription.next_event() is None
    clock.advance(0.001)
    assert event_of(subscription).records == []


@pytest.mark.parametrize("kind", ["TRIM_HORIZON", "LATEST"])
def test_reading_goes_on_after_the_continuation_number(kind: str) -> None:
    """Also after an event without records. Nothing is missed or delivered twice."""
    fake, clock = new_fake()
    arn = register(fake)
    if kind == "LATEST":
        fake.put(STREAM, "key", b"before")
    number = event_of(subscribe(fake, arn, kind)).continuation_sequence_number
    for text in (b"a", b"b"):
        clock.advance(5)
        fake.put(STREAM, "key", text)
        event = event_of(subscribe(fake, arn, "AFTER_SEQUENCE_NUMBER", sequence_number=number))
        assert [record.data for record in event.records] == [text]
        number = event.continuation_sequence_number


def test_a_subscription_lives_for_five_minutes() -> None:
    """It then ends without an error, even if there are records left."""
    fake, clock = new_fake()
    subscription = subscribe(fake, register(fake))
    clock.advance(299.999)
    fake.put(STREAM, "key", b"x")
    assert pushed(subscription) == [b"x"]
    clock.advance(0.001)
    fake.put(STREAM, "key", b"y")
    assert subscription.next_event() is None
    assert subscription.ended


def test_a_second_subscription_is_refused_within_five_seconds_and_takes_over_after_them() -> None:
    """There is one per consumer and shard. The first one ends with one ResourceInUseException."""
    fake, clock = new_fake()
    arn = register(fake)
    first = subscribe(fake, arn)
    clock.advance(4.999)
    with pytest.raises(ServiceError, match="ResourceInUseException"):
        subscribe(fake, arn)
    assert not first.ended
    clock.advance(0.001)
    second = subscribe(fake, arn)
    with pytest.raises(ServiceError, match="ResourceInUseException"):
        first.next_event()
    assert first.ended
    assert first.next_event() is None
    assert pushed(second) == []


@pytest.mark.parametrize("gone", ["consumer", "stream", "shard"])
def test_a_subscription_ends_with_its_consumer_stream_or_shard(gone: str) -> None:
    """Consumer, stream or shard gone: ResourceNotFoundException."""
    fake, clock = new_fake()
    arn = register(fake)
    subscription = subscribe(fake, arn)
    if gone == "consumer":
        deregister(fake, arn)
    elif gone == "stream":
        fake.delete_stream(
            requests.DeleteStream(stream_name=STREAM, enforce_consumer_deletion=True)
        )
        fake.create(STREAM)
    else:
        fake.split(STREAM, SHARD)
        clock.advance(24 * 3_600 + 1)
    with pytest.raises(ServiceError, match="ResourceNotFoundException"):
        subscription.next_event()
    assert subscription.ended


def status_of(fake: FakeKinesis, arn: str) -> str:
    return fake.describe_stream_consumer(
        requests.StreamConsumer(consumer_arn=arn)
    ).consumer_description.consumer_status


def test_a_consumer_goes_through_its_phases() -> None:
    """CREATING and DELETING last as long as set; then it is ACTIVE, and gone. Only an ACTIVE one
    subscribes.
    """
    fake, clock = new_fake(consumer_ms=1_000)
    arn = register(fake)
    assert status_of(fake, arn) == "CREATING"
    with pytest.raises(ServiceError, match="ResourceInUseException"):
        subscribe(fake, arn)
    clock.advance(1)
    assert status_of(fake, arn) == "ACTIVE"
    deregister(fake, arn)
    assert status_of(fake, arn) == "DELETING"
    clock.advance(1)
    with pytest.raises(ServiceError, match="ResourceNotFoundException"):
        status_of(fake, arn)
