"""A stub of the Kinesis endpoint that answers from a test's queue: errors, broken bodies, dropped
connections.

Emulators accept all credentials and never fail. This stub fails as a test asks, and remembers the
requests.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections import deque
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.service.client import KinesisClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATE = "Thu, 01 Jan 2026 00:00:07 GMT"
DATE_MS = 1_767_225_607_000


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `cut_bytes` of the body are withheld before the connection is closed; `drop`
    closes it without any answer. `chunk_bytes`: sent in chunks of that size, without a length.
    `before_body` is called when the head has been sent.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=lambda: {"Date": DATE})
    cut_bytes: int = 0
    drop: bool = False
    chunk_bytes: int = 0
    before_body: Callable[[], object] | None = None


def ok(**body: Any) -> Answer:
    return Answer(body=json.dumps(body).encode())


def error(code: str, message: str = "as the test says", status: int = 400) -> Answer:
    return Answer(status, json.dumps({"__type": code, "message": message}).encode())


def page(*datas: bytes, first: int = 1, **rest: Any) -> Answer:
    """A GetRecords answer with the records `first`, `first` + 1, ...; `NextShardIterator` is `next`
    unless given.
    """
    records = [
        {
            "SequenceNumber": str(first + i),
            "Data": base64.b64encode(data).decode(),
            "PartitionKey": "k",
        }
        for i, data in enumerate(datas)
    ]
    return ok(**({"Records": records, "NextShardIterator": "next", "MillisBehindLatest": 0} | rest))


def role_answer(key: str, until: str = "2099-01-01T00:00:00Z") -> Answer:
    """Of STS, with credentials of a role."""
    body = (
        '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
        f"<Credentials><AccessKeyId>{key}</AccessKeyId>"
        f"<SecretAccessKey>secret-of-{key}</SecretAccessKey>"
        f"<SessionToken>token-of-{key}</SessionToken><Expiration>{until}</Expiration>"
        "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
    return Answer(body=body.encode())


@dataclass(frozen=True, slots=True)
class Request:
    operation: str
    arguments: dict[str, Any]
    headers: dict[str, str]


class StubKinesis:
    """Answers each operation from its own queue and repeats the last answer. An operation without
    answers gets a 400, which fails the test.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers: dict[str, deque[Answer]] = {}
        self._lock = threading.Lock()
        self.url = ""
        self.connections = 0

    def answers(self, operation: str, *answers: Answer) -> None:
        """Set the answers of an `operation` (GetRecords, say) from now on."""
        with self._lock:
            self._answers[operation] = deque(answers)

    def asked(self, operation: str) -> list[Request]:
        with self._lock:
            return [request for request in self.requests if request.operation == operation]

    def reply_to(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            queue = self._answers.get(request.operation)
            if not queue:
                return error("NoAnswerInTheStub", request.operation)
            return queue.popleft() if len(queue) > 1 else queue[0]


def _handler(stub: StubKinesis) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            stub.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            answer = stub.reply_to(_request(dict(self.headers.items()), body))
            if answer.drop:
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.chunk_bytes:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if answer.before_body is not None:
                answer.before_body()
            sent = answer.body[: len(answer.body) - answer.cut_bytes]
            self.wfile.write(_chunks(sent, answer) if answer.chunk_bytes else sent)
            self.close_connection = self.close_connection or bool(answer.cut_bytes)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
            """Tests are quiet."""

    return Handler


def _chunks(body: bytes, answer: Answer) -> bytes:
    size = answer.chunk_bytes
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return framed if answer.cut_bytes else framed + b"0\r\n\r\n"


def _request(headers: dict[str, str], body: bytes) -> Request:
    target = headers.get("X-Amz-Target")
    if target is not None:
        is_cbor = "cbor" in headers.get("Content-Type", "")
        arguments = cbor2.loads(body) if is_cbor else json.loads(body or b"{}")
        return Request(target.rpartition(".")[2], arguments, headers)
    # STS has another protocol: a form whose field Action names the operation.
    form = dict(pair.partition("=")[::2] for pair in body.decode().split("&"))
    return Request(form.get("Action", "?"), form, headers)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server on a free loopback port, until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
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


@contextmanager
def serve(stub: StubKinesis) -> Iterator[StubKinesis]:
    with serving(_handler(stub)) as stub.url:
        yield stub


@pytest.fixture
def stub_kinesis() -> Iterator[StubKinesis]:
    """A stub that gives the answers of the test."""
    with serve(StubKinesis()) as stub:
        yield stub


@pytest.fixture
def no_aws_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], None]:
    """Remove the machine's credentials, profile and region from the environment; returns a setter
    for the test's own.
    """
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    nowhere = tmp_path_factory.mktemp("aws")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere / "credentials"))
    return monkeypatch.setenv


class WaitlessClock:
    """A clock whose sleeps return at once and are remembered."""

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


SECRET = "s3cr3t-key-of-the-test"


def seeded(seed: int | str) -> Random:
    return Random(seed)  # noqa: S311  # the same in every run


def config_of(url: str, **rest: Any) -> AwsConfig:
    return AwsConfig(
        **(
            {
                "region": "eu-central-1",
                "endpoint_url": url,
                "access_key_id": "AK",
                "secret_access_key": SECRET,
                "wire_format": "json",
            }
            | rest
        )
    )


@pytest.fixture
def waitless_clock() -> WaitlessClock:
    return WaitlessClock()


@pytest.fixture
def stubbed_client(
    stub_kinesis: StubKinesis, waitless_clock: WaitlessClock, no_aws_environment: object
) -> Iterator[KinesisClient]:
    with closing(
        KinesisClient(
            config_of(stub_kinesis.url),
            StreamRef("flights"),
            clock=waitless_clock,
            random=seeded(1),
        )
    ) as client:
        yield client


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


def shard(number: int, **rest: Any) -> dict[str, Any]:
    return {
        "ShardId": f"shardId-{number:012}",
        "HashKeyRange": {
            "StartingHashKey": "0",
            "EndingHashKey": "340282366920938463463374607431768211455",
        },
        "SequenceNumberRange": {"StartingSequenceNumber": str(number)},
    } | rest
