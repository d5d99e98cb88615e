"""The service's contract, tested against FakeKinesis and the emulator in LocalStack alike:
registered consumers and the limits of the account.

One part is not tested: the emulator cuts the list of consumers into pages without a token.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.support.kinesis.calls import LIMIT_S, refusal, shards_of, split, summary_of

if TYPE_CHECKING:
    from tests.support.kinesis.services import Service

TICK_S = 0.02


def arn_of(service: Service) -> str:
    return str(summary_of(service)["StreamARN"])


def register(service: Service, name: str) -> dict[str, Any]:
    """Register a consumer, and wait until it is ACTIVE."""
    consumer: dict[str, Any] = service.client.register_stream_consumer(
        StreamARN=arn_of(service), ConsumerName=name
    )["Consumer"]
    deadline = time.monotonic() + LIMIT_S
    while described(service, ConsumerARN=consumer["ConsumerARN"])["ConsumerStatus"] != "ACTIVE":
        assert time.monotonic() < deadline, f"consumer {name} does not become ACTIVE"
        time.sleep(TICK_S)  # noqa: TID251  # the service announces nothing: its status can only be asked for
    return consumer


def described(service: Service, **named: str) -> dict[str, Any]:
    description: dict[str, Any] = service.client.describe_stream_consumer(**named)[
        "ConsumerDescription"
    ]
    return description


class TestConsumers:
    def test_a_consumer_is_described_listed_counted_and_deregistered(
        self, one_shard: Service
    ) -> None:
        """By its ARN and by its name. The answer to the registration says CREATING; the emulator
        leaves some DELETING for ever.
        """
        consumer = register(one_shard, "reader")
        assert consumer["ConsumerStatus"] == "CREATING"
        by_arn = described(one_shard, ConsumerARN=consumer["ConsumerARN"])
        assert by_arn == described(one_shard, StreamARN=arn_of(one_shard), ConsumerName="reader")
        assert (by_arn["ConsumerName"], by_arn["StreamARN"]) == ("reader", arn_of(one_shard))
        assert by_arn["ConsumerARN"].startswith(f"{arn_of(one_shard)}/consumer/reader:")
        assert summary_of(one_shard)["ConsumerCount"] == 1
        one_shard.client.deregister_stream_consumer(ConsumerARN=consumer["ConsumerARN"])
        listed = one_shard.client.list_stream_consumers(StreamARN=arn_of(one_shard))["Consumers"]
        assert [consumer["ConsumerStatus"] for consumer in listed] in ([], ["DELETING"])
        with pytest.raises(ClientError) as error:
            described(one_shard, StreamARN=arn_of(one_shard), ConsumerName="nobody")
        assert refusal(error) == "ResourceNotFoundException"

    def test_a_name_in_use_and_the_deletion_of_a_stream_with_consumers_are_refused(
        self, one_shard: Service
    ) -> None:
        """ResourceInUseException, as for streams; without `EnforceConsumerDeletion`."""
        register(one_shard, "reader")
        again = {"StreamARN": arn_of(one_shard), "ConsumerName": "reader"}
        with pytest.raises(ClientError) as error:
            one_shard.client.register_stream_consumer(**again)
        assert refusal(error) == "ResourceInUseException"
        with pytest.raises(ClientError) as error:
            one_shard.client.delete_stream(StreamName=one_shard.name)
        assert refusal(error) == "ResourceInUseException"


def test_the_open_shards_of_the_account_are_counted(one_shard: Service) -> None:
    """A split adds one. The account is shared with other tests, so only the difference is
    asserted.
    """
    before = one_shard.client.describe_limits()
    split(one_shard, shards_of(one_shard)[0])
    after = one_shard.client.describe_limits()
    assert after["OpenShardCount"] == before["OpenShardCount"] + 1
    assert after["ShardLimit"] == before["ShardLimit"] >= after["OpenShardCount"]
