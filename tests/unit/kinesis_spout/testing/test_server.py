"""FakeKinesis behind its protocol: JSON, credentials, faults, HTTP; and the events of
SubscribeToShard, as boto3 reads them.
"""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing import (
    FakeKinesisProtocol,
    ManualClock,
    TransportFaultError,
    timeout,
    truncate,
)
from tests.support.kinesis.fake_calls import SHARD, STREAM, new_fake
from tests.support.kinesis.services import ServedFake, kinesis_client, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fake(clock: ManualClock) -> Iterator[ServedFake]:
    with serve(clock=clock) as served:
        served.model.create(STREAM)
        yield served


@pytest.fixture
def client(fake: ServedFake) -> Iterator[Any]:
    with kinesis_client(fake.endpoint_url) as vendor:
        yield vendor


@pytest.fixture
def consumer_arn(fake: ServedFake, client: Any) -> str:
    arn: str = client.register_stream_consumer(
        StreamARN=fake.model.stream(STREAM).arn, ConsumerName="reader"
    )["Consumer"]["ConsumerARN"]
    return arn


def subscribe(client: Any, consumer_arn: str, kind: str = "TRIM_HORIZON") -> Any:
    answer = client.subscribe_to_shard(
        ConsumerARN=consumer_arn, ShardId=SHARD, StartingPosition={"Type": kind}
    )
    return closing(answer["EventStream"])


def test_boto3_reads_a_shard_to_its_end(fake: ServedFake, client: Any, consumer_arn: str) -> None:
    """The records as they were put, then the children, then the end of the event stream."""
    fake.model.put(STREAM, "key \u00e4", bytes(range(256)))
    with subscribe(client, consumer_arn) as pushes:
        events = iter(pushes)
        (record,) = next(events)["SubscribeToShardEvent"]["Records"]
        assert (record["Data"], record["PartitionKey"]) == (bytes(range(256)), "key \u00e4")
        fake.model.put(STREAM, "key", b"later")
        pushed = next(events)["SubscribeToShardEvent"]
        assert [record["Data"] for record in pushed["Records"]] == [b"later"]
        assert pushed["ContinuationSequenceNumber"] == pushed["Records"][-1]["SequenceNumber"]
        fake.model.split(STREAM, SHARD)
        end = next(events)["SubscribeToShardEvent"]
        assert [child["ShardId"][-1] for child in end["ChildShards"]] == ["1", "2"]
        assert list(events) == []
