"""The service's contract in CBOR, tested against FakeKinesis, the emulator and LocalStack alike.

The emulator writes payloads in base64 and times without their tag in CBOR too. The SDKs of AWS, and
we, read these as well.
"""

from __future__ import annotations

import logging
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import cbor2
import pytest

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.service.client import KinesisClient
from tests.support.kinesis.calls import iterator, put, shards_of, split
from tests.support.kinesis.services import ACCESS_KEY, REGION, Service, fields_of

TYPE = "application/x-amz-cbor-1.1"
SIGNED = (
    f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/{REGION}/kinesis/aws4_request, "
    "SignedHeaders=host, Signature=00"
)


@pytest.fixture(
    params=[
        "fake",
        pytest.param("emulator", marks=pytest.mark.emulator),
        pytest.param("localstack", marks=[pytest.mark.emulator, pytest.mark.localstack]),
    ]
)
def kinesis_service(request: pytest.FixtureRequest) -> str:
    if request.param == "fake":
        endpoint: str = request.getfixturevalue("fake_kinesis").endpoint_url
    else:
        endpoint = request.getfixturevalue(f"{request.param}_endpoint")
    return endpoint


def reader(endpoint_url: str, stream: str, wire_format: str) -> KinesisClient:
    aws = AwsConfig(**fields_of(endpoint_url), wire_format=wire_format)
    return KinesisClient(aws, StreamRef(stream))


def call(endpoint_url: str, operation: str, body: bytes) -> tuple[int, str, Any]:
    """Status, content type and the answer, decoded."""
    at = urlsplit(endpoint_url)
    headers = {
        "Content-Type": TYPE,
        "X-Amz-Target": f"Kinesis_20131202.{operation}",
        "X-Amz-Date": "20260101T000000Z",
        "Authorization": SIGNED,
    }
    with closing(HTTPConnection(str(at.hostname), at.port, timeout=20)) as connection:
        connection.request("POST", "/", body, headers)
        answer = connection.getresponse()
        told = answer.read()
    kind = answer.headers.get("Content-Type", "")
    return answer.status, kind, cbor2.loads(told, semantic_decoders={1: lambda time, _: time})


def test_a_page_and_a_shards_end_are_the_same_in_cbor_as_in_json(
    kinesis_service: str, one_shard: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Records with any bytes and any key, times to the millisecond, and the children."""
    first = put(one_shard, bytes(range(256)), "\u00e4\u00f6\u00fc \U0001f600")
    put(one_shard, b"")
    start: str | None = iterator(one_shard, first["ShardId"])
    pages = []
    with closing(reader(kinesis_service, one_shard.name, "json")) as client:
        pages.append(client.get_records(str(start), 10))
    split(one_shard, shards_of(one_shard)[0])
    with (
        caplog.at_level(logging.WARNING),
        closing(reader(kinesis_service, one_shard.name, "cbor")) as client,
    ):
        while start is not None:
            pages.append(client.get_records(start, 10))
            start = pages[-1].next_iterator
    json, cbor, end = pages[0], pages[1], pages[-1]
    assert cbor.records.equals(json.records)
    assert (cbor.first, cbor.last, cbor.count) == (json.first, json.last, 2)
    assert sorted(child.parents for child in end.child_shards) == [(first["ShardId"],)] * 2
    assert [text for text in caplog.messages if "CBOR" in text] == []


def test_all_operations_speak_cbor(kinesis_service: str, one_shard: Service) -> None:
    """A record that is put in CBOR; a time, with the tag and in milliseconds, in a request and in
    an answer.
    """
    put_in_cbor = {"StreamName": one_shard.name, "PartitionKey": "k", "Data": b"\x00\xff"}
    status, kind, told = call(kinesis_service, "PutRecord", cbor2.dumps(put_in_cbor))
    assert (status, kind) == (200, TYPE)
    asked = {
        "StreamName": one_shard.name,
        "ShardId": told["ShardId"],
        "ShardIteratorType": "AT_TIMESTAMP",
        "Timestamp": cbor2.CBORTag(1, 1_500_000_000_000),
    }
    status, _, found = call(kinesis_service, "GetShardIterator", cbor2.dumps(asked))
    assert status == 200
    asked = {"ShardIterator": found["ShardIterator"], "Limit": 10}
    _, _, page = call(kinesis_service, "GetRecords", cbor2.dumps(asked))
    (record,) = page["Records"]
    assert record["SequenceNumber"] == told["SequenceNumber"]
    assert record["Data"] in (b"\x00\xff", "AP8=")
    assert isinstance(record["ApproximateArrivalTimestamp"], int)
    assert 1e12 < record["ApproximateArrivalTimestamp"] < 1e13
    named = cbor2.dumps({"StreamName": one_shard.name})
    _, _, told = call(kinesis_service, "DescribeStreamSummary", named)
    assert told["StreamDescriptionSummary"]["StreamCreationTimestamp"] > 1e12


@pytest.mark.parametrize(
    ("operation", "body", "code"),
    [
        (
            "DescribeStreamSummary",
            cbor2.dumps({"StreamName": "none"}),
            "ResourceNotFoundException",
        ),
        ("GetRecords", b"\xff\xff", "SerializationException"),
    ],
)
def test_errors_are_told_in_cbor(
    kinesis_service: str, operation: str, body: bytes, code: str, request: pytest.FixtureRequest
) -> None:
    """The code and the message have the names of the JSON protocol."""
    if "localstack" in request.node.name and body == b"\xff\xff":
        code = "InternalError"  # its own parser comes before the emulator's
    status, kind, told = call(kinesis_service, operation, body)
    assert (status // 100 in (4, 5), kind) == (True, TYPE)
    assert told["__type"].rpartition("#")[2] == code
    assert isinstance(told["message"], str)
