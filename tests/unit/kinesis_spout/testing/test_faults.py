"""Each fault of a FakeKinesis: errors, listings, ends of shards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesis_spout.testing import (
    FakeKinesis,
    FakeKinesisProtocol,
    Fault,
    TransportFaultError,
    duplicate_listing,
    empty_at_tip,
    end_with_null_iterator,
    end_with_wrong_parents,
    end_without_children,
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


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (late_listing("shardId-000000000001", "shardId-000000000002"), "0"),
        (duplicate_listing(), "001122"),
    ],
)
def test_a_listing_can_lack_shards_or_name_them_twice(fault: Fault, seen: str) -> None:
    """Once: they exist."""
    fake, _ = new_fake()
    fake.split(STREAM, SHARD)
    fake.faults.add(fault, operation="ListShards")
    listings = [
        sorted(
            shard["ShardId"][-1]
            for shard in call(fake, "ListShards", StreamName=STREAM)[1]["Shards"]
        )
        for _ in range(2)
    ]
    assert listings == [[*seen], [*"012"]]


def test_an_end_can_have_no_iterator_no_children_or_those_of_another_shard() -> None:
    """Beside its records. A page that is not the end keeps its iterator."""
    fake, _ = new_fake()
    fake.put(STREAM, "key", b"x")
    start = iterator(fake)
    faults = (end_with_null_iterator(), end_without_children(), end_with_wrong_parents())
    fake.faults.add(faults[0], operation="GetRecords")
    assert call(fake, "GetRecords", ShardIterator=start)[1]["NextShardIterator"]
    fake.split(STREAM, SHARD)
    ends = []
    for fault in faults:
        fake.faults.add(fault, operation="GetRecords")
        ends.append(call(fake, "GetRecords", ShardIterator=start)[1])
    null, childless, wrong = ends
    assert [record["Data"] for end in ends for record in end["Records"]] == ["eA=="] * 3
    assert (null["NextShardIterator"], len(null["ChildShards"])) == (None, 2)
    assert childless.keys() == {"Records", "MillisBehindLatest"}
    assert [child["ShardId"][-1] for child in wrong["ChildShards"]] == ["1", "2"]
    assert not any(SHARD in child["ParentShards"] for child in wrong["ChildShards"])


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
