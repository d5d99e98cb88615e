"""The stream that a drill makes on a Kinesis that is there already, and removes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.credentials import REGION, aws_of
from kinesis_spout.drills.world.kinesis import FIRST_SHARDS, OwnStream
from kinesis_spout.drills.world.remote_stream import RemoteStream
from kinesis_spout.testing import (
    FakeKinesis,
    FakeKinesisServer,
    FakeKinesisSettings,
    ServiceError,
    replace,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.drills.world.kinesis import DrillStream

NAME = "trial-drill-0a1b"


@pytest.fixture
def fake() -> FakeKinesis:
    """Streams and reshards take some time, as in the service."""
    return FakeKinesis(settings=FakeKinesisSettings(create_ms=300, reshard_ms=300, region=REGION))


@pytest.fixture
def endpoint(fake: FakeKinesis) -> Iterator[str]:
    with FakeKinesisServer(fake) as server:
        yield server.endpoint_url


def remote(endpoint: str) -> RemoteStream:
    aws = aws_of(region=REGION, endpoint=endpoint, is_local=True)
    return RemoteStream(NAME, aws, is_local=True)


@pytest.fixture(params=["our own", "another"])
def stream(request: pytest.FixtureRequest, endpoint: str) -> Iterator[DrillStream]:
    """Both kinds, which do the same."""
    made: DrillStream = OwnStream(NAME) if request.param == "our own" else remote(endpoint)
    with made:
        yield made


def test_a_put_says_where_the_record_is(stream: DrillStream) -> None:
    records = [(f"key-{number}", b"data") for number in range(20)]
    placed = stream.put(records)
    open_ids = {one.shard_id for one in stream.shards()}
    assert len(placed) == len(set(placed)) == 20
    assert {shard_id for shard_id, _ in placed} <= open_ids
    again = stream.put(records)
    assert [shard_id for shard_id, _ in again] == [shard_id for shard_id, _ in placed]
    assert all(late > early for (_, early), (_, late) in zip(placed, again, strict=True))


def test_shards_are_split_merged_and_counted_when_the_call_returns(
    stream: DrillStream,
) -> None:
    first = stream.shards()
    assert len(first) == FIRST_SHARDS
    stream.split(first[0].shard_id)
    stream.merge(first[1].shard_id, first[2].shard_id)
    after = {one.shard_id: one for one in stream.shards()}
    assert not after[first[0].shard_id].is_open
    children = [one for one in after.values() if one.parents]
    assert sorted(len(one.parents) for one in children) == [1, 1, 2]
    assert (
        sum(one.hash_end - one.hash_start + 1 for one in after.values() if one.is_open) == 1 << 128
    )
    stream.update_shard_count(8)
    assert sum(one.is_open for one in stream.shards()) == 8


def test_the_stream_is_removed_also_after_an_error(fake: FakeKinesis, endpoint: str) -> None:
    def interrupted() -> None:
        with remote(endpoint):
            assert fake.shards(NAME)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ServiceError):
        fake.shards(NAME)


def test_a_record_that_the_service_refuses_is_put_again(fake: FakeKinesis, endpoint: str) -> None:
    """A shard's limit refuses records of a request, and takes others."""
    refused = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate"}
    with remote(endpoint) as stream:
        answer = {"FailedRecordCount": 2, "Records": [refused, refused]}
        fake.faults.add(replace(lambda _request: answer), operation="PutRecords")
        placed = stream.put([("key-1", b"a"), ("key-2", b"b")])
        assert len(fake.faults.struck) == 1
        for shard_id, sequence in placed:
            assert sequence in {int(one.sequence) for one in fake.records(NAME, shard_id)}
