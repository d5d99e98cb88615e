"""A batch is refused unless it holds exactly the rows that the tasks of its plan published."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from spark_job.tracking.content_check import (
    BatchContentError,
    PartitionContent,
    ShardContent,
    check_content,
    merge_content,
)
from state.plan import ShardReadResult, TaskResult
from state.sequence_number import SequenceNumber


def content(shard: str, first: int, last: int, count: int, retries: int = 0) -> ShardContent:
    return ShardContent(
        shard_id=shard,
        new_count=count,
        first=SequenceNumber(first),
        last=SequenceNumber(last),
        retry_rows=retries,
    )


def ends(**changes: Any) -> dict[int, TaskResult]:
    values: dict[str, Any] = {
        "first": SequenceNumber(9),
        "last": SequenceNumber(100),
        "count": 5,
        "retry_rows": 2,
    } | changes
    return {
        0: TaskResult(
            token="t",
            shards=(ShardReadResult(shard_id="s", **values), ShardReadResult(shard_id="empty")),
        )
    }


def test_contents_of_a_shard_are_merged_by_number_and_not_by_text() -> None:
    parts = [
        content("s", 100, 101, 2),
        ShardContent(shard_id="s", retry_rows=2),
        content("s", 9, 99, 3),
    ]
    assert merge_content(parts) == {"s": content("s", 9, 101, 5, 2)}


def test_the_rows_that_were_published_are_accepted() -> None:
    check_content({"s": content("s", 9, 100, 5, 2)}, ends(), "1-a")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "holds 0 records and 0 retries of shard s"),
        (
            {"s": content("s", 9, 100, 4, 2)},
            "holds 4 records from 9 to 100 and 2 retries of shard s",
        ),
        ({"s": content("s", 10, 100, 5, 2)}, "from 10 to 100"),
        ({"s": content("s", 9, 101, 5, 2)}, "from 9 to 101"),
        ({"s": content("s", 9, 100, 5, 1)}, "1 retries"),
        ({"s": content("s", 9, 100, 5, 2), "t": content("t", 1, 1, 1)}, "of shard t"),
    ],
)
def test_other_rows_are_refused_naming_shard_and_plan(
    found: dict[str, ShardContent], message: str
) -> None:
    with pytest.raises(BatchContentError, match=message) as caught:
        check_content(found, ends(), "1-a")
    assert "the tasks of plan 1-a published" in str(caught.value)


def test_a_row_is_new_from_the_first_new_number_of_its_shard_on() -> None:
    """A shard without a first number had retries only."""
    rows = [
        Row(messageId=f"{shard}:{number}:1")
        for shard, number in (("s", 5), ("s", 9), ("s", 10), ("t", 7))
    ]
    (s, t) = PartitionContent({"s": SequenceNumber(9), "t": None})(rows)
    assert s == content("s", 9, 10, 2, 1)
    assert t == ShardContent(shard_id="t", retry_rows=1)
