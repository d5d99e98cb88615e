"""What the planning of a batch read asks of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import ShardInfo
from kinesis_spout.testing import ManualClock
from spark_job.batch_read.batch_reader import complete_listing, new_reader
from spark_job.batch_read.shard_ranges import LoadPin
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

PIN = LoadPin.at(1_800_000_000_000, 0)
MIDDLE, LAST = 2**127, 2**128 - 1


def shard(name: str, low: int, high: int, *, is_closed: bool = False) -> ShardInfo:
    return ShardInfo(
        shard_id=name,
        parents=(),
        hash_key_range=(low, high),
        starting_sequence=SequenceNumber(1),
        ending_sequence=SequenceNumber(9) if is_closed else None,
    )


PARENT = shard("parent", 0, LAST, is_closed=True)
CHILDREN = (shard("low", 0, MIDDLE - 1), shard("high", MIDDLE, LAST))


class ListingClient(KinesisClient):
    """Lists these, one after the other, and then the last one."""

    def __init__(self, *listings: Sequence[ShardInfo]) -> None:
        super().__init__(AwsConfig(), StreamRef("orders"))
        self.listings = [tuple(one) for one in listings]

    def list_shards(self) -> tuple[ShardInfo, ...]:
        return self.listings.pop(0) if len(self.listings) > 1 else self.listings[0]


def test_children_that_are_listed_late_are_waited_for() -> None:
    whole = (PARENT, *CHILDREN)
    client = ListingClient([PARENT], [PARENT, CHILDREN[0]], whole, [PARENT])
    assert complete_listing(client, ManualClock()) == whole


def test_a_listing_that_stays_incomplete_is_read_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listed = (PARENT, CHILDREN[0])
    assert complete_listing(ListingClient(listed), ManualClock()) == listed
    assert f"no open shard for the hash keys {MIDDLE} to {LAST}" in caplog.text


def test_only_a_reader_that_was_asked_to_takes_filters() -> None:
    """Spark refuses one that does, while its setting is off."""
    plain, filtering = (
        new_reader({"streamName": "orders", "pushDownFilters": text}, PIN)
        for text in ("false", "true")
    )
    takes = [type(one).pushFilters.__qualname__.split(".")[0] for one in (plain, filtering)]
    assert takes == ["DataSourceReader", "FilteringBatchReader"]


def test_a_partition_that_spark_makes_where_there_is_none_has_no_rows() -> None:
    assert list(new_reader({"streamName": "orders"}, PIN).read(InputPartition(None))) == []
