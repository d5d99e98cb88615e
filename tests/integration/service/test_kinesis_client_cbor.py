"""GetRecords in CBOR: what is sent, errors, and endpoints that do not speak it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import (
    CredentialsError,
    ExpiredIteratorError,
    MalformedResponseError,
    ServiceUnavailableError,
    ThrottledError,
)
from kinesis_spout.programs.installation import how_to_install
from kinesis_spout.service.client import KinesisClient
from tests.architecture.source_tree import ROOT
from tests.support.kinesis.stub_kinesis import (
    DATE,
    Answer,
    StubKinesis,
    WaitlessClock,
    config_of,
    error,
    page,
    seeded,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CBOR = {"Date": DATE, "Content-Type": "application/x-amz-cbor-1.1"}
HTML = Answer(500, b"<html>oops</html>", {"Content-Type": "text/html; charset=utf-8"})


def cbor_page(*data: bytes) -> Answer:
    records = [
        {"SequenceNumber": str(at + 1), "Data": one, "PartitionKey": "k"}
        for at, one in enumerate(data)
    ]
    return Answer(body=cbor2.dumps({"Records": records, "NextShardIterator": "n"}), headers=CBOR)


def cbor_error(code: str, status: int = 400) -> Answer:
    body = cbor2.dumps({"__type": code, "message": "as the test says"})
    return Answer(status, body, CBOR)


@pytest.fixture
def client(
    stub_kinesis: StubKinesis, waitless_clock: WaitlessClock, no_aws_environment: object
) -> Iterator[KinesisClient]:
    with closing(client_of(stub_kinesis, waitless_clock, "cbor")) as made:
        yield made


@pytest.fixture
def free_client(
    stub_kinesis: StubKinesis, waitless_clock: WaitlessClock, no_aws_environment: object
) -> Iterator[KinesisClient]:
    """Its user left the encoding to us."""
    with closing(client_of(stub_kinesis, waitless_clock, AwsConfig().wire_format)) as made:
        yield made


def client_of(stub: StubKinesis, clock: WaitlessClock, wire_format: str) -> KinesisClient:
    return KinesisClient(
        config_of(stub.url, wire_format=wire_format),
        StreamRef("flights"),
        clock=clock,
        random=seeded(1),
    )


def kinds(stub: StubKinesis) -> list[str]:
    """How each GetRecords was sent."""
    return [
        request.headers["Content-Type"].removeprefix("application/x-amz-")
        for request in stub.asked("GetRecords")
    ]


def data(client: KinesisClient) -> list[Any]:
    records = client.get_records("it", 5).records
    values: list[Any] = records.column("data").to_pylist()
    return values


def test_a_page_is_asked_for_and_read_in_cbor(
    client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """The arguments are those of JSON; the request is signed over the body that is sent."""
    stub_kinesis.answers("GetRecords", cbor_page(b"a", b"\xff"))
    assert data(client) == [b"a", b"\xff"]
    (request,) = stub_kinesis.asked("GetRecords")
    assert request.arguments == {"ShardIterator": "it", "Limit": 5}
    assert kinds(stub_kinesis) == ["cbor-1.1"]
    assert "content-type" in request.headers["Authorization"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (cbor_error("ExpiredIteratorException"), ExpiredIteratorError),
        (cbor_error("UnrecognizedClientException"), CredentialsError),
        (cbor_error("ProvisionedThroughputExceededException"), ThrottledError),
        (cbor_error("InternalFailure", 500), ServiceUnavailableError),
        (Answer(500, b"\xff", CBOR), ServiceUnavailableError),
    ],
)
def test_errors_in_cbor_are_those_of_json(
    client: KinesisClient, stub_kinesis: StubKinesis, fault: Answer, kind: type[Exception]
) -> None:
    stub_kinesis.answers("GetRecords", fault)
    with pytest.raises(kind):
        client.get_records("it", 5)
    assert set(kinds(stub_kinesis)) == {"cbor-1.1"}


@pytest.mark.parametrize("answer", [HTML, page(b"a"), error("SerializationException")])
def test_an_endpoint_without_cbor_is_read_in_json_and_that_is_said_once(
    client: KinesisClient,
    stub_kinesis: StubKinesis,
    answer: Answer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It answers in HTML, in JSON, or refuses the body. The next pages are asked for in JSON."""
    stub_kinesis.answers("GetRecords", answer, page(b"a"))
    with caplog.at_level(logging.WARNING):
        assert [data(client) for _ in range(3)] == [[b"a"]] * 3
    assert kinds(stub_kinesis) == ["cbor-1.1"] + ["json-1.1"] * 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{client.where} does not speak CBOR (status {answer.status}, ")
    assert said.endswith("; reading JSON instead")


def test_an_error_in_json_as_well_decides_nothing(
    client: KinesisClient, stub_kinesis: StubKinesis, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy that is down says nothing of the service behind it."""
    down = replace(HTML, status=503)
    stub_kinesis.answers("GetRecords", down, down, cbor_page(b"a"))
    assert data(client) == [b"a"]
    assert kinds(stub_kinesis) == ["cbor-1.1", "json-1.1", "cbor-1.1"]
    assert caplog.records == []


def test_an_endpoint_that_has_spoken_cbor_is_not_asked_in_json(
    client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    stub_kinesis.answers("GetRecords", cbor_page(b"a"), HTML, cbor_page(b"b"))
    assert [data(client) for _ in range(2)] == [[b"a"], [b"b"]]
    assert kinds(stub_kinesis) == ["cbor-1.1"] * 3


BROKEN = Answer(body=cbor2.dumps({"Records": [{"Data": b"a"}]}), headers=CBOR)


@pytest.mark.parametrize(
    ("answer", "level", "said"),
    [
        (HTML, logging.INFO, "does not speak CBOR"),
        (BROKEN, logging.WARNING, "cannot be read as CBOR"),
    ],
)
def test_by_default_cbor_is_asked_for_and_where_it_cannot_be_read_all_pages_are_asked_for_in_json(
    free_client: KinesisClient,
    stub_kinesis: StubKinesis,
    caplog: pytest.LogCaptureFixture,
    *,
    answer: Answer,
    level: int,
    said: str,
) -> None:
    """An endpoint without CBOR is no reason for a warning, a page that cannot be read is."""
    stub_kinesis.answers("GetRecords", answer, page(b"a"))
    with caplog.at_level(logging.INFO, "kinesis_spout"):
        assert [data(free_client) for _ in range(2)] == [[b"a"]] * 2
    assert kinds(stub_kinesis) == ["cbor-1.1", "json-1.1", "json-1.1"]
    (found,) = [one for one in caplog.records if said in one.getMessage()]
    assert found.levelno == level


def test_a_page_that_cannot_be_read_stays_an_error_where_cbor_was_asked_for(
    client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    stub_kinesis.answers("GetRecords", Answer(body=b"\xff", headers=CBOR))
    with pytest.raises(MalformedResponseError):
        data(client)
    assert set(kinds(stub_kinesis)) == {"cbor-1.1"}


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
    rule = f"'cbor' needs {needed}; {how_to_install('cbor')}, or read json"
    assert refused == f"option wireFormat: {rule}", "as readers and commands spell it"
    assert of_spout == f"option wire_format: {rule}"
    assert (count, kinds(stub_kinesis)) == ("1", ["json-1.1"])
    assert how_to_install("cbor") in done.stderr
