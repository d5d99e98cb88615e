"""What the planning of a batch read asks of the service."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.service.shard_info import ShardInfo
from kinesis_spout.testing import (
    FakeKinesis,
    FakeKinesisServer,
    ManualClock,
    alter,
    early_end,
)
from spark_job.batch_read.batch_reader import complete_listing, new_reader, pin_load
from state.sequence_number import SequenceNumber
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    from kinesis_spout.testing.service.answers import ListShardsAnswer, ShardAnswer


def test_children_that_are_listed_late_are_waited_for() -> None:
    whole = tuple(
        ShardInfo(
            shard_id=name,
            parents=(),
            hash_key_range=hash_keys,
            starting_sequence=SequenceNumber(1),
            ending_sequence=ending,
        )
        for name, hash_keys, ending in (
            ("parent", (0, 2**128 - 1), SequenceNumber(9)),
            ("low", (0, 2**127 - 1), None),
            ("high", (2**127, 2**128 - 1), None),
        )
    )
    listings = iter([whole[:1], whole[:2], whole, whole[:1]])
    client: Any = SimpleNamespace(list_shards=lambda: next(listings))
    assert complete_listing(client, ManualClock()) == whole


def stream_of(records: int, *, shards: int) -> FakeKinesis:
    """A stream with records for several pages of each shard, put a minute ago."""
    clock = ManualClock()
    fake = FakeKinesis(clock=clock)
    fake.create("orders", shards=shards)
    for number in range(records):
        fake.put("orders", f"key {number}", bytes(50_000))
    clock.advance(60)
    return fake


def rows_read(fake: FakeKinesis) -> int:
    """How many records a batch read of the stream gives."""
    with FakeKinesisServer(fake) as server:
        options = {
            "streamName": "orders",
            "endpointUrl": server.endpoint_url,
            "region": REGION,
            "awsAccessKeyId": ACCESS_KEY,
            "awsSecretKey": SECRET_KEY,
            "readsPerSecond": "1000",
            "readBytesPerSecond": "1GiB",
        }
        reader = new_reader(options, pin_load(options))
        return sum(
            rows.num_rows for partition in reader.partitions() for rows in reader.read(partition)
        )


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_end_that_is_named_too_early_loses_no_rows(*, is_closed: bool) -> None:
    """Neither of an open shard nor of a closed one that holds more records."""
    fake = stream_of(600, shards=2)
    if is_closed:
        fake.split("orders", fake.shards("orders")[0].shard_id)
    for skip in (0, 3):
        fake.faults.add(early_end(), operation="GetRecords", skip=skip, times=2)
    assert rows_read(fake) == 600


def test_a_number_below_the_start_of_a_closed_shard_is_not_its_end() -> None:
    """An emulator lists one. Records are above it."""
    fake = stream_of(600, shards=1)
    fake.split("orders", fake.shards("orders")[0].shard_id)
    fake.faults.add(alter(with_numbers_below_the_start), operation="ListShards", times=None)
    assert rows_read(fake) == 600


def with_numbers_below_the_start(answer: ListShardsAnswer) -> ListShardsAnswer:
    def altered(shard: ShardAnswer) -> ShardAnswer:
        numbers = shard.sequence_number_range
        if numbers.ending_sequence_number is None:
            return shard
        below = str(int(numbers.starting_sequence_number) - 1)
        numbers = msgspec.structs.replace(numbers, ending_sequence_number=below)
        return msgspec.structs.replace(shard, sequence_number_range=numbers)

    return msgspec.structs.replace(answer, shards=list(map(altered, answer.shards)))
