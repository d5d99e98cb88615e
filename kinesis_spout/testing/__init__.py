"""FakeKinesis: a Kinesis for tests, in the process of the test, with faults on demand.

`FakeKinesis` is the model, `FakeKinesisServer` serves it over HTTP to boto3, `ManualClock` is its
simulated time, and `FaultPlan` (`FakeKinesis.faults`) makes chosen requests fail.
"""

from __future__ import annotations

from kinesis_spout.testing.errors import FakeKinesisError, ServiceError, TransportFaultError
from kinesis_spout.testing.fake_kinesis import FakeKinesis
from kinesis_spout.testing.faults.altered_answers import (
    duplicate_listing,
    early_end,
    empty_at_tip,
    end_with_null_iterator,
    end_with_wrong_parents,
    end_without_children,
    late_listing,
)
from kinesis_spout.testing.faults.plan import (
    Fault,
    FaultKind,
    FaultPlan,
    alter,
    drop,
    error,
    expired_iterator,
    expired_token,
    gone,
    internal_failure,
    limit_exceeded,
    replace,
    service_unavailable,
    slow,
    throttle,
    timeout,
    truncate,
)
from kinesis_spout.testing.http.protocol import FakeKinesisProtocol
from kinesis_spout.testing.http.server import FakeKinesisServer
from kinesis_spout.testing.manual_clock import ManualClock
from kinesis_spout.testing.service.subscribe_to_shard import Subscription
from kinesis_spout.testing.settings import FakeKinesisSettings

__all__ = [
    "FakeKinesis",
    "FakeKinesisError",
    "FakeKinesisProtocol",
    "FakeKinesisServer",
    "FakeKinesisSettings",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "ManualClock",
    "ServiceError",
    "Subscription",
    "TransportFaultError",
    "alter",
    "drop",
    "duplicate_listing",
    "early_end",
    "empty_at_tip",
    "end_with_null_iterator",
    "end_with_wrong_parents",
    "end_without_children",
    "error",
    "expired_iterator",
    "expired_token",
    "gone",
    "internal_failure",
    "late_listing",
    "limit_exceeded",
    "replace",
    "service_unavailable",
    "slow",
    "throttle",
    "timeout",
    "truncate",
]
