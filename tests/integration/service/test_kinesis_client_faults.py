"""The client against a stub of the service that fails on request, and answers in many pages."""

from __future__ import annotations

import gzip
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.config import StreamRef
from kinesis_spout.errors import (
    AccessDeniedError,
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
from kinesis_spout.service.client import KinesisClient
from state.position import Position
from state.sequence_number import SequenceNumber
from tests.support.kinesis.stub_kinesis import (
    DATE_MS,
    Answer,
    StubKinesis,
    WaitlessClock,
    config_of,
    error,
    ok,
    page,
    shard,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable


TRANSIENT = {
    "throttled": error("ProvisionedThroughputExceededException"),
    "limit": error("LimitExceededException"),
    "kms": error("KMSThrottlingException"),
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
    """Two failures, then the page: the caller sees the page, after growing waits with jitter."""
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
    with closing(KinesisClient(aws, StreamRef("flights"), clock=clock)) as client:
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
    client = KinesisClient(
        config_of(stub_kinesis.url),
        StreamRef("flights"),
        clock=waitless_clock,
        retry_for_s=retry_for_s,
    )
    with closing(client), pytest.raises(kind):
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
    "ExpiredIteratorException": (ExpiredIteratorError, "new iterator"),
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


def test_a_vanished_shard_is_not_a_missing_stream(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """Both have the code ResourceNotFound; the client asks for the stream to tell them apart."""
    stub_kinesis.answers("GetRecords", error("ResourceNotFoundException"))
    stub_kinesis.answers("DescribeStreamSummary", ok(StreamDescriptionSummary=summary()))
    with pytest.raises(ShardNotFoundError):
        stubbed_client.get_records("it", 1)
    stub_kinesis.answers("DescribeStreamSummary", error("ResourceNotFoundException"))
    with pytest.raises(StreamNotFoundError):
        stubbed_client.get_records("it", 1)


def test_page_tokens_that_always_expire_end_in_an_error(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """Not an endless loop."""
    again = [ok(Shards=[shard(0)], NextToken="a"), error("ExpiredNextTokenException")]
    stub_kinesis.answers("ListShards", *(again * 20))
    with pytest.raises(ServiceUnavailableError, match="page token"):
        stubbed_client.list_shards()


def test_parents_and_ends_are_returned(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """A merged shard has two parents; an emulator's odd ending number is accepted."""
    merged = shard(4, ParentShardId="p", AdjacentParentShardId="q")
    numbers = {"StartingSequenceNumber": "5", "EndingSequenceNumber": "9223372036854775807"}
    closed = shard(2, SequenceNumberRange=numbers)
    stub_kinesis.answers("ListShards", ok(Shards=[merged, closed]))
    first, second = stubbed_client.list_shards()
    assert (first.parents, first.is_closed) == (("p", "q"), False)
    assert (second.parents, second.is_closed) == ((), True)
    assert second.ending_sequence == SequenceNumber(2**63 - 1)


def test_a_stream_that_is_being_created_is_waited_for(
    stubbed_client: KinesisClient, stub_kinesis: StubKinesis
) -> None:
    """ResourceInUse passes."""
    stub_kinesis.answers("ListShards", error("ResourceInUseException"), ok(Shards=[shard(0)]))
    assert len(stubbed_client.list_shards()) == 1


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
