"""FakeKinesis as the real service is and its emulators are not: times, limits, ends, subscriptions;
and behind its protocol, where answers fail and break off. The test moves the clock; nothing waits.
"""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing import (
    FakeKinesis,
    FakeKinesisProtocol,
    FakeKinesisSettings,
    ManualClock,
    ServiceError,
    TransportFaultError,
    timeout,
    truncate,
)
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_consumers import SHARD, STREAM, register, subscribe

if TYPE_CHECKING:
    from kinesis_spout.testing import Subscription
    from kinesis_spout.testing.service.answers import GetRecordsAnswer, SubscribeToShardEvent
    from tests.support.kinesis.services import ServedFake


HOUR_S = 3_600


def new_fake(*, shards: int = 1, **settings: Any) -> tuple[FakeKinesis, ManualClock]:
    """A fake with one stream, and its clock."""
    clock = ManualClock()
    fake = FakeKinesis(settings=FakeKinesisSettings(**settings), clock=clock)
    fake.create(STREAM, shards=shards)
    return fake, clock


def iterator(
    fake: FakeKinesis, kind: str = "TRIM_HORIZON", *, shard_id: str = SHARD, **members: Any
) -> str:
    request = requests.GetShardIterator(
        stream_name=STREAM, shard_id=shard_id, shard_iterator_type=kind, **members
    )
    return fake.get_shard_iterator(request).shard_iterator


def page(fake: FakeKinesis, start: str | None, *, limit: int | None = None) -> GetRecordsAnswer:
    return fake.get_records(requests.GetRecords(shard_iterator=start, limit=limit))


def data(answer: GetRecordsAnswer) -> list[bytes]:
    return [record.data for record in answer.records]


def event_of(subscription: Subscription) -> SubscribeToShardEvent:
    """The event that is there now; the call fails if there is none."""
    event = subscription.next_event()
    assert event is not None
    return event


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


TARGET = "Kinesis_20131202."


def call(
    protocol: FakeKinesisProtocol, operation: str, **members: Any
) -> tuple[int, dict[str, Any]]:
    answer = protocol.answer(TARGET + operation, json.dumps(members).encode(), authorization=None)
    return answer.status, json.loads(answer.body or b"{}")


@pytest.mark.parametrize("processed", [True, False])
def test_a_timeout_takes_its_time_and_gives_no_answer(processed: bool) -> None:  # noqa: FBT001  # pytest's way
    """The plan says whether the put is processed."""
    fake, clock = new_fake()
    protocol = FakeKinesisProtocol(fake)
    fake.faults.add(timeout(30, processed=processed), operation="PutRecord")
    with pytest.raises(TransportFaultError):
        call(protocol, "PutRecord", StreamName=STREAM, PartitionKey="key", Data="eA==")
    assert clock.monotonic_s() == 30
    assert len(fake.records(STREAM, SHARD)) == int(processed)


def test_an_answer_that_breaks_off_has_a_part_of_its_body(fake_kinesis: ServedFake) -> None:
    """The headers promise all of it. The next request gets a whole answer."""
    fake_kinesis.model.create("orders")
    fake_kinesis.model.faults.add(truncate())
    with closing(
        HTTPConnection(fake_kinesis.endpoint_url.removeprefix("http://"), timeout=5)
    ) as connection:
        asked = {"X-Amz-Target": TARGET + "ListStreams"}
        connection.request("POST", "/", body=b"{}", headers=asked)
        with pytest.raises(IncompleteRead) as broken:
            connection.getresponse().read()
        assert broken.value.partial
        connection.close()
        connection.request("POST", "/", body=b"{}", headers=asked)
        whole = connection.getresponse().read()
    assert whole == b'{"StreamNames":["orders"],"HasMoreStreams":false}'
    assert whole.startswith(broken.value.partial)
    assert len(broken.value.partial) < len(whole)
