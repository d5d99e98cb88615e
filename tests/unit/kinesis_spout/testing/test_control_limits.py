"""Limits of a FakeKinesis on control plane operations: call rates, concurrent changes, scalings a
day.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesis_spout.testing import FakeKinesisProtocol, ManualClock, ServiceError
from kinesis_spout.testing.service import requests
from tests.support.kinesis.fake_calls import SHARD, STREAM, new_fake

TARGET = "Kinesis_20131202."
DAY_S = 86_400
ARN = f"arn:aws:kinesis:us-east-1:000000000000:stream/{STREAM}"


def limited(**settings: Any) -> tuple[FakeKinesisProtocol, ManualClock]:
    fake, clock = new_fake(control_limits=True, **settings)
    return FakeKinesisProtocol(fake), clock


def code(protocol: FakeKinesisProtocol, operation: str, **members: Any) -> str | None:
    """The error code of the answer, None if it is not an error."""
    answer = protocol.answer(TARGET + operation, json.dumps(members).encode(), authorization=None)
    return json.loads(answer.body)["__type"] if answer.status != 200 else None


@pytest.mark.parametrize(
    ("operation", "members", "calls"),
    [
        ("ListStreams", {}, 5),
        ("DescribeLimits", {}, 1),
        ("DescribeStream", {"StreamName": STREAM}, 10),
        ("DescribeStreamSummary", {"StreamName": STREAM}, 20),
        ("ListShards", {"StreamName": STREAM}, 1_000),
        ("ListStreamConsumers", {"StreamARN": ARN}, 5),
    ],
)
def test_calls_up_to_the_quota_are_answered(
    operation: str, members: dict[str, str], calls: int
) -> None:
    """The next one is LimitExceededException; a second later it is answered."""
    protocol, clock = limited()
    assert {code(protocol, operation, **members) for _ in range(calls)} == {None}
    assert code(protocol, operation, **members) == "LimitExceededException"
    clock.advance(0.999)
    assert code(protocol, operation, **members) == "LimitExceededException"
    clock.advance(0.001)
    assert code(protocol, operation, **members) is None


def test_refused_changes_count_as_calls() -> None:
    """Five attempts to split a shard that is not there leave no call for a good one."""
    protocol, clock = limited()
    start = {"StreamName": STREAM, "NewStartingHashKey": str(2**127)}
    for _ in range(5):
        assert (
            code(protocol, "SplitShard", ShardToSplit="shardId-000000000099", **start)
            == "ResourceNotFoundException"
        )
    assert code(protocol, "SplitShard", ShardToSplit=SHARD, **start) == "LimitExceededException"
    clock.advance(1)
    assert code(protocol, "SplitShard", ShardToSplit=SHARD, **start) is None


def test_quotas_of_a_stream_are_its_own_however_it_is_named() -> None:
    """Listing by name and by ARN counts together. Another stream's quota is not used up; the
    account's is shared.
    """
    protocol, _ = limited()
    assert code(protocol, "CreateStream", StreamName="other", ShardCount=1) is None
    for _ in range(500):
        code(protocol, "ListShards", StreamName=STREAM)
        code(protocol, "ListShards", StreamARN=ARN)
    assert code(protocol, "ListShards", StreamName=STREAM) == "LimitExceededException"
    assert code(protocol, "ListShards", StreamName="other") is None
    assert [
        code(protocol, "DescribeStream", StreamName=name) for name in (STREAM, "other") * 5
    ] == [None] * 10
    assert code(protocol, "DescribeStream", StreamName="other") == "LimitExceededException"


def test_five_streams_may_change_at_a_time() -> None:
    """The sixth change is LimitExceededException, until one of the others is done."""
    fake, clock = new_fake(control_limits=True, create_ms=1_000)
    for number in range(4):
        fake.create(f"stream-{number}")
    with pytest.raises(ServiceError, match="LimitExceededException"):
        fake.create("one-too-many")
    clock.advance(1)
    fake.create("one-too-many")


def test_a_stream_is_scaled_ten_times_a_day() -> None:
    """The eleventh UpdateShardCount within 24 hours is LimitExceededException.

    Refused calls do not count.
    """
    fake, clock = new_fake(control_limits=True)

    def scale(target: int) -> None:
        fake.update_shard_count(
            requests.UpdateShardCount(
                stream_name=STREAM, target_shard_count=target, scaling_type="UNIFORM_SCALING"
            )
        )

    for target in (2, 1) * 5:
        with pytest.raises(ServiceError):
            scale(100)
        scale(target)
        clock.advance(60)
    with pytest.raises(ServiceError, match="LimitExceededException"):
        scale(2)
    clock.advance(DAY_S - 600)
    scale(2)
