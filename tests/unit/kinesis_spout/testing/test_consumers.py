"""Registered consumers of a FakeKinesis: their phases, their listing, their maximum number."""

from __future__ import annotations

import pytest

from kinesis_spout.testing import FakeKinesis, ServiceError
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import STREAM, code_of, new_fake
from tests.support.kinesis.fake_consumers import deregister, register


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
    """CREATING and DELETING last as long as set; then it is ACTIVE, and gone."""
    fake, clock = new_fake(consumer_ms=1_000)
    arn = register(fake)
    assert status_of(fake, arn) == "CREATING"
    clock.advance(1)
    assert status_of(fake, arn) == "ACTIVE"
    deregister(fake, arn)
    assert status_of(fake, arn) == "DELETING"
    clock.advance(1)
    with pytest.raises(ServiceError) as error:
        status_of(fake, arn)
    assert code_of(error) == "ResourceNotFoundException"


def test_a_name_is_used_once_at_a_time() -> None:
    """A second consumer of that name is ResourceInUseException, until the first is gone."""
    fake, clock = new_fake()
    first = register(fake)
    with pytest.raises(ServiceError) as error:
        register(fake)
    assert code_of(error) == "ResourceInUseException"
    deregister(fake, first)
    clock.advance(1)
    assert register(fake) != first


def test_a_deregistered_consumer_is_not_taken_for_its_successor() -> None:
    """Its ARN contains the second of its registration."""
    fake, clock = new_fake()
    first = register(fake)
    deregister(fake, first)
    clock.advance(1)
    register(fake)
    with pytest.raises(ServiceError) as error:
        status_of(fake, first)
    assert code_of(error) == "ResourceNotFoundException"


def test_consumers_are_listed_page_by_page() -> None:
    """In order of their names. A token continues after the last one and expires after 300 s."""
    fake, clock = new_fake()
    for name in ("c", "a", "b"):
        register(fake, name)
    names, token = listing(fake, max_results=2)
    assert names == ["a", "b"]
    assert listing(fake, next_token=token) == (["c"], None)
    clock.advance(300.001)
    with pytest.raises(ServiceError) as error:
        listing(fake, next_token=token)
    assert code_of(error) == "ExpiredNextTokenException"


def test_a_stream_has_twenty_consumers() -> None:
    """One more is LimitExceededException."""
    fake, _ = new_fake()
    for number in range(20):
        register(fake, f"reader-{number}")
    with pytest.raises(ServiceError) as error:
        register(fake, "reader-20")
    assert code_of(error) == "LimitExceededException"


def test_five_consumers_of_a_stream_are_created_at_a_time() -> None:
    """One more is LimitExceededException, until the others are ACTIVE."""
    fake, clock = new_fake(consumer_ms=1_000)
    for number in range(5):
        register(fake, f"reader-{number}")
    with pytest.raises(ServiceError) as error:
        register(fake, "reader-5")
    assert code_of(error) == "LimitExceededException"
    clock.advance(1)
    register(fake, "reader-5")


def test_a_stream_with_consumers_is_not_deleted_by_accident() -> None:
    """`EnforceConsumerDeletion` deletes them too."""
    fake, _ = new_fake()
    arn = register(fake)
    with pytest.raises(ServiceError) as error:
        fake.delete_stream(requests.DeleteStream(stream_name=STREAM))
    assert code_of(error) == "ResourceInUseException"
    fake.delete_stream(requests.DeleteStream(stream_name=STREAM, enforce_consumer_deletion=True))
    with pytest.raises(ServiceError) as error:
        status_of(fake, arn)
    assert code_of(error) == "ResourceNotFoundException"


def test_a_stream_being_created_has_no_consumers() -> None:
    """It is ResourceInUseException until the stream is ACTIVE."""
    fake, clock = new_fake(create_ms=1_000)
    with pytest.raises(ServiceError) as error:
        register(fake)
    assert code_of(error) == "ResourceInUseException"
    clock.advance(1)
    register(fake)


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
    with pytest.raises(ServiceError) as error:
        fake.describe_stream_consumer(request_of_none)
    assert code_of(error) == "InvalidArgumentException"
