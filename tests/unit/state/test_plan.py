from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from state.plan import (
    Plan,
    PlannedRetry,
    RangePart,
    ShardReadResult,
    ShortRange,
    TaskPlan,
    make_plan_id,
    missing_records,
    plan_number,
    rest_of_range,
    retries_read,
    retries_with_rows,
)
from state.shard_state import UnresolvedRecord
from tests.support.state.tracker import seq


def test_a_plan_id_gives_its_number_back() -> None:
    """The number orders plans as an integer: 10 is after 9."""
    assert make_plan_id(10, "ab12") == "10-ab12"
    assert plan_number("10-ab12") > plan_number("9-ab12")
    assert plan_number("0-0") == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "7-",
        "-ab",
        "x-ab",
        "7-AB",
        "7-a b",
        "7-ab\n",
        "7-a-b",
        "-7-ab",
        "7-" + "a" * 33,
        "1" * 19 + "-a",
        "٣-ab",
    ],
)
def test_a_text_that_is_not_a_plan_id_is_refused(text: str) -> None:
    """It would become the name of a znode."""
    with pytest.raises(ValueError, match="is not a plan id"):
        plan_number(text)


def test_a_plan_id_that_could_not_be_read_back_is_not_made() -> None:
    """Neither from a bad number nor from a bad nonce."""
    with pytest.raises(ValueError, match="is not a plan id"):
        make_plan_id(-1, "ab")
    with pytest.raises(ValueError, match="is not a plan id"):
        make_plan_id(1, "a/b")


# what was read of the retries ---------------------------------------------------------------------
ALONE = PlannedRetry(first=seq(5), attempts=1)
RANGE = PlannedRetry(first=seq(10), last=seq(30), count=4, attempts=2, max_records=3)
PART = RangePart(last=seq(20), rest=seq(25), count=2)


@pytest.mark.parametrize(
    ("result", "found", "missing", "read"),
    [
        ({}, [], [], []),
        ({"retries_done": 1}, [1], [0], [ALONE]),
        ({"retries_done": 2}, [1, 4], [0, 0], [ALONE, replace(RANGE, max_records=None)]),
        ({"retries_done": 2, "retries_gone": (seq(5), seq(10))}, [0, 0], [1, 4], []),
        (
            {"retries_done": 2, "retries_short": (ShortRange(first=seq(10), missing=3),)},
            [1, 1],
            [0, 3],
            [ALONE, replace(RANGE, max_records=None)],
        ),
        (
            {"retries_done": 1, "retry_part": PART},
            [1, 2],
            [0, 0],
            [ALONE, replace(RANGE, last=seq(20), count=2, max_records=None)],
        ),
        (
            {"retries_done": 1, "retry_part": RangePart(last=seq(10), rest=seq(25), count=1)},
            [1, 1],
            [0, 0],
            [ALONE, replace(RANGE, last=None, count=1, max_records=None)],
        ),
    ],
)
def test_what_a_task_read_of_its_retries_follows_from_its_result(
    result: dict[str, Any], found: list[int], missing: list[int], read: list[PlannedRetry]
) -> None:
    """A retry of exactly what was read replays it."""
    end = ShardReadResult(shard_id="s", **result)
    reads = retries_read([ALONE, RANGE], end)
    assert ([one.found for one in reads], [one.missing for one in reads]) == (found, missing)
    assert retries_with_rows([ALONE, RANGE], end) == read


@pytest.mark.parametrize(
    ("count", "found", "has_first", "missing"),
    [(4, 4, True, 0), (4, 9, True, 0), (4, 3, True, 1), (4, 0, False, 4), (4, 9, False, 1)],
)
def test_the_records_that_a_range_lacks_are_missing_and_one_at_least_without_its_first(
    count: int, found: int, *, has_first: bool, missing: int
) -> None:
    """Expiry removes the oldest first."""
    assert missing_records(count, found, has_first=has_first) == missing


@pytest.mark.parametrize(("first", "left", "count"), [(20, 3, 3), (20, 1, 2), (30, 3, 1)])
def test_the_rest_of_a_range_counts_its_own_ends_at_least(
    first: int, left: int, count: int
) -> None:
    """The range may have had more records than its count says."""
    stored = UnresolvedRecord(first=seq(10), last=seq(30), count=4, attempts=2, due_ms=7)
    rest = replace(stored, first=seq(first), count=count)
    assert rest_of_range(stored, seq(first), left) == rest


def test_the_option_of_a_plan_is_that_of_its_tasks() -> None:
    task = TaskPlan(
        shards=(), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1, aggregated_records="whole"
    )
    plan = Plan(plan_id="1-a", created_ms=1, tasks=())
    assert plan.aggregated_records is None
    assert replace(plan, tasks=(task, task)).aggregated_records == "whole"
