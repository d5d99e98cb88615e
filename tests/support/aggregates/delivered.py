"""What the readers of a stream get with `unpack`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.service.shard_info import HashRange
from tests.support.aggregates.wire import page

if TYPE_CHECKING:
    from kinesis_spout.testing import FakeKinesis


def delivered(fake: FakeKinesis, stream: str) -> list[tuple[str, bytes]]:
    """Key and data of each user record that the shard it is in owns, and of each plain record; in
    the order of each shard.
    """
    found = []
    for shard in fake.shards(stream):
        hash_range = HashRange(shard.hash_keys.start, shard.hash_keys.end)
        records = fake.records(stream, shard.shard_id)
        pages = page([one.data for one in records], keys=[one.partition_key for one in records])
        found += [
            (row["partitionKey"], row["data"])
            for batch in Unpacker(lambda owned=hash_range: owned).unpack(pages)  # type: ignore[misc]  # bound now
            for row in batch.to_pylist()
        ]
    return found
