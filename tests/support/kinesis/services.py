"""Kinesis services for tests: a moto server, the npm emulator and our own FakeKinesis, each on a
free loopback port.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pytest
from botocore.config import Config

from kinesis_spout.testing import FakeKinesis, FakeKinesisServer, FakeKinesisSettings
from localstack import emulator, runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.clock import Clock
    from tests.support.certificates import Authority

REGION = "us-east-1"
ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "not-a-secret"


def fields_of(endpoint_url: str) -> dict[str, str]:
    """The connection to this service as `AwsConfig` and `KinesisSource` have it."""
    return {
        "region": REGION,
        "endpoint_url": endpoint_url,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }


def options_of(endpoint_url: str) -> dict[str, str]:
    """The same as options of Spark's readers and writers."""
    return {
        "region": REGION,
        "endpointUrl": endpoint_url,
        "awsAccessKeyId": ACCESS_KEY,
        "awsSecretAccessKey": SECRET_KEY,
    }


def words_of(endpoint_url: str) -> tuple[str, ...]:
    """The same on a command line."""
    keys = (f"awsAccessKeyId={ACCESS_KEY}", f"awsSecretAccessKey={SECRET_KEY}")
    options = [word for key in keys for word in ("--option", key)]
    return ("--region", REGION, "--endpoint-url", endpoint_url, *options)


@cache
def _session() -> boto3.session.Session:
    """One for all tests: parsing the service's description takes longer than most tests."""
    return boto3.session.Session()


@contextmanager
def kinesis_client(
    endpoint_url: str,
    *,
    max_attempts: int = 1,
    read_timeout_s: int = 20,
) -> Iterator[Any]:
    """A boto3 client with made-up credentials. It does not retry unless told to; its connections
    are closed at the end.
    """
    client = _session().client(
        "kinesis",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(
            retries={"total_max_attempts": max_attempts, "mode": "standard"},
            connect_timeout=5,
            read_timeout=read_timeout_s,
        ),
    )
    with closing(client):
        yield client


def create_stream(client: Any, name: str, *, shards: int = 1) -> None:
    """Create the stream and wait, at most 60 s, until it is ACTIVE."""
    client.create_stream(StreamName=name, ShardCount=shards)
    wait_until_active(client, name)


def wait_until_active(client: Any, name: str, *, limit_s: float = 60.0) -> None:
    """Wait until no change of the stream is in progress."""
    deadline = time.monotonic() + limit_s
    waiting = True
    while waiting:
        status = client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"][
            "StreamStatus"
        ]
        waiting = status != "ACTIVE"
        if waiting and time.monotonic() > deadline:
            pytest.fail(f"stream {name} is still {status} after {limit_s:.0f} s")
        if waiting:
            time.sleep(0.02)  # noqa: TID251  # the service announces nothing: its status can only be asked for


def records_on(client: Any, stream: str) -> list[dict[str, Any]]:
    """All records of the stream, shard by shard, in the order of the shard."""
    found: list[dict[str, Any]] = []
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        is_behind = True
        while iterator is not None and is_behind:
            page = client.get_records(ShardIterator=iterator)
            found += page["Records"]
            iterator, is_behind = page.get("NextShardIterator"), page["MillisBehindLatest"] > 0
    return found


@pytest.fixture(scope="session")
def moto_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A moto server in a process of its own, one for the session: tests use stream names of their
    own.
    """
    (port,) = emulator.free_ports(1)
    log = tmp_path_factory.mktemp("moto") / "moto.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            emulator.wait_until_answering(
                lambda: _answers(port), process, f"moto on port {port}", log, AssertionError
            )
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=20)


@pytest.fixture(scope="session")
def emulator_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The npm emulator in a process of its own, one for the session. Without Node it fails and says
    what to install.
    """
    try:
        with emulator.running(tmp_path_factory.mktemp("emulator") / "emulator.log") as service:
            yield service.endpoint_url
    except emulator.EmulatorError as exc:
        pytest.fail(str(exc))


@pytest.fixture(scope="session")
def localstack_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """LocalStack, serving Kinesis in processes of its own; one for the session. Where it is not set
    up, tests fail and say so.
    """
    try:
        with runtime.running(tmp_path_factory.mktemp("localstack") / "localstack.log") as service:
            yield service.endpoint_url
    except (runtime.LocalStackError, emulator.EmulatorError) as exc:
        pytest.fail(str(exc))


@dataclass(frozen=True, slots=True)
class ServedFake:
    """A FakeKinesis, `model`, and its endpoint for boto3."""

    endpoint_url: str
    model: FakeKinesis

    @property
    def aws(self) -> dict[str, Any]:
        """The fields of `AwsConfig` that lead to it."""
        return fields_of(self.endpoint_url)


@pytest.fixture
def fake_kinesis() -> Iterator[ServedFake]:
    """A FakeKinesis of the test's own, on the machine's clock, served over HTTP."""
    with serve() as fake:
        yield fake


@pytest.fixture
def orders(fake_kinesis: ServedFake) -> ServedFake:
    """The same with a stream `orders`, which has two shards."""
    fake_kinesis.model.create("orders", shards=2)
    return fake_kinesis


@contextmanager
def served_over_tls(fake: FakeKinesis, authority: Authority) -> Iterator[str]:
    """The endpoint of a fake whose certificate this authority has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("kinesis", "127.0.0.1"))
    with FakeKinesisServer(fake) as server:
        http = server._http
        assert http is not None
        http.socket = context.wrap_socket(http.socket, server_side=True)
        yield server.endpoint_url.replace("http:", "https:")


@contextmanager
def serve(
    *, settings: FakeKinesisSettings | None = None, clock: Clock | None = None
) -> Iterator[ServedFake]:
    """A served FakeKinesis with settings or a clock of the test's own."""
    fake = FakeKinesis(settings=settings, clock=clock)
    with FakeKinesisServer(fake) as server:
        yield ServedFake(server.endpoint_url, fake)


@pytest.fixture(
    params=[
        "fake",
        pytest.param("localstack", marks=[pytest.mark.emulator, pytest.mark.localstack]),
    ]
)
def kinesis_service(request: pytest.FixtureRequest) -> str:
    """The endpoint of a service under the contract suite: our fake, or LocalStack with the emulator
    inside it.
    """
    if request.param == "fake":
        fake: ServedFake = request.getfixturevalue("fake_kinesis")
        return fake.endpoint_url
    endpoint: str = request.getfixturevalue("localstack_endpoint")
    return endpoint


class Service(NamedTuple):
    """A client of the service under test, and a stream name that no other test uses."""

    client: Any
    name: str


@pytest.fixture
def service(kinesis_service: str) -> Iterator[Service]:
    with kinesis_client(kinesis_service) as client:
        yield Service(client, f"contract-{uuid.uuid4().hex}")


@pytest.fixture
def one_shard(service: Service) -> Service:
    create_stream(service.client, service.name)
    return service


@pytest.fixture
def two_shards(service: Service) -> Service:
    create_stream(service.client, service.name, shards=2)
    return service


def _answers(port: int) -> bool:
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError:
            return False
        return True
