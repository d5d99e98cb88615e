"""Filters that a batch read takes over from Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from spark_job.batch_read.pushed_filters import PushedFilters
from spark_job.rows import ARROW_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

ARRIVAL = ("approximateArrivalTimestamp",)
SHARD = ("shardId",)
STREAM = ("streamName",)
T = datetime(2026, 1, 31, 12, tzinfo=UTC)
ELSEWHERE = T.astimezone(timezone(timedelta(hours=5, minutes=30)))


def rows(*arrivals: datetime | None) -> pa.RecordBatch:
    columns = [
        pa.array(arrivals, field.type)
        if field.name == ARRIVAL[0]
        else pa.nulls(len(arrivals), field.type)
        for field in ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def kept(pushed: PushedFilters, *arrivals: datetime | None) -> list[datetime]:
    times: list[datetime] = pushed.apply(rows(*arrivals)).column(ARRIVAL[0]).to_pylist()
    return times


def test_shards_and_streams_that_all_filters_name_are_read() -> None:
    pushed, left = PushedFilters.of(
        [
            IsNotNull(SHARD),
            IsNotNull(STREAM),
            In(SHARD, ("a", "b")),
            EqualTo(STREAM, "orders"),
            EqualNullSafe(SHARD, "b"),
        ]
    )
    assert left == []
    assert [pushed.has_shard(shard) for shard in ("a", "b", "c")] == [False, True, False]
    assert (pushed.has_stream("orders"), pushed.has_stream("other")) == (True, False)


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(SHARD, "a")),
        In(SHARD, ("a", None)),
        EqualTo(("partitionKey",), "k"),
        GreaterThan(ARRIVAL, T.replace(tzinfo=None)),
    ],
)
def test_other_filters_are_left_to_spark(one: Filter) -> None:
    assert PushedFilters.of([one]) == (PushedFilters(), [one])


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (EqualTo(ARRIVAL, T), [T]),
        (GreaterThan(ARRIVAL, T), [T + timedelta(milliseconds=1)]),
        (GreaterThanOrEqual(ARRIVAL, T), [T, T + timedelta(milliseconds=1)]),
        (LessThan(ARRIVAL, T), [T - timedelta(milliseconds=1)]),
        (LessThanOrEqual(ARRIVAL, T), [T - timedelta(milliseconds=1), T]),
        (LessThan(ARRIVAL, ELSEWHERE), [T - timedelta(milliseconds=1)]),
    ],
)
def test_arrival_times_are_compared_exactly(one: Filter, expected: list[datetime]) -> None:
    """A time of another zone is the same time."""
    pushed, left = PushedFilters.of([one])
    assert left == []
    millisecond = timedelta(milliseconds=1)
    assert kept(pushed, T - millisecond, T, T + millisecond, None) == expected


MOMENTS = st.datetimes(
    min_value=datetime(2026, 1, 1),  # noqa: DTZ001  # hypothesis adds the zone
    max_value=datetime(2026, 1, 2),  # noqa: DTZ001  # hypothesis adds the zone
    timezones=st.just(UTC),
)
KINDS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@given(st.lists(st.tuples(st.sampled_from(KINDS), MOMENTS), max_size=4), st.lists(MOMENTS))
def test_no_row_that_is_kept_is_outside_of_what_is_fetched(
    bounds: list[tuple[type[EqualTo], datetime]], arrivals: list[datetime]
) -> None:
    pushed, _ = PushedFilters.of([kind(ARRIVAL, value) for kind, value in bounds])
    for moment in kept(pushed, *arrivals):
        arrival_ms = moment.timestamp() * 1000
        assert pushed.from_ms is None or arrival_ms >= pushed.from_ms
        assert pushed.until_ms is None or arrival_ms < pushed.until_ms
