"""Consumers and subscriptions of a FakeKinesis: phases, events, ends. The test moves the clock."""

from __future__ import annotations

import pytest

from kinesis_spout.testing import ServiceError
from tests.support.kinesis.fake_calls import STREAM, new_fake
from tests.support.kinesis.fake_consumers import event_of, pushed, register, subscribe


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
