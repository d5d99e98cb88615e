"""Effects of time on a FakeKinesis: retention, expiry, phases. The test moves the clock; nothing
waits.
"""

from __future__ import annotations

import pytest

from kinesis_spout.testing import FakeKinesis, ServiceError
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import (
    SHARD,
    STREAM,
    data,
    iterator,
    listed,
    new_fake,
    page,
    status,
)

HOUR_S = 3_600


def test_records_are_gone_after_the_retention_period() -> None:
    """A record cannot be read 24 hours after its arrival; a later one still can."""
    fake, clock = new_fake()
    fake.put(STREAM, "key", b"old")
    clock.advance(HOUR_S)
    fake.put(STREAM, "key", b"newer")
    clock.advance(23 * HOUR_S + 1)
    assert data(page(fake, iterator(fake))) == [b"newer"]


def test_a_closed_shard_is_forgotten_after_the_retention_period() -> None:
    """Once all of its records are past retention, a closed shard is not listed and not found."""
    fake, clock = new_fake()
    fake.split(STREAM, SHARD)
    clock.advance(24 * HOUR_S)
    assert len(listed(fake)) == 3
    clock.advance(1)
    assert [shard.shard_id for shard in listed(fake)] == [
        "shardId-000000000001",
        "shardId-000000000002",
    ]
    with pytest.raises(ServiceError, match="ResourceNotFoundException"):
        iterator(fake)


def test_a_shorter_retention_takes_effect_at_once() -> None:
    """Decreasing the retention period makes older records unreadable."""
    fake, clock = new_fake()
    fake.increase_stream_retention_period(
        requests.ChangeRetention(stream_name=STREAM, retention_period_hours=48)
    )
    fake.put(STREAM, "key", b"old")
    clock.advance(30 * HOUR_S)
    assert data(page(fake, iterator(fake))) == [b"old"]
    fake.decrease_stream_retention_period(
        requests.ChangeRetention(stream_name=STREAM, retention_period_hours=24)
    )
    assert data(page(fake, iterator(fake))) == []


def test_a_stream_recreated_within_one_millisecond_is_another_stream() -> None:
    """Its creation time is later, and iterators of the earlier one do not read it."""
    fake, _ = new_fake()
    start, created_ms = iterator(fake), fake.stream(STREAM).created_ms
    fake.delete_stream(requests.DeleteStream(stream_name=STREAM))
    fake.create(STREAM)
    assert fake.stream(STREAM).created_ms > created_ms
    with pytest.raises(ServiceError, match="ResourceNotFoundException"):
        page(fake, start)


@pytest.mark.parametrize("hours", [23, 8_761])
def test_a_retention_out_of_bounds_is_refused(hours: int) -> None:
    """24 hours at least, 8,760 at most."""
    fake, _ = new_fake()
    change = (
        fake.decrease_stream_retention_period
        if hours < 24
        else fake.increase_stream_retention_period
    )
    with pytest.raises(ServiceError, match="InvalidArgumentException"):
        change(requests.ChangeRetention(stream_name=STREAM, retention_period_hours=hours))


def test_an_iterator_lives_for_five_minutes() -> None:
    """At 300 s an iterator is valid; after that it has expired."""
    fake, clock = new_fake()
    start = iterator(fake)
    clock.advance(300)
    following = page(fake, start).next_shard_iterator
    clock.advance(0.001)
    with pytest.raises(ServiceError, match="ExpiredIteratorException"):
        page(fake, start)
    assert data(page(fake, following)) == []


def test_a_stream_being_created_takes_no_records() -> None:
    """CREATING lasts as long as set. Until then records are refused and no shards are listed."""
    fake, clock = new_fake(create_ms=2_000)
    assert status(fake) == "CREATING"
    with pytest.raises(ServiceError, match="ResourceNotFoundException"):
        fake.put_record(requests.PutRecord(stream_name=STREAM, data=b"x", partition_key="key"))
    with pytest.raises(ServiceError, match="ResourceInUseException"):
        listed(fake)
    clock.advance(2)
    assert status(fake) == "ACTIVE"
    assert len(listed(fake)) == 1


def test_the_parent_takes_records_while_the_stream_is_updating() -> None:
    """A split takes effect when UPDATING is over. Until then puts go to the parent, and other
    changes are refused.
    """
    fake, clock = new_fake(reshard_ms=10_000)
    fake.split(STREAM, SHARD)
    clock.advance(9.999)
    assert status(fake) == "UPDATING"
    assert fake.put(STREAM, "key", b"x").startswith(SHARD)
    with pytest.raises(ServiceError, match="ResourceInUseException"):
        fake.split(STREAM, SHARD)
    clock.advance(0.001)
    assert status(fake) == "ACTIVE"
    assert not fake.put(STREAM, "key", b"x").startswith(SHARD)


def test_new_shards_can_be_listed_late() -> None:
    """The parent's end names its children before ListShards does."""
    fake, clock = new_fake(listing_delay_ms=5_000)
    clock.advance(5)
    fake.split(STREAM, SHARD)
    assert [child.shard_id[-1] for child in page(fake, iterator(fake)).child_shards or []] == [
        "1",
        "2",
    ]
    assert [shard.shard_id for shard in listed(fake)] == [SHARD]
    clock.advance(5)
    assert len(listed(fake)) == 3


def test_scaling_shows_its_shards_one_step_after_the_other() -> None:
    """UpdateShardCount from 2 to 3 splits and merges. Shards that live for a moment only are
    listed, and stay listed.
    """
    fake, clock = new_fake(shards=2, reshard_ms=3_000)
    fake.update_shard_count(
        requests.UpdateShardCount(
            stream_name=STREAM, target_shard_count=3, scaling_type="UNIFORM_SCALING"
        )
    )
    seen = []
    for _ in range(3):
        clock.advance(1)
        seen.append((status(fake), len(fake.stream(STREAM).open_shards()), len(listed(fake))))
    assert seen == [("UPDATING", 3, 4), ("UPDATING", 4, 6), ("ACTIVE", 3, 7)]


def test_a_deleted_stream_is_gone_after_its_phase() -> None:
    """DELETING lasts as long as set. The name is free after it, not before."""
    fake, clock = new_fake(delete_ms=1_000)
    fake.delete_stream(requests.DeleteStream(stream_name=STREAM))
    assert status(fake) == "DELETING"
    with pytest.raises(ServiceError, match="ResourceInUseException"):
        fake.create(STREAM)
    clock.advance(1)
    fake.create(STREAM)
    assert status(fake) == "ACTIVE"


@pytest.mark.parametrize(
    ("filter_type", "expected"),
    [
        ("AT_LATEST", "3456"),
        ("AT_TRIM_HORIZON", "0"),
        ("AT_TIMESTAMP", "12"),
        ("FROM_TIMESTAMP", "123456"),
    ],
)
def test_filters_select_by_when_a_shard_was_open(filter_type: str, expected: str) -> None:
    """Over two generations an hour apart; half an hour ago the second one was open."""
    fake, now_s = two_generations()
    timestamp_s = now_s - HOUR_S // 2 if "TIMESTAMP" in filter_type else None
    wanted = requests.ShardFilter(type=filter_type, timestamp_s=timestamp_s)
    assert [shard.shard_id[-1] for shard in listed(fake, shard_filter=wanted)] == [*expected]


# a clock that is set back -------------------------------------------------------------------------
def test_what_was_read_before_the_clock_was_set_back_is_still_a_position() -> None:
    """Sequence numbers of records that are "in the future" by now, and of the shards' starts."""
    fake, clock = new_fake()
    clock.advance(6 * HOUR_S)
    _, _, first = fake.put(STREAM, "key", b"1").partition(":")
    fake.put(STREAM, "key", b"2")
    clock.set_back(6 * HOUR_S)
    fake.put(STREAM, "key", b"3")
    after = iterator(fake, "AFTER_SEQUENCE_NUMBER", starting_sequence_number=first)
    assert data(page(fake, after)) == [b"2", b"3"]


def test_a_stream_stays_there_when_the_clock_is_set_to_before_its_creation() -> None:
    """It is not CREATING again, and a new record is not older than the stream, and so expired."""
    fake, clock = new_fake()
    fake.put(STREAM, "key", b"1")
    clock.set_back(HOUR_S)
    fake.put(STREAM, "key", b"2")
    assert status(fake) == "ACTIVE"
    assert data(page(fake, iterator(fake))) == [b"1", b"2"]


def test_a_shard_closed_before_its_stream_was_created_can_be_read() -> None:
    """By a clock that was set back. Its end still comes, and so do its children."""
    fake, clock = new_fake()
    fake.put(STREAM, "key", b"1")
    clock.set_back(HOUR_S)
    fake.split(STREAM, SHARD)
    assert [shard.shard_id[-1] for shard in listed(fake)] == ["0", "1", "2"]
    assert data(page(fake, iterator(fake))) == [b"1"]


def test_a_stream_created_by_a_clock_that_was_set_back_takes_its_own_numbers() -> None:
    """Its creation is later than that of every earlier stream, so it is later than the clock."""
    fake, clock = new_fake()
    clock.set_back(HOUR_S)
    fake.delete_stream(requests.DeleteStream(stream_name=STREAM))
    fake.create(STREAM)
    _, _, number = fake.put(STREAM, "key", b"1").partition(":")
    at = iterator(fake, "AT_SEQUENCE_NUMBER", starting_sequence_number=number)
    assert data(page(fake, at)) == [b"1"]


def test_shards_stay_listed_when_the_clock_is_set_back() -> None:
    """One that disappeared from two listings would count as gone, with its records."""
    fake, clock = new_fake(listing_delay_ms=5_000)
    clock.advance(HOUR_S)
    fake.split(STREAM, SHARD)
    clock.advance(5)
    assert len(listed(fake)) == 3
    clock.set_back(HOUR_S)
    assert len(listed(fake)) == 3


def test_what_is_under_way_when_the_clock_is_set_back_takes_no_longer() -> None:
    """A reshard, and how late its shards are listed."""
    fake, clock = new_fake(reshard_ms=10_000, listing_delay_ms=5_000)
    clock.advance(5)
    fake.split(STREAM, SHARD)
    clock.advance(4)
    assert status(fake) == "UPDATING"
    clock.set_back(HOUR_S)
    assert status(fake) == "UPDATING"
    clock.advance(6)
    assert status(fake) == "ACTIVE"
    assert len(listed(fake)) == 1
    clock.advance(4)
    assert len(listed(fake)) == 1
    clock.advance(1)
    assert len(listed(fake)) == 3


def test_limits_of_a_second_last_no_hour_when_the_clock_is_set_back() -> None:
    """Of reads, of iterators, of bytes and of writes."""
    fake, clock = new_fake(limits=True)
    for number in range(1_000):
        fake.put(STREAM, "key", b"%d" % number)
    for _ in range(5):
        page(fake, iterator(fake))
    clock.set_back(HOUR_S)
    fake.put(STREAM, "key", b"more")
    assert len(data(page(fake, iterator(fake)))) == 1_001


def two_generations() -> tuple[FakeKinesis, float]:
    """Shard 0, split after an hour, and its children 1 and 2, split after another hour.

    Also returns the time now, in seconds.
    """
    fake, clock = new_fake()
    clock.advance(HOUR_S)
    fake.split(STREAM, SHARD)
    clock.advance(HOUR_S)
    fake.split(STREAM, "shardId-000000000001")
    fake.split(STREAM, "shardId-000000000002")
    return fake, clock.now_ms() / 1_000
