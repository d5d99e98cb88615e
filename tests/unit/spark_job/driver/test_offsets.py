"""Offsets name a plan for each stream, and keep the plans of streams that are not read now."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import ConfigError
from spark_job.driver.offsets import read_offset, refuse_missing, start_offset, with_plans

ORDERS, CLICKS = "etl/orders", "etl/clicks"
BOTH = {"format": 2, "plans": {ORDERS: "1-a", CLICKS: "2-b"}}


def test_a_query_of_one_stream_writes_what_it_always_wrote() -> None:
    """Earlier versions read it."""
    start = read_offset(start_offset(is_of_one=True))
    assert with_plans(start, {ORDERS: "1-a"}, is_of_one=True) == {"format": 1, "plan": "1-a"}


def test_a_query_of_one_stream_keeps_the_plans_of_the_streams_it_left() -> None:
    after = {ORDERS: "3-c", CLICKS: "2-b"}
    assert with_plans(read_offset(BOTH), after, is_of_one=True) == {"format": 2, "plans": after}


def test_the_plan_of_a_query_of_one_stream_is_given_its_stream() -> None:
    asked: list[str] = []

    def find(plan_id: str) -> str:
        asked.append(plan_id)
        return CLICKS

    assert read_offset({"format": 1, "plan": "1-a"}).named(find) == {CLICKS: "1-a"}
    assert read_offset(start_offset(is_of_one=True)).named(find) == {}
    assert read_offset(start_offset(is_of_one=False)).named(find) == {}
    assert asked == ["1-a"]


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
