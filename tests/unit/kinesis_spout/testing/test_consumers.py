"""Registered consumers of a FakeKinesis: their phases, their listing, their maximum number."""

from __future__ import annotations

import pytest

from kinesis_spout.testing import FakeKinesis, ServiceError
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import STREAM, new_fake
from tests.support.kinesis.fake_consumers import deregister, register, subscribe


def status_of(fake: FakeKinesis, arn: str) -> str:
    return fake.describe_stream_consumer(
        requests.StreamConsumer(consumer_arn=arn)
    ).consumer_description.consumer_status


def listing(
    fake: FakeKinesis, *, max_results: int | None = None, next_token: str | None = None
) -> tuple[list[str], str | None]:
    request = requests.ListStreamConsumers(
        stream_arn=fake.stream(STREAM).arn, max_results=max_results, next_token=next_token
    )
    answer = fake.list_stream_consumers(request)
    return [consumer.consumer_name for consumer in answer.consumers], answer.next_token


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


def test_a_deregistered_consumer_is_not_taken_for_its_successor() -> None:
    """Its ARN contains the second of its registration."""
    fake, clock = new_fake()
    first = register(fake)
    deregister(fake, first)
    clock.advance(1)
    register(fake)
    with pytest.raises(ServiceError, match="ResourceNotFoundException"):
        status_of(fake, first)


def test_consumers_are_listed_page_by_page() -> None:
    """In order of their names. A token continues after the last one and expires after 300 s."""
    fake, clock = new_fake()
    for name in ("c", "a", "b"):
        register(fake, name)
    names, token = listing(fake, max_results=2)
    assert names == ["a", "b"]
    assert listing(fake, next_token=token) == (["c"], None)
    clock.advance(300.001)
    with pytest.raises(ServiceError, match="ExpiredNextTokenException"):
        listing(fake, next_token=token)


def test_a_stream_has_twenty_consumers() -> None:
    """One more is LimitExceededException."""
    fake, _ = new_fake()
    for number in range(20):
        register(fake, f"reader-{number}")
    with pytest.raises(ServiceError, match="LimitExceededException"):
        register(fake, "reader-20")


def test_five_consumers_of_a_stream_are_created_at_a_time() -> None:
    """One more is LimitExceededException, until the others are ACTIVE."""
    fake, clock = new_fake(consumer_ms=1_000)
    for number in range(5):
        register(fake, f"reader-{number}")
    with pytest.raises(ServiceError, match="LimitExceededException"):
        register(fake, "reader-5")
    clock.advance(1)
    register(fake, "reader-5")


@pytest.mark.parametrize(
    "request_of_none",
    [
        requests.StreamConsumer(),
        requests.StreamConsumer(consumer_name="reader"),
        requests.StreamConsumer(
            consumer_arn="arn:aws:kinesis:us-east-1:000000000000:stream/orders"
        ),
    ],
)
def test_a_consumer_must_be_named_in_full(request_of_none: requests.StreamConsumer) -> None:
    """By its ARN, or by the stream's ARN and its name."""
    fake, _ = new_fake()
    with pytest.raises(ServiceError, match="InvalidArgumentException"):
        fake.describe_stream_consumer(request_of_none)
