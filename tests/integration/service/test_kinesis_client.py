"""The client against services that behave."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import StreamRef
from kinesis_spout.errors import ShardNotFoundError, StreamNotFoundError
from kinesis_spout.service.client import KinesisClient
from state.position import TRIM_HORIZON, Position
from tests.support.kinesis.services import create_stream, kinesis_client, serve
from tests.support.kinesis.stub_kinesis import config_of

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def test_what_was_put_is_read_in_order(reader: KinesisClient) -> None:
    """Data, keys and order, from the horizon, with two shards listed."""
    rows = read_all(reader)
    assert [row["data"] for row in rows] == [b"%d" % number for number in range(10)]
    assert {row["partitionKey"] for row in rows} == {"ünï-☃"}
    assert len(reader.list_shards()) == 2
    assert not any(listed.is_closed for listed in reader.list_shards())


def test_positions_at_and_after_a_record_are_exact(reader: KinesisClient) -> None:
    """AT includes the record, AFTER does not."""
    (listed,) = [
        listed
        for listed in reader.list_shards()
        if reader.get_records(reader.shard_iterator(listed.shard_id, TRIM_HORIZON), 100).count
    ]
    third = reader.get_records(reader.shard_iterator(listed.shard_id, TRIM_HORIZON), 3).last
    assert third is not None
    at = reader.get_records(reader.shard_iterator(listed.shard_id, Position.at(third)), 100)
    after = reader.get_records(reader.shard_iterator(listed.shard_id, Position.after(third)), 100)
    assert (at.count, at.first) == (8, third)
    assert after.count == 7


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
