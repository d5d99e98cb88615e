"""A batch is refused unless it holds exactly the rows that the tasks of its plan published."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pyspark.sql import Row

from spark_job.tracking.content_check import (
    BatchContentError,
    ShardContent,
    check_content,
    counted,
    is_what_is_left,
    lowest_published,
    merge_content,
)
from state.plan import PlannedRetry, ShardReadResult, TaskResult, retries_with_rows
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
            shards=(ShardReadResult(shard_id="s", **values), ShardReadResult(shard_id="empty")),
        )
    }


def planned(first: int, last: int | None = None, **more: Any) -> PlannedRetry:
    return PlannedRetry(
        first=SequenceNumber(first), last=SequenceNumber(last) if last else None, attempts=1, **more
    )


NOTHING = ShardContent(shard_id="s")


def nothing_has(_found: ShardContent, _end: ShardReadResult) -> bool:
    return False


def test_the_rows_that_were_published_are_accepted() -> None:
    """Contents of a shard are merged by number and not by text."""
    parts = [
        content("s", 100, 100, 2),
        ShardContent(shard_id="s", retry_rows=2),
        content("s", 9, 99, 3),
    ]
    assert merge_content(parts) == {"s": content("s", 9, 100, 5, 2)}
    assert check_content(merge_content(parts), ends(), "1-a", has_expired=nothing_has) == []


def test_rows_that_have_expired_since_they_were_published_are_named_and_not_refused() -> None:
    found = {"s": content("s", 50, 100, 3, 0)}
    asked: list[ShardContent] = []

    def has_expired(found: ShardContent, end: ShardReadResult) -> bool:
        asked.append(found)
        return end.shard_id == "s"

    assert check_content(found, ends(), "1-a", has_expired=has_expired) == ["s"]
    assert asked == [found["s"]]
    with pytest.raises(BatchContentError, match="of shard t"):
        check_content({"t": content("t", 1, 1, 1)} | found, ends(), "1-a", has_expired=has_expired)


RETRIES = (planned(2, 4, count=3), planned(6), planned(8))
END = ShardReadResult(
    shard_id="s",
    first=SequenceNumber(9),
    last=SequenceNumber(100),
    count=5,
    retries_done=3,
    retry_rows=5,
)


@pytest.mark.parametrize(
    ("found", "oldest", "expired"),
    [
        (content("s", 50, 100, 3), 50, True),
        (content("s", 50, 100, 3), 70, True),  # more has expired since
        (NOTHING, None, True),
        (content("s", 9, 100, 5, 1), 7, True),
        (content("s", 9, 100, 5, 4), 3, True),  # the range is left in part
        (content("s", 9, 100, 5), 9, True),
        (content("s", 50, 100, 3, 5), 2, False),  # all are there, so they were filtered out
        (content("s", 50, 100, 3), 30, False),  # 30 is there, and missing
        (content("s", 50, 70, 2), 50, False),  # the end is missing too
        (NOTHING, 50, False),
        (content("s", 9, 100, 5, 1), 6, False),  # 6 and 8 are there
        (content("s", 9, 100, 4), 9, False),  # the retries have expired, the new ones have not
        (content("s", 50, 100, 3, 2), 50, True),
    ],
)
def test_only_a_loss_at_the_beginning_that_the_service_confirms_is_expiry(
    found: ShardContent, oldest: int | None, *, expired: bool
) -> None:
    first = None if oldest is None else SequenceNumber(oldest)
    assert is_what_is_left(found, END, RETRIES, first) is expired


def test_the_service_is_asked_for_the_lowest_number_of_which_rows_were_published() -> None:
    """One that was gone already had no row."""
    gone = msgspec.structs.replace(END, retries_gone=(SequenceNumber(2),), retries_done=2)
    assert retries_with_rows(RETRIES, gone) == [RETRIES[1]]
    assert lowest_published(gone, [RETRIES[1]]) == SequenceNumber(6)
    assert lowest_published(gone, []) == SequenceNumber(9)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "holds 0 records and 0 retries of shard s"),
        ({"s": content("s", 9, 100, 4, 2)}, "4 records from 9 to 100 and 2 retries of shard s"),
        ({"s": content("s", 10, 100, 5, 2)}, "from 10 to 100"),
        ({"s": content("s", 9, 100, 5, 1)}, "1 retries"),
        ({"s": content("s", 9, 100, 5, 2), "t": content("t", 1, 1, 1)}, "of shard t"),
    ],
)
def test_other_rows_are_refused_naming_shard_and_plan(
    found: dict[str, ShardContent], message: str
) -> None:
    with pytest.raises(BatchContentError, match=message) as caught:
        check_content(found, ends(), "1-a", has_expired=nothing_has)
    assert "the tasks of plan 1-a published" in str(caught.value)


def test_a_row_is_new_from_the_first_new_number_of_its_shard_on() -> None:
    """A shard without a first number had retries only."""
    rows = [Row(messageId=one) for one in ("s:5:1", "s:9:1", "s:10:1", "t:7:1")]
    (s, t) = counted({"s": SequenceNumber(9), "t": None}, rows)
    assert (s, t) == (content("s", 9, 10, 2, 1), ShardContent(shard_id="t", retry_rows=1))
