"""Limits of a FakeKinesis on the calls of its control plane."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesis_spout.testing import FakeKinesisProtocol, ManualClock
from tests.support.kinesis.fake_calls import STREAM, new_fake

TARGET = "Kinesis_20131202."
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
