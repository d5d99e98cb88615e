"""The sources of the client's credentials and region, and its errors when these are wrong."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import pytest

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import (
    AccessDeniedError,
    ConfigError,
    CredentialsError,
    KinesisError,
    ServiceUnavailableError,
)
from kinesis_spout.service.client import KinesisClient
from tests.support.kinesis.stub_kinesis import (
    SECRET,
    Answer,
    StubKinesis,
    WaitlessClock,
    config_of,
    error,
    ok,
    page,
    serve,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_no_credentials_is_an_error_that_names_the_ways_to_give_them(
    stub_kinesis: StubKinesis, no_aws_environment: object
) -> None:
    """Before any call."""
    aws = AwsConfig(region="eu-central-1", endpoint_url=stub_kinesis.url)
    with (
        closing(KinesisClient(aws, StreamRef("flights"))) as client,
        pytest.raises(CredentialsError, match="AWS_ACCESS_KEY_ID"),
    ):
        client.describe()
    assert stub_kinesis.requests == []


def test_credentials_come_from_the_environment_as_everywhere(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None]
) -> None:
    """It uses the whole chain of botocore."""
    no_aws_environment("AWS_ACCESS_KEY_ID", "FROMENV")
    no_aws_environment("AWS_SECRET_ACCESS_KEY", "x")
    stub_kinesis.answers("DescribeStreamSummary", ok(StreamDescriptionSummary=summary()))
    with closing(
        KinesisClient(
            AwsConfig(region="eu-central-1", endpoint_url=stub_kinesis.url), StreamRef("flights")
        )
    ) as client:
        assert client.describe().created_ms == 1_700_000_000_123
    assert "Credential=FROMENV/" in stub_kinesis.requests[0].headers["Authorization"]


def test_an_unknown_profile_is_an_error_that_names_it(
    stub_kinesis: StubKinesis, no_aws_environment: object
) -> None:
    """A typo in the profile."""
    aws = AwsConfig(region="eu-central-1", endpoint_url=stub_kinesis.url, profile="wrk")
    with (
        closing(KinesisClient(aws, StreamRef("flights"))) as client,
        pytest.raises(CredentialsError, match="profile wrk"),
    ):
        client.describe()


def test_a_region_that_is_not_known_is_an_error(
    stub_kinesis: StubKinesis, no_aws_environment: object
) -> None:
    """Neither given nor configured."""
    aws = AwsConfig(endpoint_url=stub_kinesis.url, access_key_id="a", secret_access_key="b")
    with (
        closing(KinesisClient(aws, StreamRef("flights"))) as client,
        pytest.raises(ConfigError, match="region of stream flights"),
    ):
        client.describe()


@pytest.mark.parametrize(
    ("region", "kind", "says"),
    [
        ("us-esat-1", ConfigError, "'us-esat-1' is not a region that can be reached"),
        ("eu-central-1", ServiceUnavailableError, "try again"),
    ],
)
def test_a_region_that_does_not_exist_is_an_error_at_once(
    no_aws_environment: object,
    monkeypatch: pytest.MonkeyPatch,
    region: str,
    kind: type[KinesisError],
    says: str,
) -> None:
    """It has no address, and never will. A known region without an address is a fault of the
    network, which may pass.
    """

    def no_address(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_address)
    clock = WaitlessClock()
    aws = AwsConfig(region=region, access_key_id="a", secret_access_key="b")
    with (
        closing(KinesisClient(aws, StreamRef("flights"), clock=clock)) as client,
        pytest.raises(kind, match=says),
    ):
        client.describe()
    assert (clock.sleeps == []) is (kind is ConfigError)


def test_an_endpoint_of_the_environment_that_does_not_answer_is_no_fault_of_the_region(
    no_aws_environment: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local Kinesis that is not running, in a region that no partition lists."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", "http://127.0.0.1:1/")
    aws = AwsConfig(region="local-1", access_key_id="a", secret_access_key="b")
    with (
        closing(KinesisClient(aws, StreamRef("flights"), clock=WaitlessClock())) as client,
        pytest.raises(ServiceUnavailableError, match="check the network and the endpoint"),
    ):
        client.describe()


def test_the_region_comes_from_the_arn(
    stub_kinesis: StubKinesis, no_aws_environment: object
) -> None:
    """An ARN names its region; a second one that differs is refused."""
    arn = "arn:aws:kinesis:ap-south-1:123456789012:stream/flights"
    aws = AwsConfig(endpoint_url=stub_kinesis.url, access_key_id="a", secret_access_key="b")
    stub_kinesis.answers("DescribeStreamSummary", ok(StreamDescriptionSummary=summary()))
    with closing(KinesisClient(aws, StreamRef.parse(arn=arn))) as client:
        client.describe()
    assert "/ap-south-1/kinesis/" in stub_kinesis.requests[0].headers["Authorization"]
    with pytest.raises(ConfigError, match="not the region of the stream"):
        KinesisClient(config_of(stub_kinesis.url), StreamRef.parse(arn=arn))


def test_expired_credentials_are_looked_up_again_once(
    stub_kinesis: StubKinesis,
    no_aws_environment: Callable[[str, str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A file that has been refreshed since is read again. If that does not help, it is an error at
    once.
    """
    file = tmp_path_factory.mktemp("aws") / "credentials"
    no_aws_environment("AWS_SHARED_CREDENTIALS_FILE", str(file))
    file.write_text("[default]\naws_access_key_id=OLD\naws_secret_access_key=x\n")
    stub_kinesis.answers("GetRecords", page(b"a"))
    with closing(
        KinesisClient(
            AwsConfig(region="eu-central-1", endpoint_url=stub_kinesis.url, wire_format="json"),
            StreamRef("flights"),
        )
    ) as client:
        client.get_records("it", 1)
        file.write_text("[default]\naws_access_key_id=NEW\naws_secret_access_key=y\n")
        stub_kinesis.answers("GetRecords", error("ExpiredTokenException"), page(b"a"))
        assert client.get_records("it", 1).page.count == 1
        keys = [
            request.headers["Authorization"].split("Credential=")[1].split("/")[0]
            for request in stub_kinesis.requests
        ]
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


def test_a_role_is_assumed_with_its_external_id_and_again_when_it_expires(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None]
) -> None:
    """The given endpoint is for Kinesis only; STS has its own."""
    with serve(StubKinesis()) as sts:
        no_aws_environment("AWS_ENDPOINT_URL_STS", sts.url)
        sts.answers("AssumeRole", sts_answer("FIRST"), sts_answer("SECOND"))
        stub_kinesis.answers("GetRecords", page(b"a"), error("ExpiredTokenException"), page(b"b"))
        aws = config_of(
            stub_kinesis.url, role_arn=ROLE, role_external_id="ext-1", role_session_name="session-1"
        )
        with closing(KinesisClient(aws, StreamRef("flights"))) as client:
            client.get_records("it", 1)
            client.get_records("it", 1)
        asked = sts.asked("AssumeRole")
    assert [request.headers["X-Amz-Security-Token"] for request in stub_kinesis.requests] == [
        "token-of-FIRST",
        "token-of-FIRST",
        "token-of-SECOND",
    ]
    assert (asked[0].arguments["ExternalId"], asked[0].arguments["RoleSessionName"]) == (
        "ext-1",
        "session-1",
    )
    assert len(asked) == 2


def test_a_role_that_may_not_be_assumed_is_named(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None]
) -> None:
    """At once; STS is not asked twice."""
    denied = (
        b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not allowed</Message></Error>"
        b"</ErrorResponse>"
    )
    with serve(StubKinesis()) as sts:
        no_aws_environment("AWS_ENDPOINT_URL_STS", sts.url)
        sts.answers("AssumeRole", Answer(403, denied))
        aws = config_of(stub_kinesis.url, role_arn=ROLE)
        with (
            closing(KinesisClient(aws, StreamRef("flights"))) as client,
            pytest.raises(AccessDeniedError, match="role/reader"),
        ):
            client.describe()
        assert len(sts.asked("AssumeRole")) == 1


def test_no_secret_is_in_errors_or_reprs(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """The service may quote the signed request in its message: the error neither shows nor chains
    it.
    """
    quoted = f"The Canonical String should have been 'x-amz-security-token:{SECRET}'"
    stub_kinesis.answers("GetRecords", error("InvalidSignatureException", quoted))
    with pytest.raises(CredentialsError) as caught:
        stubbed_client.get_records("it", 1)
    texts = [
        str(caught.value),
        repr(caught.value),
        repr(stubbed_client),
        repr(stubbed_client.aws),
        str(caught.value.__cause__),
    ]
    assert caught.value.__suppress_context__
    assert not any(SECRET in text for text in texts)


def test_nothing_is_asked_before_the_first_call(
    stub_kinesis: StubKinesis, no_aws_environment: object
) -> None:
    """Planning processes construct a client too: no files, no network, no threads."""
    threads = threading.active_count()
    client = KinesisClient(
        AwsConfig(region="eu-central-1", profile="not-there", role_arn=ROLE), StreamRef("flights")
    )
    assert json.dumps(repr(pickle.loads(pickle.dumps(client))))  # noqa: S301  # our own bytes
    assert threading.active_count() == threads
