"""The client against services that behave, and against a stub that does not."""

from __future__ import annotations

import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import (
    AccessDeniedError,
    ConfigError,
    CredentialsError,
    ExpiredIteratorError,
    KinesisError,
    MalformedResponseError,
    RequestRefusedError,
    ServiceUnavailableError,
    ShardNotFoundError,
    StreamNotFoundError,
    ThrottledError,
)
from kinesis_spout.kinesis_client import KinesisClient
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from tests.support.kinesis import create_stream, kinesis_client
from tests.support.stub_kinesis import DATE_MS, Answer, StubKinesis, error, ok, page, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECRET = "s3cr3t-key-of-the-test"


class WaitlessClock:
    """A clock whose sleeps pass at once, and are remembered."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sleeps: list[float] = []

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += max(0.0, seconds)


def seeded(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311  # the same in every run


def config_of(url: str, **rest: Any) -> AwsConfig:
    return AwsConfig(
        **({"region": "eu-central-1", "endpoint_url": url, "access_key_id": "AK", "secret_access_key": SECRET} | rest)
    )


@pytest.fixture
def clock() -> WaitlessClock:
    return WaitlessClock()


@pytest.fixture
def client(stub_kinesis: StubKinesis, clock: WaitlessClock, no_aws_environment: object) -> Iterator[KinesisClient]:
    with closing(KinesisClient(config_of(stub_kinesis.url), StreamRef("flights"), clock=clock, random=seeded(1))) as client:
        yield client


def shard(number: int, **rest: Any) -> dict[str, Any]:
    return {
        "ShardId": f"shardId-{number:012}",
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "340282366920938463463374607431768211455"},
        "SequenceNumberRange": {"StartingSequenceNumber": str(number)},
    } | rest


# ---- a service that behaves


@pytest.fixture(params=["moto", "fake", pytest.param("emulator", marks=pytest.mark.emulator)])
def service(request: pytest.FixtureRequest) -> str:
    """Every service that the client is to read from."""
    if request.param == "fake":
        fake_url: str = request.getfixturevalue("fake_kinesis").endpoint_url
        return fake_url
    url: str = request.getfixturevalue(f"{request.param}_endpoint")
    return url


@pytest.fixture
def reader(service: str, request: pytest.FixtureRequest) -> Iterator[KinesisClient]:
    """A client of a fresh stream with two shards, and the records 0 to 9 in it."""
    name = f"client-{seeded(request.node.nodeid).randrange(10**9)}"
    with kinesis_client(service) as vendor:
        create_stream(vendor, name, shards=2)
        for number in range(10):
            vendor.put_record(StreamName=name, PartitionKey="ünï-☃", Data=b"%d" % number)
    with closing(KinesisClient(config_of(service, region="us-east-1"), StreamRef(name))) as client:
        yield client


def read_all(client: KinesisClient, position: Position = TRIM_HORIZON) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for listed in client.list_shards():
        iterator: str | None = client.shard_iterator(listed.shard_id, position)
        for _ in range(3):
            if iterator is not None:
                fetched = client.get_records(iterator, 1000)
                rows += fetched.page.records.to_pylist()
                iterator = fetched.page.next_iterator
    return rows


def test_what_was_put_is_read_in_order(reader: KinesisClient) -> None:
    """Data, keys and order, from the horizon, with two shards listed."""
    rows = read_all(reader)
    assert [row["data"] for row in rows] == [b"%d" % number for number in range(10)]
    assert {row["partitionKey"] for row in rows} == {"ünï-☃"}
    assert len(reader.list_shards()) == 2
    assert not any(listed.is_closed for listed in reader.list_shards())


def test_positions_at_and_after_a_record_are_exact(reader: KinesisClient) -> None:
    """AT includes the record, AFTER does not."""
    (listed,) = [
        listed
        for listed in reader.list_shards()
        if reader.get_records(reader.shard_iterator(listed.shard_id, TRIM_HORIZON), 100).page.count
    ]
    third = reader.get_records(reader.shard_iterator(listed.shard_id, TRIM_HORIZON), 3).page.last
    assert third is not None
    at = reader.get_records(reader.shard_iterator(listed.shard_id, Position.at(third)), 100).page
    after = reader.get_records(reader.shard_iterator(listed.shard_id, Position.after(third)), 100).page
    assert (at.count, at.first) == (8, third)
    assert after.count == 7


def test_the_stream_is_described_with_the_services_time(reader: KinesisClient) -> None:
    """The creation time identifies the stream; the service's clock is the one that positions are made from."""
    summary = reader.describe()
    assert (summary.name, summary.status) == (reader.stream.name, "ACTIVE")
    assert summary.arn.endswith(f":stream/{reader.stream.name}")
    assert summary.retention_ms == 24 * 3_600_000
    assert summary.service_time_ms is not None
    assert abs(summary.service_time_ms - summary.created_ms) < 3_600_000


def test_the_stream_can_be_named_by_its_arn(reader: KinesisClient) -> None:
    """Name and ARN read the same stream."""
    arn = reader.describe().arn
    with closing(KinesisClient(reader.aws, StreamRef.parse(arn=arn))) as by_arn:
        assert len(read_all(by_arn)) == 10


def test_a_missing_stream_and_a_missing_shard_are_told_apart(reader: KinesisClient) -> None:
    """The service has one code for both; a shard past retention must not look like a deleted stream."""
    with closing(KinesisClient(reader.aws, StreamRef("no-such-stream"))) as other:
        with pytest.raises(StreamNotFoundError, match="stream no-such-stream"):
            other.describe()
        with pytest.raises(StreamNotFoundError):
            other.list_shards()
        with pytest.raises(StreamNotFoundError):
            other.shard_iterator("shardId-000000000000", TRIM_HORIZON)
    with pytest.raises(ShardNotFoundError, match="shard shardId-000000000099"):
        reader.shard_iterator("shardId-000000000099", TRIM_HORIZON)


def test_many_threads_read_with_one_client_that_came_in_a_pickle(reader: KinesisClient) -> None:
    """Executors get it pickled and read many shards at once; the first calls race for the making of the connection."""
    with closing(pickle.loads(pickle.dumps(reader))) as copy, ThreadPoolExecutor(32) as pool:  # noqa: S301  # our own bytes
        counts = list(pool.map(lambda _: len(copy.list_shards()), range(64)))
    assert counts == [2] * 64


# ---- getting records


def test_records_do_not_pass_through_the_vendors_parser(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """The hook hands over the raw body; the service's time is the Date header's."""
    stub_kinesis.answers("GetRecords", page(b"a", b"b"))
    fetched = client.get_records("it", 17)
    assert (fetched.page.count, fetched.page.last, fetched.service_time_ms) == (2, SequenceNumber(2), DATE_MS)
    assert stub_kinesis.asked("GetRecords")[0].arguments == {"ShardIterator": "it", "Limit": 17}


TRANSIENT = {
    "throttled": error("ProvisionedThroughputExceededException"),
    "limit": error("LimitExceededException"),
    "kms": error("KMSThrottlingException"),
    "internal": error("InternalFailureException", status=500),
    "unavailable": Answer(503, b"<html>busy</html>"),
    "no-body": Answer(500, b""),
    "dropped": Answer(drop=True),
    "truncated": Answer(body=b'{"Records":[]}', cut_bytes=5),
    "malformed": Answer(body=b'{"Records":['),
    "no-json": Answer(body=b"<html>hello</html>"),
}


@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT.keys())
def test_a_transient_fault_is_tried_again(
    client: KinesisClient, stub_kinesis: StubKinesis, fault: Answer, clock: WaitlessClock
) -> None:
    """Two failures, then the page: the caller sees the page, after growing waits with jitter."""
    stub_kinesis.answers("GetRecords", fault, fault, page(b"a"))
    assert client.get_records("it", 1).page.count == 1
    assert len(clock.sleeps) == 2
    assert len(stub_kinesis.asked("GetRecords")) == 3


@pytest.mark.parametrize(
    ("fault", "kind", "calls"),
    [
        (TRANSIENT["throttled"], ThrottledError, 8),
        (TRANSIENT["internal"], ServiceUnavailableError, 8),
        (TRANSIENT["dropped"], ServiceUnavailableError, 8),
        (TRANSIENT["malformed"], MalformedResponseError, 3),
    ],
)
def test_trying_again_is_bounded(
    client: KinesisClient, stub_kinesis: StubKinesis, fault: Answer, kind: type[KinesisError], calls: int
) -> None:
    """A fault that stays becomes a clear error after so many calls, not multiplied by retries of the vendor's."""
    stub_kinesis.answers("GetRecords", fault)
    with pytest.raises(kind):
        client.get_records("it", 1)
    assert len(stub_kinesis.asked("GetRecords")) == calls


def test_trying_again_is_bounded_by_time_too(stub_kinesis: StubKinesis, clock: WaitlessClock, no_aws_environment: object) -> None:
    """No wait begins that would end after the deadline."""
    stub_kinesis.answers("GetRecords", error("InternalFailure", status=500))
    aws = config_of(stub_kinesis.url)
    bounded = KinesisClient(aws, StreamRef("s"), clock=clock, max_attempts=1000, retry_for_s=30)
    with closing(bounded) as client, pytest.raises(ServiceUnavailableError):
        client.get_records("it", 1)
    assert 10 < clock.seconds <= 30


def test_a_caller_that_paces_itself_is_told_of_throttling_at_once(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """Shard getters wait by their pacers, without holding a thread."""
    stub_kinesis.answers("GetRecords", error("ProvisionedThroughputExceededException"), page(b"a"))
    with pytest.raises(ThrottledError):
        client.get_records("it", 1, retry_throttled=False)
    assert len(stub_kinesis.asked("GetRecords")) == 1


FATAL = {
    "AccessDeniedException": (AccessDeniedError, "kinesis:GetRecords"),
    "KMSDisabledException": (AccessDeniedError, "KMS key"),
    "KMSAccessDeniedException": (AccessDeniedError, "kms:Decrypt"),
    "UnrecognizedClientException": (CredentialsError, "access key"),
    "InvalidSignatureException": (CredentialsError, "clock"),
    "ExpiredIteratorException": (ExpiredIteratorError, "new iterator"),
    "InvalidArgumentException": (ExpiredIteratorError, "position"),
}


@pytest.mark.parametrize("code", FATAL)
def test_a_final_fault_is_raised_at_once_and_says_what_to_do(client: KinesisClient, stub_kinesis: StubKinesis, code: str) -> None:
    """One call, no waiting, the stream and the endpoint named."""
    kind, says = FATAL[code]
    stub_kinesis.answers("GetRecords", error(code))
    with pytest.raises(kind, match=says) as caught:
        client.get_records("it", 1)
    assert len(stub_kinesis.asked("GetRecords")) == 1
    assert "stream flights" in str(caught.value)
    assert stub_kinesis.url in str(caught.value)


def test_an_unknown_code_is_named_and_not_tried_again(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """A code of the future must be found in the error."""
    stub_kinesis.answers("ListShards", error("SomethingNobodyHasHeardOf"))
    with pytest.raises(RequestRefusedError, match="SomethingNobodyHasHeardOf"):
        client.list_shards()
    assert len(stub_kinesis.asked("ListShards")) == 1


def test_a_vanished_shard_is_no_missing_stream(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """ResourceNotFound is the code of both; the stream is asked for to tell them apart."""
    stub_kinesis.answers("GetRecords", error("ResourceNotFoundException"))
    stub_kinesis.answers("DescribeStreamSummary", ok(StreamDescriptionSummary=summary()))
    with pytest.raises(ShardNotFoundError):
        client.get_records("it", 1)
    stub_kinesis.answers("DescribeStreamSummary", error("ResourceNotFoundException"))
    with pytest.raises(StreamNotFoundError):
        client.get_records("it", 1)


def summary() -> dict[str, Any]:
    return {
        "StreamARN": "arn:aws:kinesis:eu-central-1:123456789012:stream/flights",
        "StreamName": "flights",
        "StreamCreationTimestamp": 1_700_000_000.123,
        "StreamStatus": "ACTIVE",
        "RetentionPeriodHours": 48,
        "OpenShardCount": 1,
        "EnhancedMonitoring": [],
    }


# ---- listing


def test_a_listing_goes_on_past_its_first_page(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """ListShards gives 1,000 shards at a time; the following pages are asked for by token alone."""
    shards = [shard(number) for number in range(2500)]
    stub_kinesis.answers(
        "ListShards",
        ok(Shards=shards[:1000], NextToken="a"),
        ok(Shards=shards[1000:2000], NextToken="b"),
        ok(Shards=shards[2000:]),
    )
    assert [listed.shard_id for listed in client.list_shards()] == [entry["ShardId"] for entry in shards]
    assert [request.arguments for request in stub_kinesis.asked("ListShards")] == [
        {"StreamName": "flights"},
        {"NextToken": "a"},
        {"NextToken": "b"},
    ]


def test_an_expired_page_token_starts_the_listing_again(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """A listing with a hole in it would look like shards that are gone."""
    stub_kinesis.answers(
        "ListShards",
        ok(Shards=[shard(0)], NextToken="a"),
        error("ExpiredNextTokenException"),
        ok(Shards=[shard(0), shard(1)], NextToken="b"),
        ok(Shards=[shard(2)]),
    )
    assert [listed.shard_id[-1] for listed in client.list_shards()] == ["0", "1", "2"]


def test_page_tokens_that_always_expire_end_in_an_error(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """Not an endless loop."""
    again = [ok(Shards=[shard(0)], NextToken="a"), error("ExpiredNextTokenException")]
    stub_kinesis.answers("ListShards", *(again * 20))
    with pytest.raises(ServiceUnavailableError, match="page token"):
        client.list_shards()


def test_parents_ranges_and_ends_are_told(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """A merged shard has two parents; an emulator's odd ending number is taken as it is."""
    merged = shard(4, ParentShardId="p", AdjacentParentShardId="q")
    closed = shard(2, SequenceNumberRange={"StartingSequenceNumber": "5", "EndingSequenceNumber": "9223372036854775807"})
    stub_kinesis.answers("ListShards", ok(Shards=[merged, closed]))
    first, second = client.list_shards()
    assert (first.parents, first.is_closed, first.hash_key_range) == (("p", "q"), False, (0, 2**128 - 1))
    assert (second.parents, second.is_closed) == ((), True)
    assert (second.starting_sequence, second.ending_sequence) == (SequenceNumber(5), SequenceNumber(2**63 - 1))


def test_a_stream_that_is_being_created_is_waited_for(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """ResourceInUse passes."""
    stub_kinesis.answers("ListShards", error("ResourceInUseException"), ok(Shards=[shard(0)]))
    assert len(client.list_shards()) == 1


def test_a_start_time_keeps_its_milliseconds(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """A start that is cut to the second would bring records from before it."""
    stub_kinesis.answers("GetShardIterator", ok(ShardIterator="it"))
    client.shard_iterator("shardId-000000000000", Position.at_timestamp(1_700_000_000_123))
    assert stub_kinesis.asked("GetShardIterator")[0].arguments["Timestamp"] == 1_700_000_000.123


# ---- credentials and region


def test_no_credentials_is_an_error_that_names_the_ways_to_give_them(
    stub_kinesis: StubKinesis, no_aws_environment: object
) -> None:
    """Before any call."""
    aws = AwsConfig(region="eu-central-1", endpoint_url=stub_kinesis.url)
    with closing(KinesisClient(aws, StreamRef("flights"))) as client, pytest.raises(CredentialsError, match="AWS_ACCESS_KEY_ID"):
        client.describe()
    assert stub_kinesis.requests == []


def test_credentials_come_from_the_environment_as_everywhere(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None]
) -> None:
    """The chain of botocore is used whole."""
    no_aws_environment("AWS_ACCESS_KEY_ID", "FROMENV")
    no_aws_environment("AWS_SECRET_ACCESS_KEY", "x")
    stub_kinesis.answers("DescribeStreamSummary", ok(StreamDescriptionSummary=summary()))
    with closing(KinesisClient(AwsConfig(region="eu-central-1", endpoint_url=stub_kinesis.url), StreamRef("flights"))) as client:
        assert client.describe().created_ms == 1_700_000_000_123
    assert "Credential=FROMENV/" in stub_kinesis.requests[0].headers["Authorization"]


def test_an_unknown_profile_is_an_error_that_names_it(stub_kinesis: StubKinesis, no_aws_environment: object) -> None:
    """A typo in the profile."""
    aws = AwsConfig(region="eu-central-1", endpoint_url=stub_kinesis.url, profile="wrk")
    with closing(KinesisClient(aws, StreamRef("flights"))) as client, pytest.raises(CredentialsError, match="profile wrk"):
        client.describe()


def test_a_region_that_is_not_known_is_an_error(stub_kinesis: StubKinesis, no_aws_environment: object) -> None:
    """Nowhere given, nowhere found."""
    aws = AwsConfig(endpoint_url=stub_kinesis.url, access_key_id="a", secret_access_key="b")
    with (
        closing(KinesisClient(aws, StreamRef("flights"))) as client,
        pytest.raises(ConfigError, match="region of stream flights"),
    ):
        client.describe()


def test_the_region_comes_from_the_arn(stub_kinesis: StubKinesis, no_aws_environment: object) -> None:
    """An ARN names its region; a second one that differs is refused."""
    arn = "arn:aws:kinesis:ap-south-1:123456789012:stream/flights"
    aws = AwsConfig(endpoint_url=stub_kinesis.url, access_key_id="a", secret_access_key="b")
    stub_kinesis.answers("DescribeStreamSummary", ok(StreamDescriptionSummary=summary()))
    with closing(KinesisClient(aws, StreamRef.parse(arn=arn))) as client:
        client.describe()
    assert "/ap-south-1/kinesis/" in stub_kinesis.requests[0].headers["Authorization"]
    with pytest.raises(ConfigError, match="not the region of the stream"):
        KinesisClient(config_of(stub_kinesis.url), StreamRef.parse(arn=arn))


def test_expired_credentials_are_looked_up_anew_once(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A file that has been refreshed since is read again; when that does not help, it is an error at once."""
    file = tmp_path_factory.mktemp("aws") / "credentials"
    no_aws_environment("AWS_SHARED_CREDENTIALS_FILE", str(file))
    file.write_text("[default]\naws_access_key_id=OLD\naws_secret_access_key=x\n")
    stub_kinesis.answers("GetRecords", page(b"a"))
    with closing(KinesisClient(AwsConfig(region="eu-central-1", endpoint_url=stub_kinesis.url), StreamRef("flights"))) as client:
        client.get_records("it", 1)
        file.write_text("[default]\naws_access_key_id=NEW\naws_secret_access_key=y\n")
        stub_kinesis.answers("GetRecords", error("ExpiredTokenException"), page(b"a"))
        assert client.get_records("it", 1).page.count == 1
        keys = [request.headers["Authorization"].split("Credential=")[1].split("/")[0] for request in stub_kinesis.requests]
        assert keys == ["OLD", "OLD", "NEW"]
        stub_kinesis.answers("GetRecords", error("ExpiredTokenException"))
        with pytest.raises(CredentialsError, match="temporary credentials"):
            client.get_records("it", 1)
    assert len(stub_kinesis.requests) == 5


def sts_answer(key: str) -> Answer:
    body = (
        '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
        f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>y</SecretAccessKey><SessionToken>token-of-{key}</SessionToken>"
        "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
    return Answer(body=body.encode())


ROLE = "arn:aws:iam::123456789012:role/reader"


def test_a_role_is_assumed_with_its_external_id_and_anew_when_it_expires(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None]
) -> None:
    """The endpoint that is given is for Kinesis only: STS is asked where STS is."""
    with serve(StubKinesis()) as sts:
        no_aws_environment("AWS_ENDPOINT_URL_STS", sts.url)
        sts.answers("AssumeRole", sts_answer("FIRST"), sts_answer("SECOND"))
        stub_kinesis.answers("GetRecords", page(b"a"), error("ExpiredTokenException"), page(b"b"))
        aws = config_of(stub_kinesis.url, role_arn=ROLE, role_external_id="ext-1", role_session_name="session-1")
        with closing(KinesisClient(aws, StreamRef("flights"))) as client:
            client.get_records("it", 1)
            client.get_records("it", 1)
        asked = sts.asked("AssumeRole")
    assert [request.headers["X-Amz-Security-Token"] for request in stub_kinesis.requests] == [
        "token-of-FIRST",
        "token-of-FIRST",
        "token-of-SECOND",
    ]
    assert (asked[0].arguments["ExternalId"], asked[0].arguments["RoleSessionName"]) == ("ext-1", "session-1")
    assert len(asked) == 2


def test_a_role_that_may_not_be_assumed_is_named(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None]
) -> None:
    """At once; STS is not asked twice."""
    denied = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not allowed</Message></Error></ErrorResponse>"
    with serve(StubKinesis()) as sts:
        no_aws_environment("AWS_ENDPOINT_URL_STS", sts.url)
        sts.answers("AssumeRole", Answer(403, denied))
        aws = config_of(stub_kinesis.url, role_arn=ROLE)
        with closing(KinesisClient(aws, StreamRef("flights"))) as client, pytest.raises(AccessDeniedError, match="role/reader"):
            client.describe()
        assert len(sts.asked("AssumeRole")) == 1


def test_no_secret_is_in_errors_or_reprs(client: KinesisClient, stub_kinesis: StubKinesis) -> None:
    """The service may quote the signed request in its message: that is not passed on, and not chained either."""
    quoted = f"The Canonical String should have been 'x-amz-security-token:{SECRET}'"
    stub_kinesis.answers("GetRecords", error("InvalidSignatureException", quoted))
    with pytest.raises(CredentialsError) as caught:
        client.get_records("it", 1)
    texts = [str(caught.value), repr(caught.value), repr(client), repr(client.aws), str(caught.value.__cause__)]
    assert caught.value.__suppress_context__
    assert not any(SECRET in text for text in texts)


def test_nothing_is_asked_before_the_first_call(stub_kinesis: StubKinesis, no_aws_environment: object) -> None:
    """Planning processes construct it too: no files, no network, no threads."""
    threads = threading.active_count()
    client = KinesisClient(AwsConfig(region="eu-central-1", profile="not-there", role_arn=ROLE), StreamRef("flights"))
    assert json.dumps(repr(pickle.loads(pickle.dumps(client))))  # noqa: S301  # our own bytes
    assert threading.active_count() == threads
