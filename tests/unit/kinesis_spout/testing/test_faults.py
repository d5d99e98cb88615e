"""Each fault of a FakeKinesis: errors, listings, ends of shards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesis_spout.testing import (
    FakeKinesis,
    FakeKinesisProtocol,
    TransportFaultError,
    early_end,
    empty_at_tip,
    end_with_null_iterator,
    end_with_wrong_parents,
    gone,
    late_listing,
    timeout,
)
from tests.support.kinesis.fake_calls import SHARD, STREAM, iterator, new_fake

TARGET = "Kinesis_20131202."


def call(fake: FakeKinesis, operation: str, **members: Any) -> tuple[int, dict[str, Any]]:
    answer = FakeKinesisProtocol(fake).answer(
        TARGET + operation, json.dumps(members).encode(), authorization=None
    )
    return answer.status, json.loads(answer.body or b"{}")


@pytest.mark.parametrize("processed", [True, False])
def test_a_timeout_takes_its_time_and_gives_no_answer(processed: bool) -> None:  # noqa: FBT001  # pytest's way
    """The plan says whether the put is processed."""
    fake, clock = new_fake()
    fake.faults.add(timeout(30, processed=processed), operation="PutRecord")
    with pytest.raises(TransportFaultError):
        call(fake, "PutRecord", StreamName=STREAM, PartitionKey="key", Data="eA==")
    assert clock.monotonic_s() == 30
    assert len(fake.records(STREAM, SHARD)) == int(processed)


def test_a_listing_can_lack_shards() -> None:
    """The children of a split are missing from one listing, although they exist."""
    fake, _ = new_fake()
    fake.split(STREAM, SHARD)
    fake.faults.add(
        late_listing("shardId-000000000001", "shardId-000000000002"), operation="ListShards"
    )
    listings = [
        [shard["ShardId"] for shard in call(fake, "ListShards", StreamName=STREAM)[1]["Shards"]]
        for _ in range(2)
    ]
    assert listings == [[SHARD], [SHARD, "shardId-000000000001", "shardId-000000000002"]]


def test_an_end_can_have_a_null_iterator() -> None:
    """The member is present and null, beside records and children. A page that is not the end keeps
    its iterator.
    """
    fake, _ = new_fake()
    fake.put(STREAM, "key", b"x")
    start = iterator(fake)
    fake.faults.add(end_with_null_iterator(), operation="GetRecords", times=2)
    assert call(fake, "GetRecords", ShardIterator=start)[1]["NextShardIterator"]
    fake.split(STREAM, SHARD)
    end = call(fake, "GetRecords", ShardIterator=start)[1]
    assert end["NextShardIterator"] is None
    assert [record["Data"] for record in end["Records"]] == ["eA=="]
    assert len(end["ChildShards"]) == 2


def test_an_end_can_name_children_of_another_shard() -> None:
    """The children are the right ones, but their parents are not."""
    fake, _ = new_fake()
    fake.split(STREAM, SHARD)
    fake.faults.add(end_with_wrong_parents(), operation="GetRecords")
    children = call(fake, "GetRecords", ShardIterator=iterator(fake))[1]["ChildShards"]
    assert [child["ShardId"] for child in children] == [
        "shardId-000000000001",
        "shardId-000000000002",
    ]
    assert not any(SHARD in child["ParentShards"] for child in children)


def test_an_open_shard_can_seem_to_end() -> None:
    """No iterator and no children, although there are more records."""
    fake, _ = new_fake()
    fake.put(STREAM, "key", b"x")
    fake.faults.add(early_end(), operation="GetRecords")
    end = call(fake, "GetRecords", ShardIterator=iterator(fake))[1]
    assert end.keys() == {"Records", "MillisBehindLatest"}


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
def test_a_shard_can_seem_to_be_gone_once(operation: str) -> None:
    """The same request is answered the next time."""
    fake, _ = new_fake()
    fake.put(STREAM, "key", b"x")
    members = {
        "GetShardIterator": {
            "StreamName": STREAM,
            "ShardId": SHARD,
            "ShardIteratorType": "TRIM_HORIZON",
        },
        "GetRecords": {"ShardIterator": iterator(fake)},
    }[operation]
    fake.faults.add(gone(), operation=operation)
    status, body = call(fake, operation, **members)
    assert (status, body["__type"]) == (400, "ResourceNotFoundException")
    assert call(fake, operation, **members)[0] == 200


def test_a_page_can_claim_the_tip_while_records_follow() -> None:
    """Its iterator skips nothing: the records come with the next page."""
    fake, clock = new_fake()
    fake.put(STREAM, "key", b"x")
    clock.advance(5)
    fake.faults.add(empty_at_tip(), operation="GetRecords")
    page = call(fake, "GetRecords", ShardIterator=iterator(fake))[1]
    assert (page["Records"], page["MillisBehindLatest"]) == ([], 0)
    following = call(fake, "GetRecords", ShardIterator=page["NextShardIterator"])[1]
    assert [record["Data"] for record in following["Records"]] == ["eA=="]


def test_the_end_of_a_shard_can_seem_to_be_its_tip() -> None:
    """The page has an iterator and no children; the next one has the end."""
    fake, _ = new_fake()
    fake.split(STREAM, SHARD)
    fake.faults.add(empty_at_tip(), operation="GetRecords")
    page = call(fake, "GetRecords", ShardIterator=iterator(fake))[1]
    assert page.keys() == {"Records", "MillisBehindLatest", "NextShardIterator"}
    end = call(fake, "GetRecords", ShardIterator=page["NextShardIterator"])[1]
    assert len(end["ChildShards"]) == 2
