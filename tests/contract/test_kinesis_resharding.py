"""The service's contract, tested against FakeKinesis and LocalStack alike: split, merge, scaling
and the listing of shards.

The service may return a shard's end with its last records or after them. These tests accept either.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.support.kinesis.calls import (
    hash_keys,
    is_open,
    iterator,
    merge,
    put,
    read,
    read_shard,
    read_to_end,
    shards_of,
    split,
    summary_of,
)
from tests.support.kinesis.services import Service, create_stream, wait_until_active

HASH_KEYS = 2**128
SHARED = (
    *("StreamName", "StreamARN", "StreamStatus"),
    *("RetentionPeriodHours", "StreamCreationTimestamp"),
)


class TestResharding:
    def test_a_split_gives_two_children_that_share_the_parents_hash_keys(
        self, one_shard: Service
    ) -> None:
        """Both children name the parent, halve its range, and their numbers begin above it. A shard
        with an `EndingSequenceNumber` is closed; the number means nothing: the emulator writes
        9223372036854775807.
        """
        (parent,) = shards_of(one_shard)
        last = put(one_shard, b"x")["SequenceNumber"]
        split(one_shard, parent)
        children = sorted(filter(is_open, shards_of(one_shard)), key=hash_keys)
        assert [child["ParentShardId"] for child in children] == [parent["ShardId"]] * 2
        assert not any("AdjacentParentShardId" in child for child in children)
        assert [hash_keys(child) for child in children] == [
            (0, HASH_KEYS // 2 - 1),
            (HASH_KEYS // 2, HASH_KEYS - 1),
        ]
        assert all(
            int(child["SequenceNumberRange"]["StartingSequenceNumber"]) > int(last)
            for child in children
        )

    def test_records_stay_where_they_were_put(self, one_shard: Service) -> None:
        """Records put before the split are in the parent, later ones in the children, none in
        both.
        """
        (parent,) = shards_of(one_shard)
        for at in range(10):
            put(one_shard, b"before", f"key {at}")
        split(one_shard, parent)
        places = {put(one_shard, b"after", f"key {at}")["ShardId"] for at in range(10)}
        assert parent["ShardId"] not in places
        assert read_to_end(one_shard, parent["ShardId"]).data == [b"before"] * 10
        assert [
            data for shard_id in sorted(places) for data in read_shard(one_shard, shard_id).data
        ] == [b"after"] * 10

    def test_an_iterator_from_before_the_split_reads_to_the_end(self, one_shard: Service) -> None:
        """A reader that was at the tip when the shard was closed gets the end: no next iterator
        (missing or null), and the children with parents and hash keys.
        """
        (parent,) = shards_of(one_shard)
        put(one_shard, b"x")
        tip = read_shard(one_shard, parent["ShardId"]).last_page["NextShardIterator"]
        split(one_shard, parent)
        end = read(one_shard, tip).last_page
        assert end.get("NextShardIterator") is None
        assert {
            (child["ShardId"], *child["ParentShards"], hash_keys(child))
            for child in end["ChildShards"]
        } == {
            (shard["ShardId"], parent["ShardId"], hash_keys(shard))
            for shard in shards_of(one_shard)
            if is_open(shard)
        }

    def test_a_merge_gives_one_child_of_both_parents(self, two_shards: Service) -> None:
        """The child covers both ranges and names one parent as adjacent. Both parents end with this
        child.
        """
        lower, upper = sorted(shards_of(two_shards), key=hash_keys)
        merge(two_shards, lower, upper)
        (child,) = (shard for shard in shards_of(two_shards) if is_open(shard))
        assert {child["ParentShardId"], child["AdjacentParentShardId"]} == {
            lower["ShardId"],
            upper["ShardId"],
        }
        assert hash_keys(child) == (0, HASH_KEYS - 1)
        for parent in (lower, upper):
            (named,) = read_to_end(two_shards, parent["ShardId"]).last_page["ChildShards"]
            assert named["ShardId"] == child["ShardId"]
            assert set(named["ParentShards"]) == {lower["ShardId"], upper["ShardId"]}

    @pytest.mark.parametrize("target", [4, 1, 3])
    def test_update_shard_count_leaves_that_many_open_shards_that_cover_all(
        self, two_shards: Service, target: int
    ) -> None:
        """The open shards have the requested number and no gap. There may be many short-lived
        shards between the first and the last ones.
        """
        two_shards.client.update_shard_count(
            StreamName=two_shards.name, TargetShardCount=target, ScalingType="UNIFORM_SCALING"
        )
        wait_until_active(two_shards.client, two_shards.name)
        ranges = sorted(hash_keys(shard) for shard in shards_of(two_shards) if is_open(shard))
        assert len(ranges) == target
        assert ranges[0][0] == 0
        assert ranges[-1][1] == HASH_KEYS - 1
        assert all(following[0] == previous[1] + 1 for previous, following in pairwise(ranges))


class TestListings:
    def test_pages_hold_all_shards_once(self, service: Service) -> None:
        """`MaxResults` limits the page. `NextToken` alone continues. The last page has none."""
        create_stream(service.client, service.name, shards=5)
        page = service.client.list_shards(StreamName=service.name, MaxResults=2)
        pages = [page["Shards"]]
        while token := page.get("NextToken"):
            page = service.client.list_shards(NextToken=token, MaxResults=2)
            pages.append(page["Shards"])
        assert [len(page) for page in pages] == [2, 2, 1]
        assert [shard["ShardId"] for page in pages for shard in page] == [
            f"shardId-{index:012d}" for index in range(5)
        ]

    @pytest.mark.parametrize(
        ("kind", "shown"),
        [
            ("AFTER_SHARD_ID", "12"),
            ("AT_LATEST", "12"),
            ("FROM_TRIM_HORIZON", "012"),
            ("FROM_TIMESTAMP", "012"),
        ],
    )
    def test_filters_choose_by_id_and_by_when_a_shard_was_open(
        self, one_shard: Service, kind: str, shown: str
    ) -> None:
        """Shards after an id, and shards that were open at or after a time. (In the emulator,
        AT_TRIM_HORIZON and AT_TIMESTAMP list all shards.)
        """
        members: dict[str, dict[str, Any]] = {
            "AFTER_SHARD_ID": {"ShardId": "shardId-000000000000"},
            "FROM_TIMESTAMP": {"Timestamp": datetime.now(UTC)},
        }
        split(one_shard, shards_of(one_shard)[0])
        listed = shards_of(one_shard, ShardFilter={"Type": kind, **members.get(kind, {})})
        assert [shard["ShardId"][-1] for shard in listed] == list(shown)

    def test_descriptions_name_the_stream_and_count_its_open_shards(
        self, one_shard: Service
    ) -> None:
        """Both descriptions have ARN, status, retention and creation time. The summary has the
        number of open shards.
        """
        split(one_shard, shards_of(one_shard)[0])
        full = one_shard.client.describe_stream(StreamName=one_shard.name)["StreamDescription"]
        summary = summary_of(one_shard)
        assert full.items() >= {name: summary[name] for name in SHARED}.items()
        assert full["StreamARN"].endswith(f":stream/{one_shard.name}")
        assert (full["StreamStatus"], full["RetentionPeriodHours"]) == ("ACTIVE", 24)
        assert (len(full["Shards"]), full["HasMoreShards"], summary["OpenShardCount"]) == (
            3,
            False,
            2,
        )

    def test_a_stream_is_found_by_its_arn(self, one_shard: Service) -> None:
        arn = summary_of(one_shard)["StreamARN"]
        one_shard.client.put_record(StreamARN=arn, Data=b"x", PartitionKey="key")
        shard_id = one_shard.client.list_shards(StreamARN=arn)["Shards"][0]["ShardId"]
        assert read(one_shard, iterator(one_shard, shard_id), records=1).data == [b"x"]
