"""The sources of the client's credentials and region, and its errors when these are wrong."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import (
    AccessDeniedError,
    ConfigError,
    CredentialsError,
    ServiceUnavailableError,
)
from kinesis_spout.service.botocore_connection import new_session
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.surroundings import for_executors
from tests.support.kinesis.stub_kinesis import (
    SECRET,
    Answer,
    StubKinesis,
    WaitlessClock,
    config_of,
    error,
    ok,
    page,
    role_answer,
    serve,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kinesis_spout.clock import Clock


ROLE = "arn:aws:iam::123456789012:role/reader"


KEYS = {"access_key_id": "a", "secret_access_key": "b"}


@pytest.mark.parametrize(
    ("options", "variables", "kind", "says"),
    [
        ({"region": "eu-central-1"}, {}, CredentialsError, "AWS_ACCESS_KEY_ID"),
        ({"region": "eu-central-1", "profile": "wrk"}, {}, CredentialsError, "profile wrk"),
        *(
            ({}, {name: "wrk"}, CredentialsError, f"profile wrk of {name} is in no AWS")
            for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
        ),
        (KEYS, {}, ConfigError, "region of stream flights"),
    ],
)
def test_what_is_missing_is_named_before_any_call(
    stub_kinesis: StubKinesis,
    no_aws_environment: Callable[[str, str], None],
    *,
    options: dict[str, str],
    variables: dict[str, str],
    kind: type[Exception],
    says: str,
) -> None:
    """Credentials, a profile with its variable, the region."""
    for name, value in variables.items():
        no_aws_environment(name, value)
    aws = AwsConfig(endpoint_url=stub_kinesis.url, **options)
    with (
        closing(KinesisClient(aws, StreamRef("flights"))) as client,
        pytest.raises(kind, match=says),
    ):
        client.describe()
    assert stub_kinesis.requests == []


def _no_address(*_: object, **__: object) -> NoReturn:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def _no_name_server(*_: object, **__: object) -> NoReturn:
    raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


def _refused(*_: object, **__: object) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]


@pytest.mark.parametrize("given_by", ["option", "AWS_DEFAULT_REGION", "AWS_REGION", "ARN"])
@pytest.mark.parametrize("role_arn", [None, ROLE])
def test_a_region_that_does_not_exist_is_an_error_at_once(
    no_aws_environment: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    given_by: str,
    role_arn: str | None,
) -> None:
    """It has no address, and never will."""
    monkeypatch.setattr(socket, "getaddrinfo", _no_address)
    clock = WaitlessClock()
    region = {"region": "us-esat-1"} if given_by == "option" else {}
    stream = StreamRef("flights")
    if given_by == "ARN":
        stream = StreamRef.of("arn:aws:kinesis:us-esat-1:123456789012:stream/flights")
    elif given_by != "option":
        no_aws_environment(given_by, "us-esat-1")
    aws = AwsConfig(access_key_id="a", secret_access_key="b", role_arn=role_arn, **region)
    with (
        closing(KinesisClient(aws, stream, clock=clock)) as client,
        pytest.raises(ConfigError, match=r"'us-esat-1'.* is not a region that can be reached"),
    ):
        client.describe()
    assert clock.sleeps == []


@contextmanager
def serve_metadata(zone: str) -> Iterator[str]:
    """The metadata of an instance in this zone, and their endpoint."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._send("a token")

        def do_GET(self) -> None:
            self._send(zone)

        def _send(self, text: str) -> None:
            self.send_response_only(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


def test_executors_get_the_region_of_the_instance_of_their_driver(
    no_aws_environment: Callable[[str, str], None],
) -> None:
    """Which is asked once, by the first of the two that needs it: the metadata of an executor's
    instance may not be reached. One whose ARN names a region needs no other.
    """
    orders = StreamRef("orders")
    of_an_arn = StreamRef.of("arn:aws:kinesis:ap-south-1:123456789012:stream/orders")
    assert for_executors(AwsConfig(), orders).region is None
    with serve_metadata("eu-central-1b") as metadata:
        no_aws_environment("AWS_EC2_METADATA_DISABLED", "false")
        no_aws_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata)
        assert new_session(AwsConfig(), None).get_config_variable("region") == "eu-central-1"
    assert for_executors(AwsConfig(), orders).region == "eu-central-1"
    assert for_executors(AwsConfig(), of_an_arn).region is None
    assert for_executors(AwsConfig(region="eu-west-1"), orders).region == "eu-west-1"


def test_a_region_that_has_answered_is_no_wrong_region(
    no_aws_environment: object, monkeypatch: pytest.MonkeyPatch, stub_kinesis: StubKinesis
) -> None:
    """A new region, that botocore does not list yet, has an outage of its names. Then it is waited
    for, and so it is by another process of the same job.
    """
    stub_kinesis.answers("DescribeStreamSummary", ok(StreamDescriptionSummary=summary()))
    aws = AwsConfig(region="mars-north-1", access_key_id="a", secret_access_key="b")
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", stub_kinesis.url)
    client = KinesisClient(aws, StreamRef("flights"), clock=WaitlessClock())
    client.describe()
    monkeypatch.delenv("AWS_ENDPOINT_URL_KINESIS")
    client.close()
    monkeypatch.setattr(socket, "getaddrinfo", _no_address)
    with closing(client), pytest.raises(ServiceUnavailableError):
        client.describe()
    executor = KinesisClient(aws, StreamRef("flights"), clock=WaitlessClock(), answered_before=True)
    with closing(executor), pytest.raises(ServiceUnavailableError):
        executor.describe()


HERE = {"region": "eu-central-1"}
KINESIS = r"https://kinesis\.eu-central-1\.amazonaws\.com for stream flights in eu-central-1"


@pytest.mark.parametrize(
    ("failure", "options", "variables", "says"),
    [
        *((failure, HERE, {}, KINESIS) for failure in (_no_address, _no_name_server, _refused)),
        (
            _no_address,
            {"region": "local-1", "endpoint_url": "http://kinesis.local-1.invalid:4566"},
            {},
            r" at http://kinesis\.local-1\.invalid:4566",
        ),
        (
            _no_address,
            {"region": "local-1"},
            {"AWS_ENDPOINT_URL_KINESIS": "http://127.0.0.1:1/"},
            r"flights in local-1 at http://127\.0\.0\.1:1/.*check the network and the endpoint",
        ),
        (
            _no_address,
            HERE | {"endpoint_url": "http://127.0.0.1:2", "role_arn": ROLE},
            {"AWS_ENDPOINT_URL_STS": "http://127.0.0.1:1"},
            r"came from http://127\.0\.0\.1:1 for",
        ),
    ],
)
def test_a_host_that_does_not_answer_is_named_and_waited_for(
    no_aws_environment: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    failure: Callable[..., Any],
    options: dict[str, str],
    variables: dict[str, str],
    says: str,
) -> None:
    """In a known region, and where an option or the environment names the host: that is a fault of
    the network, which may pass.
    """
    elsewhere = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **more: Any) -> Any:
        return elsewhere(host, *rest, **more) if host == "127.0.0.1" else failure()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for name, value in variables.items():
        no_aws_environment(name, value)
    clock = WaitlessClock()
    aws = AwsConfig(**KEYS, **options)
    with (
        closing(KinesisClient(aws, StreamRef("flights"), clock=clock)) as client,
        pytest.raises(ServiceUnavailableError, match=says),
    ):
        client.describe()
    assert sum(clock.sleeps) > 40


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


REFUSALS = [
    "ExpiredTokenException",
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "IncompleteSignatureException",
]


def keys_in(stub: StubKinesis) -> list[str]:
    return [
        request.headers["Authorization"].split("Credential=")[1].split("/")[0]
        for request in stub.requests
    ]


@pytest.fixture
def keys_file(no_aws_environment: Callable[[str, str], None], tmp_path: Path) -> Path:
    """The shared credentials file."""
    file = tmp_path / "credentials"
    no_aws_environment("AWS_SHARED_CREDENTIALS_FILE", str(file))
    write_keys(file, "OLD")
    return file


def write_keys(file: Path, key: str) -> None:
    file.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=x\n")


def reader_of(stub: StubKinesis, clock: Clock, **more: Any) -> KinesisClient:
    aws = AwsConfig(region="eu-central-1", endpoint_url=stub.url, wire_format="json")
    return KinesisClient(aws, StreamRef("flights"), clock=clock, **more)


@pytest.mark.parametrize("code", REFUSALS)
def test_credentials_that_are_refused_are_looked_up_again_at_once(
    stub_kinesis: StubKinesis, keys_file: Path, code: str
) -> None:
    """A file that has other keys since is read again."""
    clock = WaitlessClock()
    stub_kinesis.answers("GetRecords", page(b"a"))
    with closing(reader_of(stub_kinesis, clock)) as client:
        client.get_records("it", 1)
        write_keys(keys_file, "NEW")
        stub_kinesis.answers("GetRecords", error(code), page(b"a"))
        assert client.get_records("it", 1).count == 1
    assert keys_in(stub_kinesis) == ["OLD", "OLD", "NEW"]
    assert clock.sleeps == []


@pytest.mark.usefixtures("keys_file")
@pytest.mark.parametrize("code", REFUSALS)
def test_the_first_call_does_not_wait_for_other_credentials(
    stub_kinesis: StubKinesis, code: str
) -> None:
    """They were wrong from the start."""
    clock = WaitlessClock()
    stub_kinesis.answers("GetRecords", error(code))
    with closing(reader_of(stub_kinesis, clock)) as client, pytest.raises(CredentialsError):
        client.get_records("it", 1)
    assert clock.sleeps == []
    assert keys_in(stub_kinesis) == ["OLD"]


@pytest.mark.parametrize("process", ["driver", "executor"])
def test_keys_that_arrive_later_are_waited_for_as_in_an_outage(
    stub_kinesis: StubKinesis, keys_file: Path, process: str
) -> None:
    """A process that begins meanwhile waits, too, if the service has answered its job before."""
    code = "ExpiredTokenException"

    class Rotating(WaitlessClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.sleeps) == 3:
                write_keys(keys_file, "NEW")
                stub_kinesis.answers("GetRecords", error(code), page(b"b"))

    stub_kinesis.answers("GetRecords", page(b"a"))
    clock = Rotating()
    begins_late = process == "executor"
    with closing(reader_of(stub_kinesis, clock, answered_before=begins_late)) as client:
        if not begins_late:
            client.get_records("it", 1)
        stub_kinesis.answers("GetRecords", error(code))
        assert client.get_records("it", 1).columns.to_arrow().num_rows == 1
        assert keys_in(stub_kinesis)[-1] == "NEW"
        stub_kinesis.answers("GetRecords", error(code))
        with pytest.raises(CredentialsError, match=code):
            client.get_records("it", 1)
    assert 40 < sum(clock.sleeps) < 130


@pytest.mark.parametrize("content", ["", "[default]\naws_access_key_id=NEW\n", "[def", None])
def test_a_file_that_is_being_replaced_is_waited_for(
    stub_kinesis: StubKinesis, keys_file: Path, content: str | None
) -> None:
    """It may be empty for a moment, or half of it written, or not there."""

    class Rotating(WaitlessClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            write_keys(keys_file, "NEW")

    stub_kinesis.answers("GetRecords", page(b"a"))
    clock = Rotating()
    with closing(reader_of(stub_kinesis, clock)) as client:
        client.get_records("it", 1)
        if content is None:
            keys_file.unlink()
        else:
            keys_file.write_text(content)
        stub_kinesis.answers("GetRecords", error("UnrecognizedClientException"), page(b"a"))
        client.get_records("it", 1)
    assert keys_in(stub_kinesis) == ["OLD", "OLD", "NEW"]
    assert len(clock.sleeps) == 1


def test_a_role_is_assumed_with_its_external_id_and_again_when_it_expires(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None]
) -> None:
    """The given endpoint is for Kinesis only; STS has its own."""
    with serve(StubKinesis()) as sts:
        no_aws_environment("AWS_ENDPOINT_URL_STS", sts.url)
        sts.answers("AssumeRole", role_answer("FIRST"), role_answer("SECOND"))
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
    shown = (caught.value, stubbed_client, stubbed_client.aws, caught.value.__cause__)
    texts = [text for one in shown for text in (str(one), repr(one))]
    assert caught.value.__suppress_context__
    assert not any(SECRET in text for text in texts)
