"""FakeKinesis as the real service is and its emulators are not: times, limits, ends, subscriptions.
The test moves the clock; nothing waits.
"""

from __future__ import annotations

import pytest

from kinesis_spout.testing import ManualClock, ServiceError
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import (
    STREAM,
    data,
    iterator,
    new_fake,
    page,
)
from tests.support.kinesis.fake_consumers import event_of, register, subscribe

HOUR_S = 3_600


def test_an_iterator_lives_for_five_minutes() -> None:
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


MIB = 1024 * 1024


def test_arrival_times_need_not_be_in_order() -> None:
    """AT_TIMESTAMP starts with the first record, in order of sequence number, that arrived then or
    later.
    """
    fake, clock = new_fake()
    now_ms = clock.now_ms()
    for late_ms, text in ((0, b"a"), (500, b"b"), (100, b"c"), (600, b"d")):
        fake.put(STREAM, "key", text, arrival_ms=now_ms + late_ms)
    clock.advance(10)
    assert data(page(fake, iterator(fake, "AT_TIMESTAMP", timestamp_s=now_ms / 1000 + 0.2))) == [
        b"b",
        b"c",
        b"d",
    ]


def test_five_reads_a_second_are_allowed() -> None:
    fake, clock = new_fake(limits=True)
    start = iterator(fake)
    for _ in range(5):
        page(fake, start)
    with pytest.raises(ServiceError, match="ProvisionedThroughputExceededException"):
        page(fake, start)
    clock.advance(0.999)
    with pytest.raises(ServiceError):
        page(fake, start)
    clock.advance(0.001)
    page(fake, start)


def test_a_mebibyte_a_second_is_accepted() -> None:
    """The entry above the limit is refused with the code of throttling, and keeps its place among
    the answers.
    """
    fake, _ = new_fake(limits=True)
    sizes = (MIB // 2, MIB // 2, 100)
    entries = [requests.PutRecordsEntry(data=b"x" * size, partition_key="key") for size in sizes]
    answers = fake.put_records(requests.PutRecords(stream_name=STREAM, records=entries)).records
    assert [answer.error_code for answer in answers] == [
        None,
        "ProvisionedThroughputExceededException",
        None,
    ]


def test_a_quiet_shard_pushes_an_empty_event_every_five_seconds() -> None:
    """The first comes at once; each says that the reader is at the tip."""
    fake, clock = new_fake()
    subscription = subscribe(fake, register(fake), "LATEST")
    assert event_of(subscription).millis_behind_latest == 0
    clock.advance(4.999)
    assert subscription.next_event() is None
    clock.advance(0.001)
    assert event_of(subscription).records == []


def test_a_wait_that_rounding_leaves_is_over_in_the_end() -> None:
    """Due times are sums, and the wait for one is a difference: it may be less than what the time
    can be told to. Zero and negative waits are none.
    """
    clock = ManualClock()
    clock.sleep(1.0255400912476837)
    before_s = clock.monotonic_s()
    clock.sleep(2.2e-16)
    assert clock.monotonic_s() > before_s
    before_s = clock.monotonic_s()
    for none_s in (0.0, -1.0):
        clock.sleep(none_s)
    assert clock.monotonic_s() == before_s
