"""Puts on a service that refuses some records, or all of them, or is absent."""

from __future__ import annotations

import base64
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import StreamRef
from kinesis_spout.errors import (
    AccessDeniedError,
    CredentialsError,
    MalformedResponseError,
    RequestRefusedError,
    ServiceUnavailableError,
    StreamNotFoundError,
    ThrottledError,
)
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import OutgoingColumns, OutgoingRecord, RecordPutter
from tests.support.kinesis.stub_kinesis import (
    Answer,
    StubKinesis,
    WaitlessClock,
    config_of,
    error,
    ok,
    seeded,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = [OutgoingRecord(f"key {number}", b"record %d" % number) for number in range(3)]
TAKEN = {"SequenceNumber": "1", "ShardId": "shardId-000000000000"}
THROTTLED = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"}
FAILED = {"ErrorCode": "InternalFailure", "ErrorMessage": "Internal service failure"}


@pytest.fixture
def putter(
    stub_kinesis: StubKinesis, waitless_clock: WaitlessClock, no_aws_environment: object
) -> Iterator[RecordPutter]:
    connection = KinesisClient(
        config_of(stub_kinesis.url), StreamRef("flights"), clock=waitless_clock, random=seeded(1)
    )
    with closing(connection):
        yield RecordPutter(connection)


def answer(*entries: dict[str, str]) -> Answer:
    return ok(
        FailedRecordCount=sum("ErrorCode" in entry for entry in entries), Records=list(entries)
    )


def put(stub: StubKinesis) -> list[list[tuple[str, bytes]]]:
    """The records of each request."""
    requests: list[list[dict[str, Any]]] = [
        request.arguments["Records"] for request in stub.asked("PutRecords")
    ]
    return [
        [(one["PartitionKey"], base64.b64decode(one["Data"])) for one in records]
        for records in requests
    ]


def test_only_records_that_the_stream_refuses_are_put_again(
    putter: RecordPutter, stub_kinesis: StubKinesis, waitless_clock: WaitlessClock
) -> None:
    stub_kinesis.answers(
        "PutRecords", answer(TAKEN, THROTTLED, FAILED), answer(THROTTLED, TAKEN), answer(TAKEN)
    )
    assert putter.put(RECORDS) == 3
    keys = [[key for key, _ in records] for records in put(stub_kinesis)]
    assert keys == [["key 0", "key 1", "key 2"], ["key 1", "key 2"], ["key 1"]]
    assert put(stub_kinesis)[0][2] == ("key 2", b"record 2")
    assert len(waitless_clock.sleeps) == 2


@pytest.mark.parametrize(
    "fault", [answer(THROTTLED, FAILED, THROTTLED), error("ProvisionedThroughputExceededException")]
)
def test_a_stream_that_takes_nothing_is_tried_for_a_minute_and_then_named(
    putter: RecordPutter, stub_kinesis: StubKinesis, fault: Answer, waitless_clock: WaitlessClock
) -> None:
    stub_kinesis.answers("PutRecords", fault)
    with pytest.raises(ThrottledError, match=r"stream flights .*; add shards to the stream"):
        putter.put(RECORDS)
    assert len(put(stub_kinesis)) == len(waitless_clock.sleeps) + 1
    assert 50 <= waitless_clock.seconds <= 60  # no wait is longer than 10 s


def test_a_stream_that_takes_little_at_a_time_gets_all_in_the_end(
    putter: RecordPutter, stub_kinesis: StubKinesis
) -> None:
    """The limits apply to a stream that takes nothing."""
    answers = [answer(TAKEN, *[THROTTLED] * (19 - n)) for n in range(20)]
    stub_kinesis.answers("PutRecords", *answers)
    assert putter.put([RECORDS[0]] * 20) == 20
    assert len(put(stub_kinesis)) == 20


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (error("ResourceNotFoundException"), StreamNotFoundError, "check the stream's name"),
        (error("AccessDeniedException"), AccessDeniedError, "allow kinesis:PutRecords"),
        (error("KMSAccessDeniedException"), AccessDeniedError, "kms:GenerateDataKey"),
        (error("ValidationException"), RequestRefusedError, "maximum record size"),
        (ok(), MalformedResponseError, "incomplete"),
        (Answer(503, b"<html>"), ServiceUnavailableError, "try again later"),
        (answer(TAKEN), MalformedResponseError, "incomplete"),
        (Answer(body=b"<html>"), MalformedResponseError, "incomplete"),
        (Answer(drop=True), ServiceUnavailableError, "did not respond"),
        (Answer(body=b"{}", cut_bytes=1), ServiceUnavailableError, "did not respond"),
        (
            error("InvalidSignatureException", "a secret"),
            CredentialsError,
            "check the AWS access key",
        ),
    ],
)
def test_a_final_fault_says_what_to_do_about_putting(
    putter: RecordPutter, stub_kinesis: StubKinesis, fault: Answer, kind: type[Exception], says: str
) -> None:
    """The same codes mean something else for reading."""
    stub_kinesis.answers("PutRecords", fault)
    with pytest.raises(kind, match=says) as caught:
        putter.put(RECORDS)
    assert "a secret" not in str(caught.value)


def test_columns_are_put_as_records_are_and_only_refusals_are_told(
    putter: RecordPutter, stub_kinesis: StubKinesis
) -> None:
    columns = OutgoingColumns(["a", '"\n', "\u20ac"], [b"1", b"", b"\xff"], ["0", None, "1"])
    stub_kinesis.answers(
        "PutRecords", answer(TAKEN, THROTTLED, FAILED), answer(TAKEN, TAKEN, TAKEN)
    )
    assert putter.put_columns(columns) == {
        1: "ProvisionedThroughputExceededException",
        2: "InternalFailure",
    }
    assert putter.put_columns(columns) == {}
    putter.put_once(list(columns.records()))
    first, *others = [request.arguments for request in stub_kinesis.asked("PutRecords")]
    assert others == [first, first]
    assert put(stub_kinesis)[0] == [("a", b"1"), ('"\n', b""), ("\u20ac", b"\xff")]
    assert [one.get("ExplicitHashKey") for one in first["Records"]] == ["0", None, "1"]
