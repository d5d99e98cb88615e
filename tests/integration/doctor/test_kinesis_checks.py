"""The checks of a stream against a served FakeKinesis: each finding in its failing form."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.doctor.examination import checks_of
from kinesis_spout.doctor.findings import Finding, Verdict, not_tried, ok, run
from kinesis_spout.doctor.kinesis import Stream, credentials_finding
from kinesis_spout.service.client import CredentialsInUse, KinesisClient
from kinesis_spout.service.permissions import PERMISSIONS, READING, Use, action_of
from kinesis_spout.testing import FakeKinesisSettings, alter, error
from kinesis_spout.testing.service import requests
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY, fields_of, serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.kinesis.services import ServedFake

OK, WARNING, FAILED, NOT_TRIED = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.NOT_TRIED
HOUR_MS = 3_600_000
WRITES = {"kinesis:PutRecords", "drill on AWS"}
SHARDS = ("shardId-000000000000", "shardId-000000000001")
LIST, DESCRIBE = "kinesis:ListStreamConsumers", "kinesis:DescribeStreamConsumer"
REGISTER, SUBSCRIBE = "kinesis:RegisterStreamConsumer", "kinesis:SubscribeToShard"
FAN_OUT = {LIST, DESCRIBE, REGISTER, SUBSCRIBE, "kinesis:DeregisterStreamConsumer"}


def examined(
    at: ServedFake | AwsConfig,
    name: str = "orders",
    consumer: str | None = None,
    retry_for_s: float = 4,
) -> dict[str, Finding]:
    aws = at if isinstance(at, AwsConfig) else AwsConfig(**at.aws)
    with closing(KinesisClient(aws, StreamRef.of(name), retry_for_s=retry_for_s)) as client:
        stream = Stream(client, consumer)
        return {one.about: one for one in run(checks_of(stream), stream)}


@pytest.fixture
def fake(orders: ServedFake) -> ServedFake:
    orders.model.put("orders", "key", b"data")
    return orders


def test_a_stream_that_can_be_read_is_ok(fake: ServedFake) -> None:
    """Writes are not tried."""
    fake.model.faults.add(error("AccessDeniedException"), operation="PutRecords", times=None)
    found = examined(fake)
    assert fake.model.faults.struck == []
    assert [len(fake.model.records("orders", shard)) for shard in SHARDS] == [1, 0]
    assert {name for name, one in found.items() if one.verdict is not OK} == (WRITES | FAN_OUT)
    assert {found[name].verdict for name in FAN_OUT} == {NOT_TRIED}
    assert found["credentials"].sentence == "from the options"
    assert "orders ACTIVE, provisioned, 2 open shards, keeps records for 24 h" in (
        found["stream"].sentence
    )


# enhanced fan-out


def registered(fake: ServedFake, name: str) -> str:
    """The ARN of a new consumer of the stream."""
    arn = fake.model.stream("orders").arn
    request = requests.RegisterStreamConsumer(stream_arn=arn, consumer_name=name)
    return fake.model.register_stream_consumer(request).consumer.consumer_arn


def deny(fake: ServedFake, action: str) -> None:
    fake.model.faults.add(
        error("AccessDeniedException"), operation=action.removeprefix("kinesis:"), times=None
    )


def test_a_consumer_that_is_not_there_yet_is_not_registered(fake: ServedFake) -> None:
    """To subscribe cannot be tried without it, and that is said."""
    found = examined(fake, consumer="reader")
    assert found[LIST] == ok("allowed; 0 consumers registered", LIST)
    assert found[DESCRIBE] == ok("allowed; consumer reader is not registered yet", DESCRIBE)
    assert {found[name].verdict for name in (REGISTER, SUBSCRIBE)} == {NOT_TRIED}
    assert "consumer reader is not registered" in found[SUBSCRIBE].sentence
    assert fake.model.stream("orders").consumers == {}


def test_a_consumer_that_is_active_loses_no_shard(fake: ServedFake) -> None:
    """None is taken from the process that reads with it."""
    arn = registered(fake, "reader")
    for wanted in ("reader", arn):
        found = examined(fake, consumer=wanted)
        assert found[DESCRIBE] == ok("allowed; consumer reader is ACTIVE", DESCRIBE)
        assert found[REGISTER] == ok("not needed: reader is registered", REGISTER)
        assert found[SUBSCRIBE].verdict is NOT_TRIED


def test_a_consumer_that_is_still_made_is_a_warning_and_an_arn_without_one_a_failure() -> None:
    with serve(settings=FakeKinesisSettings(consumer_ms=HOUR_MS)) as served:
        served.model.create("orders")
        registered(served, "reader")
        made = examined(served, consumer="reader")[DESCRIBE]
        arn = f"{served.model.stream('orders').arn}/consumer/other:1"
        missing = examined(served, consumer=arn)[DESCRIBE]
    assert made.verdict is WARNING
    assert "consumer reader is CREATING; shards are polled until" in made.sentence
    assert missing.verdict is FAILED
    assert "with kinesis-spout consumers list" in missing.sentence


@pytest.mark.parametrize(
    ("denied", "verdict", "said"),
    [
        (DESCRIBE, FAILED, f"allow {DESCRIBE} on the stream's consumers"),
        (LIST, WARNING, "does not need this permission"),
    ],
)
def test_a_reader_has_to_describe_its_consumer_and_need_not_list_consumers(
    fake: ServedFake, denied: str, verdict: Verdict, said: str
) -> None:
    deny(fake, denied)
    found = examined(fake, consumer="reader")[denied]
    assert found.verdict is verdict
    assert said in found.sentence


@pytest.mark.parametrize(
    ("throttled", "later"),
    [("ListShards", "kinesis:GetShardIterator"), ("GetShardIterator", "kinesis:GetRecords")],
)
def test_an_action_that_is_throttled_is_allowed_and_what_needs_it_is_not_tried(
    fake: ServedFake, throttled: str, later: str
) -> None:
    fake.model.faults.add(error("LimitExceededException"), operation=throttled, times=None)
    found = examined(fake, retry_for_s=0)
    assert found[f"kinesis:{throttled}"].verdict is WARNING
    assert found[later] == not_tried(f"the kinesis:{throttled} check did not pass", later)


@pytest.mark.parametrize("operation", sorted(READING))
def test_an_action_that_is_denied_is_a_failure_with_its_name(
    fake: ServedFake, operation: str
) -> None:
    """And stops only what needs it."""
    action = action_of(operation)
    deny(fake, action)
    found = examined(fake)
    assert found[action].verdict is FAILED
    assert f"allow {action} in the credentials' IAM policy" in found[action].sentence
    assert {name for name, one in found.items() if one.verdict is FAILED} == {action}
    assert found["clock"].verdict is OK
    order = [action_of(name) for name in PERMISSIONS[Use.READ].operations][1:]
    later = order[order.index(action) + 1 :] if action in order else []
    assert {found[name].verdict for name in later} <= {NOT_TRIED}


def test_a_stream_that_is_not_there_is_a_failure(fake: ServedFake) -> None:
    found = examined(fake, "oders")
    assert found["stream"].verdict is FAILED
    assert "stream oders" in found["stream"].sentence
    assert (
        "does not exist; check the stream's name, the region and the account"
        in found["stream"].sentence
    )
    assert found["kinesis:DescribeStreamSummary"].verdict is OK
    assert found["kinesis:ListShards"].verdict is NOT_TRIED


@pytest.mark.parametrize(
    ("status", "verdict", "advice"),
    [
        ("CREATING", FAILED, "wait until the stream is ACTIVE"),
        ("DELETING", FAILED, "create the stream again"),
        ("UPDATING", OK, "UPDATING"),
    ],
)
def test_a_stream_that_is_made_or_removed_is_a_failure(
    fake: ServedFake, status: str, verdict: Verdict, advice: str
) -> None:
    fake.model.faults.add(_summary_with(stream_status=status), **_ALWAYS)
    found = examined(fake)["stream"]
    assert found.verdict is verdict
    assert advice in found.sentence


def test_a_key_that_is_denied_is_a_failure(fake: ServedFake) -> None:
    fake.model.faults.add(_summary_with(encryption_type="KMS"), **_ALWAYS)
    fake.model.faults.add(error("KMSAccessDeniedException"), operation="GetRecords", times=None)
    found = examined(fake)
    assert found["kinesis:GetRecords"].verdict is FAILED
    assert "allow kms:Decrypt" in found["kinesis:GetRecords"].sentence
    assert "kms:GenerateDataKey" in found["kinesis:PutRecords"].sentence
    assert found["kms:Decrypt"].verdict is NOT_TRIED


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
def test_credentials_that_the_service_refuses_are_a_failure(fake: ServedFake, code: str) -> None:
    """The clock is looked at all the same: it may be the cause."""
    fake.model.faults.add(error(code), times=None)
    found = examined(fake)
    assert found["identity"].verdict is FAILED
    assert code in found["identity"].sentence
    assert found["endpoint"].verdict is found["clock"].verdict is OK
    assert found["stream"].verdict is NOT_TRIED


def test_no_credentials_are_a_failure_that_says_how_to_give_them(
    fake: ServedFake, no_aws_environment: Callable[[str, str], None]
) -> None:
    aws = AwsConfig(region=REGION, endpoint_url=fake.endpoint_url)
    found = examined(aws)
    assert found["credentials"].verdict is FAILED
    assert "AWS_ACCESS_KEY_ID" in found["credentials"].sentence
    assert found["endpoint"].sentence == "the credentials check did not pass"
    no_aws_environment("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    no_aws_environment("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    assert examined(aws)["credentials"].sentence == "from the environment"


NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("provider", "left_ms", "verdict", "said"),
    [
        ("env", -1, FAILED, "environment; the credentials expired at 2023-11-14T22:13:19.999Z"),
        ("env", 600_000, WARNING, "the credentials expire in 10 min"),
        ("env", None, WARNING, "these credentials are temporary and are not renewed"),
        ("env", 2 * HOUR_MS, OK, "and are not renewed"),
        ("iam-role", 600_000, OK, "from the instance's role; the credentials are renewed before"),
        ("assume-role", None, OK, "from an assumed role"),
    ],
)
def test_credentials_that_expire_are_said_to(
    provider: str, left_ms: int | None, verdict: Verdict, said: str
) -> None:
    expires_ms = None if left_ms is None else NOW_MS + left_ms
    found = credentials_finding(
        CredentialsInUse(provider=provider, expires_ms=expires_ms, is_temporary=True), NOW_MS
    )
    assert found.verdict is verdict
    assert said in found.sentence


class OffClock(SystemClock):
    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.mark.parametrize(
    ("service_ahead_ms", "verdict", "said"),
    [
        (HOUR_MS, FAILED, "60 min behind Kinesis's clock; AWS refuses"),
        (60_000, WARNING, "s behind Kinesis's clock; this difference makes start times and lags"),
    ],
)
def test_a_clock_that_is_off_is_found(service_ahead_ms: int, verdict: Verdict, said: str) -> None:
    clock = OffClock()
    clock.ahead_ms = service_ahead_ms
    with serve(settings=FakeKinesisSettings(), clock=clock) as fake:
        fake.model.create("orders")
        found = examined(fake)["clock"]
    assert found.verdict is verdict
    assert said in found.sentence


def test_an_endpoint_that_nobody_serves_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    found = examined(AwsConfig(**fields_of(f"http://127.0.0.1:{port}")))
    assert found["endpoint"].verdict is FAILED
    assert found["endpoint"].unreachable
    assert found["identity"].sentence == "the endpoint check did not pass"


_ALWAYS: dict[str, Any] = {"operation": "DescribeStreamSummary", "times": None}


def _summary_with(**changes: Any) -> Any:
    def change(answer: Any) -> Any:
        summary = msgspec.structs.replace(answer.stream_description_summary, **changes)
        return msgspec.structs.replace(answer, stream_description_summary=summary)

    return alter(change)
