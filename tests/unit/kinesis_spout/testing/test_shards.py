"""The shards of a FakeKinesis: pages, ends, empty runs, limits, sequence numbers."""

from __future__ import annotations

import pytest

from kinesis_spout.testing import ServiceError
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import (
    SHARD,
    STREAM,
    data,
    iterator,
    new_fake,
    page,
)

MIB = 1024 * 1024


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
