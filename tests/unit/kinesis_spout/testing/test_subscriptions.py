"""Subscriptions of a FakeKinesis: their events and their ends. The test moves the clock."""

from __future__ import annotations

import pytest

from kinesis_spout.testing import ServiceError
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import SHARD, STREAM, code_of, new_fake
from tests.support.kinesis.fake_consumers import deregister, event_of, pushed, register, subscribe

MIB = 1024 * 1024


def test_records_are_pushed_once_and_as_they_come() -> None:
    """Records that exist come at once, later ones in a later event, and nothing in between."""
    fake, _ = new_fake()
    fake.put(STREAM, "key", b"a")
    fake.put(STREAM, "key", b"b")
    subscription = subscribe(fake, register(fake))
    assert pushed(subscription) == [b"a", b"b"]
    assert subscription.next_event() is None
    fake.put(STREAM, "key", b"c")
    assert pushed(subscription) == [b"c"]


def test_a_quiet_shard_pushes_an_empty_event_every_five_seconds() -> None:
    """The first comes at once; each says that the reader is at the tip."""
    fake, clock = new_fake()
    subscription = subscribe(fake, register(fake), "LATEST")
    assert event_of(subscription).millis_behind_latest == 0
    clock.advance(4.999)
    assert subscription.next_event() is None
    clock.advance(0.001)
    assert event_of(subscription).records == []


def test_a_run_of_empty_pages_is_pushed_as_events_without_records() -> None:
    """They are behind the tip, and come before the records after the run."""
    fake, clock = new_fake()
    arn = register(fake)
    fake.put(STREAM, "key", b"before")
    fake.insert_empty_pages(STREAM, SHARD, 3)
    fake.put(STREAM, "key", b"after")
    clock.advance(1)
    subscription = subscribe(fake, arn)
    events = [event_of(subscription)]
    for _ in range(4):
        clock.advance(0.2)
        events.append(event_of(subscription))
    found = [[record.data for record in event.records] for event in events]
    assert found == [[b"before"], [], [], [], [b"after"]]
    assert [event.millis_behind_latest > 0 for event in events] == [True, True, True, True, False]


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


def test_a_subscription_can_start_at_a_time_and_at_a_record() -> None:
    """The same starting positions as for iterators."""
    fake, clock = new_fake()
    fake.put(STREAM, "key", b"a")
    clock.advance(10)
    second = fake.put(STREAM, "key", b"b").partition(":")[2]
    arn, other = register(fake, "one"), register(fake, "other")
    assert pushed(subscribe(fake, arn, "AT_TIMESTAMP", timestamp_s=clock.now_ms() / 1000 - 5)) == [
        b"b"
    ]
    assert pushed(subscribe(fake, other, "AT_SEQUENCE_NUMBER", sequence_number=second)) == [b"b"]


@pytest.mark.parametrize("end_with_last_records", [True, False])
def test_the_end_of_a_shard_names_its_children(end_with_last_records: bool) -> None:  # noqa: FBT001  # pytest's way
    """The last event has children and no continuation. The subscription ends with it."""
    fake, _ = new_fake(end_with_last_records=end_with_last_records)
    fake.put(STREAM, "key", b"x")
    fake.split(STREAM, SHARD)
    subscription = subscribe(fake, register(fake))
    events = [event_of(subscription)]
    if not end_with_last_records:
        assert events[0].child_shards is None
        events.append(event_of(subscription))
    assert [record.data for event in events for record in event.records] == [b"x"]
    assert [child.shard_id[-1] for child in events[-1].child_shards or []] == ["1", "2"]
    assert events[-1].continuation_sequence_number is None
    assert subscription.ended
    assert subscription.next_event() is None


def test_an_open_subscription_reports_a_split() -> None:
    """A reader at the tip gets the end without waiting for the next empty event."""
    fake, _ = new_fake()
    subscription = subscribe(fake, register(fake), "LATEST")
    event_of(subscription)
    fake.split(STREAM, SHARD)
    assert len(event_of(subscription).child_shards or []) == 2


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
    with pytest.raises(ServiceError) as error:
        subscribe(fake, arn)
    assert code_of(error) == "ResourceInUseException"
    assert not first.ended
    clock.advance(0.001)
    second = subscribe(fake, arn)
    with pytest.raises(ServiceError) as error:
        first.next_event()
    assert code_of(error) == "ResourceInUseException"
    assert first.ended
    assert first.next_event() is None
    assert pushed(second) == []


def test_other_consumers_and_shards_have_subscriptions_of_their_own() -> None:
    """Each gets all records of its shard."""
    fake, _ = new_fake(shards=2)
    one, other = register(fake, "one"), register(fake, "other")
    subscriptions = [
        subscribe(fake, one),
        subscribe(fake, other),
        subscribe(fake, one, shard_id="shardId-000000000001"),
    ]
    shard_id = fake.put(STREAM, "a", b"x").partition(":")[0]
    assert shard_id == SHARD
    assert [pushed(subscription) for subscription in subscriptions] == [[b"x"], [b"x"], []]


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
    with pytest.raises(ServiceError) as error:
        subscription.next_event()
    assert code_of(error) == "ResourceNotFoundException"
    assert subscription.ended


def test_only_an_active_consumer_subscribes() -> None:
    """While it is CREATING it is ResourceInUseException."""
    fake, clock = new_fake(consumer_ms=1_000)
    arn = register(fake)
    with pytest.raises(ServiceError) as error:
        subscribe(fake, arn)
    assert code_of(error) == "ResourceInUseException"
    clock.advance(1)
    subscribe(fake, arn)


def test_a_refused_subscription_leaves_the_one_before_alone() -> None:
    """A request with an invalid position replaces nothing."""
    fake, clock = new_fake()
    arn = register(fake)
    first = subscribe(fake, arn)
    clock.advance(5)
    with pytest.raises(ServiceError) as error:
        subscribe(fake, arn, "AT_SEQUENCE_NUMBER", sequence_number="12345")
    assert code_of(error) == "InvalidArgumentException"
    assert pushed(first) == []


def test_two_mebibytes_a_second_are_pushed() -> None:
    """With limits, an event of 1 MiB delays the next one by half a second."""
    fake, clock = new_fake(limits=True)
    for _ in range(3):
        fake.put(STREAM, "key", b"x" * (MIB - 3))
    subscription = subscribe(fake, register(fake))
    event = event_of(subscription)
    assert (len(event.records), event.continuation_sequence_number) == (
        1,
        event.records[-1].sequence_number,
    )
    clock.advance(0.499)
    assert subscription.next_event() is None
    clock.advance(0.001)
    assert len(pushed(subscription)) == 1
