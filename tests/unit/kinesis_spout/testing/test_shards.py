"""The shards of a FakeKinesis: pages, ends, empty runs, limits, sequence numbers."""

from __future__ import annotations

import pytest

from kinesis_spout.testing import ServiceError
from kinesis_spout.testing.service import requests
from kinesis_spout.testing.stream.sequence_number import SequenceParts
from tests.support.kinesis.fake_calls import (
    SHARD,
    STREAM,
    data,
    iterator,
    listed,
    new_fake,
    page,
)

MIB = 1024 * 1024


def test_a_page_holds_at_most_ten_mebibytes() -> None:
    """Of twelve records of nearly 1 MiB, the first page holds ten. The next one starts with the
    eleventh.
    """
    fake, _ = new_fake()
    for at in range(12):
        fake.put(STREAM, "key", bytes([at]) * (MIB - 3))
    first = page(fake, iterator(fake))
    assert [one[0] for one in data(first)] == list(range(10))
    assert [one[0] for one in data(page(fake, first.next_shard_iterator))] == [10, 11]


@pytest.mark.parametrize("end_with_last_records", [True, False])
def test_a_closed_shard_ends_with_its_last_records_or_after_them(
    end_with_last_records: bool,  # noqa: FBT001  # pytest's way
) -> None:
    """The setting chooses which. The page that reports the end names the children."""
    fake, _ = new_fake(end_with_last_records=end_with_last_records)
    fake.put(STREAM, "key", b"x")
    fake.split(STREAM, SHARD)
    last = page(fake, iterator(fake))
    assert (last.next_shard_iterator is None) == end_with_last_records
    end = last if end_with_last_records else page(fake, last.next_shard_iterator)
    assert data(end) == ([b"x"] if end_with_last_records else [])
    assert [child.shard_id for child in end.child_shards or []] == [
        "shardId-000000000001",
        "shardId-000000000002",
    ]


def test_every_reader_gets_a_run_of_empty_pages() -> None:
    """Every reader gets the records before the run, the run, and the records after it.

    MillisBehindLatest is 0 at the tip only.
    """
    fake, clock = new_fake()
    fake.put(STREAM, "key", b"before")
    fake.insert_empty_pages(STREAM, SHARD, 3)
    fake.put(STREAM, "key", b"after")
    clock.advance(1)
    for _ in range(2):
        pages = [page(fake, iterator(fake))]
        while not pages[-1].records or pages[-1].records[-1].data != b"after":
            pages.append(page(fake, pages[-1].next_shard_iterator))
        assert [data(one) for one in pages] == [[b"before"], [], [], [], [b"after"]]
        assert [one.millis_behind_latest > 0 for one in pages] == [True, True, True, True, False]


def test_a_run_of_empty_pages_is_reached_over_records_that_are_gone() -> None:
    """A reader from the start gets through the run, although the records before it are past
    retention.
    """
    fake, clock = new_fake()
    fake.put(STREAM, "key", b"gone")
    fake.insert_empty_pages(STREAM, SHARD, 1)
    clock.advance(25 * 3_600)
    fake.put(STREAM, "key", b"after")
    first = page(fake, iterator(fake))
    second = page(fake, first.next_shard_iterator)
    third = page(fake, second.next_shard_iterator)
    assert [data(one) for one in (first, second, third)] == [[], [], [b"after"]]


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


def test_records_may_have_arrived_before_their_stream_was_created() -> None:
    """Within the retention they are read, in the order of their sequence numbers: from the start,
    from a time, and beside younger ones.
    """
    fake, clock = new_fake()
    now_ms = clock.now_ms()
    hours_ago = (0.001, 23, 2, 0, 0.5)
    for hours in hours_ago:
        fake.put(STREAM, "key", b"%g" % hours, arrival_ms=now_ms - round(hours * 3_600_000))
    assert data(page(fake, iterator(fake))) == [b"%g" % hours for hours in hours_ago]
    two_hours_ago_s = now_ms / 1000 - 7_200
    assert data(page(fake, iterator(fake, "AT_TIMESTAMP", timestamp_s=two_hours_ago_s))) == [
        b"%g" % hours for hours in hours_ago
    ]
    fake.create("past")
    fake.put("past", "key", b"25", arrival_ms=now_ms - 25 * 3_600_000)
    fake.put("past", "key", b"23", arrival_ms=now_ms - 23 * 3_600_000)
    assert [one.data for one in fake.records("past", SHARD)] == [b"23"]


def test_a_time_in_the_future_is_refused() -> None:
    """The service refuses AT_TIMESTAMP later than now."""
    fake, clock = new_fake()
    with pytest.raises(ServiceError, match="InvalidArgumentException"):
        iterator(fake, "AT_TIMESTAMP", timestamp_s=clock.now_ms() / 1000 + 0.001)


@pytest.mark.parametrize("number", ["12345", "another shard's"])
def test_a_sequence_number_of_another_shard_is_refused(number: str) -> None:
    """A number that the shard cannot have issued is refused, whatever its size."""
    fake, _ = new_fake(shards=2)
    if number == "another shard's":
        number = listed(fake)[1].sequence_number_range.starting_sequence_number
    with pytest.raises(ServiceError, match="InvalidArgumentException"):
        iterator(fake, "AFTER_SEQUENCE_NUMBER", starting_sequence_number=number)


def test_all_numbers_of_a_child_lie_above_its_parents() -> None:
    """Also when put and split happen within one second, and when the digit of the shard's index
    wraps (15 to 16).
    """
    fake, _ = new_fake(shards=16)
    request = requests.PutRecord(
        stream_name=STREAM, data=b"x", partition_key="key", explicit_hash_key=str(2**128 - 1)
    )
    put = fake.put_record(request)
    fake.split(STREAM, put.shard_id)
    closed, *children = listed(fake)[15:]
    ending = int(closed.sequence_number_range.ending_sequence_number or 0)
    assert [shard.shard_id[-2:] for shard in (closed, *children)] == ["15", "16", "17"]
    assert int(put.sequence_number) < ending
    assert ending < min(
        int(child.sequence_number_range.starting_sequence_number) for child in children
    )
    assert ending < int(fake.put_record(request).sequence_number)


def test_a_number_is_read_back_into_its_parts() -> None:
    """Round trip of the layout. A number of another layout has no parts."""
    parts = SequenceParts(
        shard_created_s=1_767_225_600, shard_index=17, counter=12, put_s=1_767_225_700
    )
    assert SequenceParts.of(parts.number()) == parts
    assert len(str(parts.number())) == 56
    assert SequenceParts.of(parts.number() + 1) is None


def test_five_reads_a_second_are_allowed() -> None:
    """The sixth GetRecords within a second is throttled; a second later it is not."""
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


def test_a_page_of_ten_mebibytes_blocks_the_shard_for_five_seconds() -> None:
    """Nearly 10 MiB count for nearly 5 s, at 2 MiB a second."""
    fake, clock = new_fake(limits=True)
    for _ in range(10):
        fake.put(STREAM, "key", b"x" * (MIB - 3))
    start = iterator(fake)
    assert len(page(fake, start).records) == 10
    clock.advance(4.9)
    with pytest.raises(ServiceError, match="ProvisionedThroughputExceededException"):
        page(fake, start, limit=1)
    clock.advance(0.1)
    page(fake, start, limit=1)


def test_a_thousand_records_a_second_are_accepted_and_the_others_refused_one_by_one() -> None:
    """PutRecords as a whole succeeds, with some entries refused."""
    fake, clock = new_fake(limits=True)
    entries = [requests.PutRecordsEntry(data=b"x", partition_key="key")] * 400
    counts = [
        fake.put_records(
            requests.PutRecords(stream_name=STREAM, records=entries)
        ).failed_record_count
        for _ in range(3)
    ]
    assert counts == [0, 0, 200]
    clock.advance(1)
    assert (
        fake.put_records(
            requests.PutRecords(stream_name=STREAM, records=entries)
        ).failed_record_count
        == 0
    )


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


def test_the_shard_limit_of_the_account_holds() -> None:
    """Creating, splitting and scaling above it is LimitExceededException."""
    fake, _ = new_fake(shards=2, shard_limit=2)
    with pytest.raises(ServiceError, match="LimitExceededException"):
        fake.create("another")
    with pytest.raises(ServiceError, match="LimitExceededException"):
        fake.split(STREAM, SHARD)
