"""Offsets name a plan for each stream, and keep the plans of streams that are not read now."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import ConfigError
from spark_job.driver.offsets import (
    START_OF_SEVERAL,
    START_OFFSET,
    offset_of_several,
    plan_of,
    read_offset,
    refuse_missing,
    with_plan,
)

ORDERS, CLICKS = "etl/orders", "etl/clicks"


def test_a_query_of_one_stream_writes_what_it_always_wrote() -> None:
    assert with_plan(START_OFFSET, ORDERS, "1-a") == {"format": 1, "plan": "1-a"}
    assert plan_of({"format": 1, "plan": "1-a"}, ORDERS) == "1-a"


def test_a_query_of_one_stream_keeps_the_plans_of_the_streams_it_left() -> None:
    both = offset_of_several({ORDERS: "1-a", CLICKS: "2-b"})
    assert plan_of(both, ORDERS) == "1-a"
    assert with_plan(both, ORDERS, "3-c") == offset_of_several({ORDERS: "3-c", CLICKS: "2-b"})
    assert plan_of(both, "etl/views") == ""


def test_an_offset_with_nothing_new_is_the_one_before() -> None:
    """Another form of it would be an empty batch, as of a stream that has had no plan yet."""
    both = offset_of_several({ORDERS: "1-a", CLICKS: "2-b"})
    for start in (both, START_OF_SEVERAL, START_OFFSET):
        views = plan_of(start, "etl/views")
        assert with_plan(start, "etl/views", views) == start


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"format": 3},
        {"format": 1},
        {"format": 2, "plans": ["a"]},
        {"format": 2, "plans": {"a": 1}},
    ],
)
def test_an_offset_of_another_format_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="holds an offset of format"):
        read_offset(offset)


def test_a_batch_with_records_of_a_stream_that_is_left_is_refused_by_name() -> None:
    start, end = {ORDERS: "1-a", CLICKS: "2-b"}, {ORDERS: "3-c", CLICKS: "4-d"}
    with pytest.raises(
        ConfigError, match=r"records of stream clicks \(application etl, plan 4-d\)"
    ):
        refuse_missing(start, end, [ORDERS])
    refuse_missing(start, {**start, ORDERS: "3-c"}, [ORDERS])
    refuse_missing(start, end, [ORDERS, CLICKS])
