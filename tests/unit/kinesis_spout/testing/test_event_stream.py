"""SubscribeToShard over HTTP, as boto3 reads it."""

from __future__ import annotations

import struct
import threading
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EventStreamError

from kinesis_spout.testing import ManualClock, drop, internal_failure
from kinesis_spout.testing.http.event_stream import initial_response
from tests.support.kinesis.fake_calls import SHARD, STREAM
from tests.support.kinesis.services import ServedFake, kinesis_client, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 20.0


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


def test_the_connection_is_kept_after_a_subscription(
    fake: ServedFake, client: Any, consumer_arn: str
) -> None:
    """The last chunk ends the response, and the client sends its next request."""
    fake.model.split(STREAM, SHARD)
    with subscribe(client, consumer_arn) as pushes:
        assert len(list(pushes)) == 1
    assert client.list_streams()["StreamNames"] == [STREAM]


def test_boto3_sees_that_another_subscription_took_over(
    client: Any, consumer_arn: str, clock: ManualClock
) -> None:
    """An exception message among the events, with its code."""
    with subscribe(client, consumer_arn) as pushes:
        events = iter(pushes)
        next(events)
        clock.advance(5)
        with (
            subscribe(client, consumer_arn),
            pytest.raises(EventStreamError, match="ResourceInUseException"),
        ):
            list(events)


def test_a_refused_subscription_is_an_error_answer(client: Any, consumer_arn: str) -> None:
    """Not an event: the call itself fails."""
    with subscribe(client, consumer_arn), pytest.raises(ClientError) as refused:
        subscribe(client, consumer_arn)
    assert refused.value.response["Error"]["Code"] == "ResourceInUseException"


def test_faults_apply_to_subscriptions_by_their_shard(
    fake: ServedFake, client: Any, consumer_arn: str
) -> None:
    """An error answer, and a broken connection."""
    fake.model.faults.add(internal_failure(), operation="SubscribeToShard", shard_id=SHARD)
    fake.model.faults.add(drop(), operation="SubscribeToShard", shard_id=SHARD)
    with pytest.raises(ClientError) as failed:
        subscribe(client, consumer_arn)
    assert failed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    with pytest.raises(ConnectionClosedError):
        subscribe(client, consumer_arn)


def test_leaving_the_server_ends_open_subscriptions(clock: ManualClock) -> None:
    """A reader that waits for records does not delay the server's end."""
    outcome: list[BaseException | None] = []
    begun = threading.Event()

    def read(url: str, arn: str) -> None:
        with kinesis_client(url) as vendor, subscribe(vendor, arn) as pushes:
            try:
                for _ in pushes:
                    begun.set()
                outcome.append(None)
            except Exception as exc:  # noqa: BLE001  # whatever the vendor makes of it; the test says which
                outcome.append(exc)

    with serve(clock=clock) as fake:
        fake.model.create(STREAM)
        with kinesis_client(fake.endpoint_url) as vendor:
            arn = vendor.register_stream_consumer(
                StreamARN=fake.model.stream(STREAM).arn, ConsumerName="reader"
            )
        reader = threading.Thread(
            target=read, args=(fake.endpoint_url, arn["Consumer"]["ConsumerARN"])
        )
        reader.start()
        assert begun.wait(LIMIT_S)
    reader.join(LIMIT_S)
    assert not reader.is_alive()
    assert len(outcome) == 1


def test_a_message_is_framed_as_specified() -> None:
    """The first message, written out by hand: lengths, their checksum, headers, payload, checksum
    of everything.
    """
    message = initial_response()
    length, head_length, prelude_check = struct.unpack(">III", message[:12])
    assert length == len(message)
    assert prelude_check == zlib.crc32(message[:8])
    assert struct.unpack(">I", message[-4:]) == (zlib.crc32(message[:-4]),)
    assert message[12:].startswith(
        b"\x0d:message-type\x07\x00\x05event\x0b:event-type\x07\x00\x10initial-response"
    )
    assert message[12 + head_length : -4] == b"{}"
