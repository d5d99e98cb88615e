"""The client: against services that behave, against a stub that fails on request, with GetRecords
in CBOR. The sources of its credentials and region, and its errors when these are wrong.
"""

from __future__ import annotations

import gzip
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, NoReturn

import cbor2
import pytest
from botocore.config import Config

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
from kinesis_spout.programs import how_to_install
from kinesis_spout.service.botocore_session import new_session
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.surroundings import for_executors
from kinesis_spout.testing import FakeKinesis
from state.position import TRIM_HORIZON, Position
from tests.architecture.source_tree import ROOT
from tests.support.certificates import Authority
from tests.support.kinesis.services import (
    create_stream,
    kinesis_client,
    serve,
    served_over_tls,
)
from tests.support.kinesis.stub_kinesis import (
    DATE,
    DATE_MS,
    SECRET,
    Answer,
    StubKinesis,
    WaitlessClock,
    config_of,
    error,
    ok,
    page,
    role_answer,
    seeded,
    serving,
    shard,
    summary,
)
from tests.support.kinesis.stub_kinesis import serve as serve_stub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kinesis_spout.clock import Clock


@pytest.fixture(
    scope="module", params=["fake", pytest.param("emulator", marks=pytest.mark.emulator)]
)
def reader(request: pytest.FixtureRequest) -> Iterator[KinesisClient]:
    """A client of a stream with two shards, and the records 0 to 9 in it."""
    with ExitStack() as stack:
        if request.param == "fake":
            url = stack.enter_context(serve()).endpoint_url
        else:
            url = request.getfixturevalue("emulator_endpoint")
        vendor = stack.enter_context(kinesis_client(url))
        create_stream(vendor, "client", shards=2)
        stack.callback(vendor.delete_stream, StreamName="client")
        for number in range(10):
            vendor.put_record(StreamName="client", PartitionKey="ünï-☃", Data=b"%d" % number)
        client = KinesisClient(config_of(url, region="us-east-1"), StreamRef("client"))
        yield stack.enter_context(closing(client))


def flights(aws: AwsConfig, **options: Any) -> closing[KinesisClient]:
    """A client of the stream of the stub, to be used in a `with` statement."""
    return closing(KinesisClient(aws, StreamRef("flights"), **options))


def read_all(client: KinesisClient, position: Position = TRIM_HORIZON) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for listed in client.list_shards():
        iterator: str | None = client.shard_iterator(listed.shard_id, position)
        for _ in range(3):
            if iterator is not None:
                fetched = client.get_records(iterator, 1000)
                rows += fetched.records.to_pylist()
                iterator = fetched.next_iterator
    return rows


def test_the_stream_is_described_and_can_be_named_by_its_arn(reader: KinesisClient) -> None:
    """The creation time identifies the stream; positions are made from the service's clock."""
    summary = reader.describe()
    assert (summary.name, summary.status) == (reader.stream.name, "ACTIVE")
    assert summary.retention_ms == 24 * 3_600_000
    assert summary.service_time_ms is not None
    assert abs(summary.service_time_ms - summary.created_ms) < 3_600_000
    with closing(KinesisClient(reader.aws, StreamRef.parse(arn=summary.arn))) as by_arn:
        assert len(read_all(by_arn)) == 10


def test_a_missing_stream_and_a_missing_shard_are_told_apart(reader: KinesisClient) -> None:
    """The service has one code for both; a shard past retention must not look like a deleted
    stream.
    """
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
    """Executors unpickle it and read many shards at once; the first calls race to connect."""
    with closing(pickle.loads(pickle.dumps(reader))) as copy, ThreadPoolExecutor(32) as pool:  # noqa: S301  # our own bytes
        counts = list(pool.map(lambda _: len(copy.list_shards()), range(64)))
    assert counts == [2] * 64


TRANSIENT = {
    "throttled": error("ProvisionedThroughputExceededException"),
    "limit": error("LimitExceededException"),
    "kms": error("KMSThrottlingException"),
    "creating": error("ResourceInUseException"),
    "internal": error("InternalFailureException", status=500),
    "unavailable": Answer(503, b"<html>busy</html>"),
    "no-body": Answer(500, b""),
    "dropped": Answer(drop=True),
    "truncated": Answer(body=b'{"Records":[]}', cut_bytes=5),
    "truncated-blank": Answer(body=b'{"Records":[]}   ', cut_bytes=2),
    "truncated-chunks": Answer(body=b'{"Records":[]}   ', cut_bytes=2, chunk_bytes=4),
    "malformed": Answer(body=b'{"Records":['),
    "no-json": Answer(body=b"<html>hello</html>"),
}


@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT.keys())
def test_a_transient_fault_is_tried_again(
    stubbed_client: KinesisClient,
    stub_kinesis: StubKinesis,
    fault: Answer,
    waitless_clock: WaitlessClock,
) -> None:
    stub_kinesis.answers("GetRecords", fault, fault, page(b"a"))
    assert stubbed_client.get_records("it", 1).count == 1
    assert len(waitless_clock.sleeps) == 2
    assert len(stub_kinesis.asked("GetRecords")) == 3


FRAMINGS = {
    "length": lambda answer: answer,
    "chunks": lambda answer: replace(answer, chunk_bytes=1000),
    "gzip": lambda answer: replace(
        answer,
        body=gzip.compress(answer.body),
        headers=answer.headers | {"Content-Encoding": "gzip"},
    ),
}


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=FRAMINGS.keys())
def test_a_body_is_read_whole_and_its_connection_used_again(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis, framing: Callable[[Answer], Answer]
) -> None:
    """With a length, in chunks or compressed: the records are the same, over one connection."""
    data = bytes(range(256)) * 1_000
    stub_kinesis.answers("GetRecords", framing(page(data)))
    for _ in range(3):
        fetched = stubbed_client.get_records("it", 1)
        assert fetched.records.column("data").to_pylist() == [data]
    assert stub_kinesis.connections == 1


def test_requests_are_those_of_botocore(
    stub_kinesis: StubKinesis, no_aws_environment: object
) -> None:
    """The first one and the later ones: their address, arguments and headers, and what is signed.
    botocore counts its own retries besides.
    """
    aws = config_of(stub_kinesis.url, session_token="a token", wire_format="json")  # made up
    stub_kinesis.answers("GetRecords", page(b"a"))
    with flights(aws) as client:
        for iterator in ("first", "second"):
            client.get_records(iterator, 7)
    plain = new_session(aws, "eu-central-1").create_client(
        "kinesis",
        endpoint_url=stub_kinesis.url,
        config=Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            user_agent_extra="kinesis-spout",
            tcp_keepalive=True,
            max_pool_connections=64,
            connect_timeout=5,
            read_timeout=30,
        ),
    )
    with closing(plain):
        plain.get_records(ShardIterator="second", Limit=7)
    first, second, vendor = stub_kinesis.asked("GetRecords")
    own = {"amz-sdk-invocation-id", "amz-sdk-request"}
    assert first.headers.keys() == second.headers.keys() == vendor.headers.keys() - own
    varying = own | {"Authorization", "X-Amz-Date"}
    assert {name: text for name, text in second.headers.items() if name not in varying} == {
        name: text for name, text in vendor.headers.items() if name not in varying
    }
    assert second.headers["X-Amz-Security-Token"] == "a token"
    assert second.arguments == vendor.arguments
    signed = [
        request.headers["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
        for request in (second, vendor)
    ]
    assert signed[0] == [name for name in signed[1] if name not in own]


@pytest.fixture
def sts(no_aws_environment: Callable[[str, str], None]) -> Iterator[StubKinesis]:
    with serve_stub(StubKinesis()) as stub:
        no_aws_environment("AWS_ENDPOINT_URL_STS", stub.url)
        yield stub


def test_credentials_that_are_about_to_expire_are_renewed_before_a_request(
    stub_kinesis: StubKinesis, sts: StubKinesis
) -> None:
    """Each request is signed with those of its moment."""
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()  # botocore renews 10 before
    # The first two are for the first request: botocore finds that the first expires soon.
    expiring = (role_answer("FIRST", soon), role_answer("SECOND", soon))
    sts.answers("AssumeRole", *expiring, role_answer("LAST"))
    stub_kinesis.answers("GetRecords", page(b"a"))
    with flights(config_of(stub_kinesis.url, role_arn=ROLE)) as client:
        for _ in range(3):
            client.get_records("it", 1)
    first, *later = keys_in(stub_kinesis)
    assert (first in ("FIRST", "SECOND"), later) == (True, ["LAST", "LAST"])


def test_pages_come_through_the_proxy_that_the_environment_names(
    stub_kinesis: StubKinesis, no_aws_environment: Callable[[str, str], None]
) -> None:
    """Nobody else could reach this endpoint. A proxy that does not answer is named."""
    no_aws_environment("HTTP_PROXY", stub_kinesis.url)
    stub_kinesis.answers("GetRecords", page(b"a"))
    aws = config_of("http://kinesis.invalid")
    with flights(aws) as client:
        assert [client.get_records("it", 1).count for _ in range(2)] == [1, 1]
    assert {request.headers["Host"] for request in stub_kinesis.requests} == {"kinesis.invalid"}
    no_aws_environment("HTTP_PROXY", "http://127.0.0.1:9")
    with (
        flights(aws) as client,
        pytest.raises(
            ServiceUnavailableError, match=r"the proxy http://127\.0\.0\.1:9 did not respond"
        ),
    ):
        client.get_records("it", 1, retry=False)


def test_pages_come_over_tls_from_an_endpoint_that_the_ca_bundle_vouches_for(
    no_aws_environment: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Without the bundle the error names it."""
    authority = Authority(tmp_path, "authority")
    fake = FakeKinesis()
    fake.create("orders")
    fake.put("orders", "k", b"one")
    with served_over_tls(fake, authority) as url:
        aws = config_of(url)
        with (
            closing(KinesisClient(aws, StreamRef("orders"))) as client,
            pytest.raises(ConfigError, match="AWS_CA_BUNDLE"),
        ):
            client.get_records("it", 1, retry=False)
        no_aws_environment("AWS_CA_BUNDLE", authority.file)
        with closing(KinesisClient(aws, StreamRef("orders"))) as client:
            assert [row["data"] for row in read_all(client)] == [b"one"]


class NoticedClock(WaitlessClock):
    """Tells that it was read, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.was_read = threading.Event()

    def monotonic_s(self) -> float:
        self.reads += 1
        self.was_read.set()
        return 7.0


def test_the_time_of_a_page_is_that_of_its_first_bytes(
    stub_kinesis: StubKinesis, no_aws_environment: object
) -> None:
    """The stub sends the body after the clock was read, which nothing else does in this call."""
    clock = NoticedClock()
    noticed: list[bool] = []
    answer = replace(page(b"a"), before_body=lambda: noticed.append(clock.was_read.wait(10)))
    stub_kinesis.answers("GetRecords", answer)
    aws = config_of(stub_kinesis.url)
    with flights(aws, clock=clock) as client:
        fetched = client.get_records("it", 1, retry=False)
    assert (fetched.answered_s, noticed, clock.reads) == (7.0, [True], 1)
    assert fetched.service_time_ms == DATE_MS


@pytest.mark.parametrize(
    ("fault", "kind", "retry_for_s", "least_s"),
    [
        (TRANSIENT["throttled"], ThrottledError, 60, 50),
        (TRANSIENT["internal"], ServiceUnavailableError, 60, 50),
        (TRANSIENT["internal"], ServiceUnavailableError, 30, 20),
        (TRANSIENT["dropped"], ServiceUnavailableError, 60, 50),
        # One that the network truncated is whole some time later; one that was sent so stays so.
        (TRANSIENT["malformed"], MalformedResponseError, 60, 15),
    ],
)
def test_retries_are_bounded_by_time(
    stub_kinesis: StubKinesis,
    waitless_clock: WaitlessClock,
    no_aws_environment: object,
    *,
    fault: Answer,
    kind: type[KinesisError],
    retry_for_s: float,
    least_s: float,
) -> None:
    """A persistent fault becomes a clear error. There is a wait before each call but the first: the
    vendor's retries do not multiply them. No wait begins that would end after the deadline, and
    attempts are not counted: an outage that is shorter is survived.
    """
    stub_kinesis.answers("GetRecords", fault)
    aws = config_of(stub_kinesis.url)
    with (
        flights(aws, clock=waitless_clock, retry_for_s=retry_for_s) as client,
        pytest.raises(kind),
    ):
        client.get_records("it", 1)
    assert len(stub_kinesis.asked("GetRecords")) == len(waitless_clock.sleeps) + 1
    # No wait is longer than 10 s.
    assert least_s <= waitless_clock.seconds <= min(retry_for_s, least_s + 10)


def test_a_caller_that_paces_itself_gets_a_throttling_error_at_once(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """Shard getters wait by their pacers, without blocking a thread."""
    stub_kinesis.answers("GetRecords", error("ProvisionedThroughputExceededException"), page(b"a"))
    with pytest.raises(ThrottledError):
        stubbed_client.get_records("it", 1, retry_throttled=False)
    assert len(stub_kinesis.asked("GetRecords")) == 1


FATAL = {
    "AccessDeniedException": (AccessDeniedError, "kinesis:GetRecords"),
    "KMSDisabledException": (AccessDeniedError, "KMS key"),
    "KMSAccessDeniedException": (AccessDeniedError, "kms:Decrypt"),
    "UnrecognizedClientException": (CredentialsError, "access key"),
    "InvalidSignatureException": (CredentialsError, "clock"),
    "ExpiredIteratorException": (ExpiredIteratorError, "new shard iterator"),
    "InvalidArgumentException": (ExpiredIteratorError, "position"),
}


@pytest.mark.parametrize("code", FATAL)
def test_a_final_fault_is_raised_at_once_and_says_what_to_do(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis, code: str
) -> None:
    """One call, no waiting, the stream and the endpoint named."""
    kind, says = FATAL[code]
    stub_kinesis.answers("GetRecords", error(code))
    with pytest.raises(kind, match=says) as caught:
        stubbed_client.get_records("it", 1)
    assert len(stub_kinesis.asked("GetRecords")) == 1
    assert "stream flights" in str(caught.value)
    assert stub_kinesis.url in str(caught.value)


def test_an_unknown_code_is_named_and_not_tried_again(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """A future code must be visible in the error."""
    stub_kinesis.answers("ListShards", error("SomethingNobodyHasHeardOf"))
    with pytest.raises(RequestRefusedError, match="SomethingNobodyHasHeardOf"):
        stubbed_client.list_shards()
    assert len(stub_kinesis.asked("ListShards")) == 1


def test_page_tokens_that_always_expire_end_in_an_error(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    again = [ok(Shards=[shard(0)], NextToken="a"), error("ExpiredNextTokenException")]
    stub_kinesis.answers("ListShards", *(again * 20))
    with pytest.raises(ServiceUnavailableError, match="page token"):
        stubbed_client.list_shards()


def test_a_start_time_keeps_its_milliseconds(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """A start that is cut to the second would include earlier records."""
    stub_kinesis.answers("GetShardIterator", ok(ShardIterator="it"))
    stubbed_client.shard_iterator("shardId-000000000000", Position.at_timestamp(1_700_000_000_123))
    assert stub_kinesis.asked("GetShardIterator")[0].arguments["Timestamp"] == 1_700_000_000.123


@pytest.mark.parametrize("body", [b"[1]", b'"x"', b"17", b"null"])
@pytest.mark.parametrize("status", [200, 400])
def test_an_answer_that_is_not_an_object_is_malformed(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis, body: bytes, status: int
) -> None:
    """From a proxy, for instance: the vendor's parser raises on such bodies."""
    stub_kinesis.answers("ListShards", Answer(status, body))
    with pytest.raises(MalformedResponseError, match="stream flights"):
        stubbed_client.list_shards()


def test_an_answer_without_shards_is_not_an_empty_listing(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """Otherwise all shards would look as if they were gone."""
    stub_kinesis.answers(
        "ListShards",
        ok(message="hello from a proxy"),
        Answer(body=b"<html>"),
        ok(Shards=[shard(0)]),
    )
    assert len(stubbed_client.list_shards()) == 1


CBOR = {"Date": DATE, "Content-Type": "application/x-amz-cbor-1.1"}
HTML = Answer(500, b"<html>oops</html>", {"Content-Type": "text/html; charset=utf-8"})


def cbor_page(*data_read: bytes) -> Answer:
    records = [
        {"SequenceNumber": str(at + 1), "Data": one, "PartitionKey": "k"}
        for at, one in enumerate(data_read)
    ]
    return Answer(body=cbor2.dumps({"Records": records, "NextShardIterator": "n"}), headers=CBOR)


def cbor_error(code: str, status: int = 400) -> Answer:
    body = cbor2.dumps({"__type": code, "message": "as the test says"})
    return Answer(status, body, CBOR)


@pytest.fixture
def cbor_client(
    request: pytest.FixtureRequest,
    stub_kinesis: StubKinesis,
    waitless_clock: WaitlessClock,
    no_aws_environment: object,
) -> Iterator[KinesisClient]:
    aws = config_of(stub_kinesis.url, wire_format=getattr(request, "param", "cbor"))
    with flights(aws, clock=waitless_clock, random=seeded(1)) as made:
        yield made


def kinds(stub: StubKinesis) -> list[str]:
    """How each GetRecords was sent."""
    return [
        request.headers["Content-Type"].removeprefix("application/x-amz-")
        for request in stub.asked("GetRecords")
    ]


def data_read(cbor_client: KinesisClient) -> list[Any]:
    records = cbor_client.get_records("it", 5).records
    values: list[Any] = records.column("data").to_pylist()
    return values


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (cbor_error("ExpiredIteratorException"), ExpiredIteratorError),
        (cbor_error("UnrecognizedClientException"), CredentialsError),
        (cbor_error("ProvisionedThroughputExceededException"), ThrottledError),
        (cbor_error("InternalFailure", 500), ServiceUnavailableError),
        (Answer(500, b"\xff", CBOR), ServiceUnavailableError),
        (Answer(body=b"\xff", headers=CBOR), MalformedResponseError),
    ],
)
def test_errors_in_cbor_are_those_of_json(
    cbor_client: KinesisClient, stub_kinesis: StubKinesis, fault: Answer, kind: type[Exception]
) -> None:
    stub_kinesis.answers("GetRecords", fault)
    with pytest.raises(kind):
        cbor_client.get_records("it", 5)
    assert set(kinds(stub_kinesis)) == {"cbor-1.1"}


BROKEN = Answer(body=cbor2.dumps({"Records": [{"Data": b"a"}]}), headers=CBOR)
LACKS = "{} does not support responses in CBOR (status {}, "
FREE = AwsConfig().wire_format  # its user left the encoding to us


@pytest.mark.parametrize(
    ("cbor_client", "answer", "level", "said"),
    [
        ("cbor", HTML, logging.WARNING, LACKS),
        ("cbor", page(b"a"), logging.WARNING, LACKS),
        ("cbor", error("SerializationException"), logging.WARNING, LACKS),
        (FREE, HTML, logging.INFO, LACKS),
        (FREE, BROKEN, logging.WARNING, "cannot be read as CBOR"),
    ],
    indirect=["cbor_client"],
)
def test_an_endpoint_whose_cbor_cannot_be_read_is_read_in_json_and_that_is_said_once(
    cbor_client: KinesisClient,
    stub_kinesis: StubKinesis,
    caplog: pytest.LogCaptureFixture,
    *,
    answer: Answer,
    level: int,
    said: str,
) -> None:
    """It answers in HTML, in JSON, refuses the body, or sends a broken page. Where CBOR was not
    asked for, one without it is no reason for a warning, a page that cannot be read is.
    """
    stub_kinesis.answers("GetRecords", answer, page(b"a"))
    with caplog.at_level(logging.INFO, "kinesis_spout"):
        assert [data_read(cbor_client) for _ in range(3)] == [[b"a"]] * 3
    assert kinds(stub_kinesis) == ["cbor-1.1"] + ["json-1.1"] * 3
    (found,) = [one for one in caplog.records if "CBOR" in one.getMessage()]
    assert found.levelno == level
    assert said.format(cbor_client.where, answer.status) in found.getMessage()
    assert found.getMessage().endswith("encoded as JSON instead")


def test_an_error_in_json_as_well_decides_nothing(
    cbor_client: KinesisClient, stub_kinesis: StubKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy that is down says nothing of the service behind it."""
    down = replace(HTML, status=503)
    stub_kinesis.answers("GetRecords", down, down, cbor_page(b"a"))
    assert data_read(cbor_client) == [b"a"]
    assert kinds(stub_kinesis) == ["cbor-1.1", "json-1.1", "cbor-1.1"]
    assert caplog.records == []


def test_an_endpoint_that_has_spoken_cbor_is_not_asked_in_json(
    cbor_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    stub_kinesis.answers("GetRecords", cbor_page(b"a"), HTML, cbor_page(b"b"))
    assert [data_read(cbor_client) for _ in range(2)] == [[b"a"], [b"b"]]
    assert kinds(stub_kinesis) == ["cbor-1.1"] * 3


NO_CBOR2 = "raise ModuleNotFoundError('no', name='cbor2')\n"
OLD_CBOR2 = """
class CBORDecodeError(ValueError): pass
def loads(body): return {}
def dumps(value): return b""
"""


_PROGRAM = """
import logging, sys
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import ConfigError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.spout import KinesisSpout, SpoutConfig
logging.basicConfig(level=logging.INFO)
keys = dict(access_key_id="a", secret_access_key="b", region="eu-central-1")
for chosen in ({"wire_format": "cbor"}, {}):
    aws = AwsConfig(endpoint_url=sys.argv[1], **keys, **chosen)
    try:
        print(KinesisClient(aws, StreamRef("flights")).get_records("it", 5).count)
    except ConfigError as exc:
        print(exc)
        try:
            KinesisSpout(SpoutConfig(stream="flights", aws=aws)).open()
        except ConfigError as exc:
            print(exc)
"""


@pytest.mark.parametrize(
    ("package", "needed"),
    [(NO_CBOR2, "the package cbor2"), (OLD_CBOR2, "a newer version of the package cbor2")],
)
def test_a_process_without_the_package_reads_json_unless_cbor_was_asked_for(
    stub_kinesis: StubKinesis,
    no_aws_environment: object,
    tmp_path: Path,
    package: str,
    needed: str,
) -> None:
    """Then the error names the option, and the extra to install, before a request is sent. Else the
    log does.
    """
    stub_kinesis.answers("GetRecords", page(b"a"))
    (tmp_path / "cbor2.py").write_text(package)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, stub_kinesis.url],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=True,
    )
    refused, of_spout, count = done.stdout.splitlines()
    rule = f"'cbor' needs {needed}; {how_to_install('cbor')}, or set the option to json"
    assert refused == f"option wireFormat: {rule}", "as readers and commands spell it"
    assert of_spout == f"option wire_format: {rule}"
    assert (count, kinds(stub_kinesis)) == ("1", ["json-1.1"])
    assert how_to_install("cbor") in done.stderr


ROLE = "arn:aws:iam::123456789012:role/reader"


KEYS = {"access_key_id": "a", "secret_access_key": "b"}


@pytest.mark.parametrize(
    ("options", "variables", "kind", "says"),
    [
        ({"region": "eu-central-1"}, {}, CredentialsError, "AWS_ACCESS_KEY_ID"),
        ({"region": "eu-central-1", "profile": "wrk"}, {}, CredentialsError, "profile wrk"),
        *(
            (
                {},
                {name: "wrk"},
                CredentialsError,
                f"no AWS configuration file contains profile wrk of {name}",
            )
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
    with flights(aws) as client, pytest.raises(kind, match=says):
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
        pytest.raises(ConfigError, match=r"'us-esat-1'.* is not a known AWS region"),
    ):
        client.describe()
    assert clock.sleeps == []


def serve_metadata(zone: str) -> AbstractContextManager[str]:
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

    return serving(Handler)


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
KINESIS = (
    r"https://kinesis\.eu-central-1\.amazonaws\.com did not .* for stream flights in eu-central-1"
)


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
            r"http://127\.0\.0\.1:1 did not respond",
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
    with flights(aws, clock=clock) as client, pytest.raises(ServiceUnavailableError, match=says):
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


class Rotating(WaitlessClock):
    """New keys come in that sleep."""

    def __init__(self, sleep: int, file: Path, then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._rotation = (sleep, file, then)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        sleep, file, then = self._rotation
        if len(self.sleeps) == sleep:
            write_keys(file, "NEW")
            then()


def reader_of(stub: StubKinesis, clock: Clock, **more: Any) -> closing[KinesisClient]:
    aws = AwsConfig(region="eu-central-1", endpoint_url=stub.url, wire_format="json")
    return flights(aws, clock=clock, **more)


@pytest.mark.parametrize("code", REFUSALS)
def test_credentials_that_are_refused_are_looked_up_again_at_once(
    stub_kinesis: StubKinesis, keys_file: Path, code: str
) -> None:
    """A file that has other keys since is read again. The first call waits for none: its keys were
    wrong from the start.
    """
    clock = WaitlessClock()
    stub_kinesis.answers("GetRecords", error(code))
    with reader_of(stub_kinesis, clock) as client, pytest.raises(CredentialsError):
        client.get_records("it", 1)
    assert keys_in(stub_kinesis) == ["OLD"]
    stub_kinesis.answers("GetRecords", page(b"a"))
    with reader_of(stub_kinesis, clock) as client:
        client.get_records("it", 1)
        write_keys(keys_file, "NEW")
        stub_kinesis.answers("GetRecords", error(code), page(b"a"))
        assert client.get_records("it", 1).count == 1
    assert keys_in(stub_kinesis)[1:] == ["OLD", "OLD", "NEW"]
    assert clock.sleeps == []


@pytest.mark.parametrize("process", ["driver", "executor"])
def test_keys_that_arrive_later_are_waited_for_as_in_an_outage(
    stub_kinesis: StubKinesis, keys_file: Path, process: str
) -> None:
    """A process that begins meanwhile waits, too, if the service has answered its job before."""
    code = "ExpiredTokenException"
    stub_kinesis.answers("GetRecords", page(b"a"))
    clock = Rotating(
        3, keys_file, lambda: stub_kinesis.answers("GetRecords", error(code), page(b"b"))
    )
    begins_late = process == "executor"
    with reader_of(stub_kinesis, clock, answered_before=begins_late) as client:
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
    stub_kinesis.answers("GetRecords", page(b"a"))
    clock = Rotating(1, keys_file)
    with reader_of(stub_kinesis, clock) as client:
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
    stub_kinesis: StubKinesis, sts: StubKinesis
) -> None:
    """The given endpoint is for Kinesis only; STS has its own."""
    sts.answers("AssumeRole", role_answer("FIRST"), role_answer("SECOND"))
    stub_kinesis.answers("GetRecords", page(b"a"), error("ExpiredTokenException"), page(b"b"))
    role = {"role_arn": ROLE, "role_external_id": "ext-1", "role_session_name": "session-1"}
    with flights(config_of(stub_kinesis.url, **role)) as client:
        client.get_records("it", 1)
        client.get_records("it", 1)
    asked = sts.asked("AssumeRole")
    assert [request.headers["X-Amz-Security-Token"] for request in stub_kinesis.requests] == [
        "token-of-FIRST",
        "token-of-FIRST",
        "token-of-SECOND",
    ]
    assert [(one.arguments["ExternalId"], one.arguments["RoleSessionName"]) for one in asked] == [
        ("ext-1", "session-1")
    ] * 2


def test_a_role_that_may_not_be_assumed_is_named(
    stub_kinesis: StubKinesis, sts: StubKinesis
) -> None:
    """At once; STS is not asked twice."""
    denied = (
        b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not allowed</Message></Error>"
        b"</ErrorResponse>"
    )
    sts.answers("AssumeRole", Answer(403, denied))
    aws = config_of(stub_kinesis.url, role_arn=ROLE)
    with flights(aws) as client, pytest.raises(AccessDeniedError, match="role/reader"):
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
