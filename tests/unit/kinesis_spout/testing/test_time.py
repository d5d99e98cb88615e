"""Effects of time on a FakeKinesis: retention, expiry, phases. The test moves the clock; nothing
waits.
"""

from __future__ import annotations

import pytest

from kinesis_spout.testing import ServiceError
from tests.support.kinesis.fake_calls import (
    SHARD,
    STREAM,
    data,
    iterator,
    listed,
    new_fake,
    page,
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
