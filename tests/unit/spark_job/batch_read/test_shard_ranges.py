"""The range of each shard of a batch read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from kinesis_spout.aggregation.hash_range import HashRange
from kinesis_spout.errors import ConfigError
from kinesis_spout.service.shard_info import ShardInfo
from spark_job.batch_read.batch_settings import BatchSettings
from spark_job.batch_read.pushed_filters import HINT_MARGIN_MS, PushedFilters
from spark_job.batch_read.shard_ranges import (
    TIP_MARGIN_MS,
    LoadPin,
    ShardRange,
    grouped,
    settled_in_s,
    shard_ranges,
)
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber

HOUR_MS = 3_600_000
LOADED_MS = 1_800_000_000_000
PIN = LoadPin.at(LOADED_MS, LOADED_MS - 100 * HOUR_MS)
LATEST_MS = LOADED_MS + 1_000  # the Date header is cut to the second


def shard(number: int) -> ShardInfo:
    return ShardInfo(
        shard_id=f"shardId-{number}",
        parents=(),
        hash_key_range=(0, 1),
        starting_sequence=SequenceNumber(1),
        ending_sequence=None,
    )


SHARDS = tuple(map(shard, range(3)))
BACKWARDS = {"shardIds": "shardId-0", "startingPosition": "AFTER:5", "endingPosition": "AT:5"}


def ranges(
    filters: PushedFilters | None = None, *, now_ms: int = LOADED_MS, **options: str
) -> list[ShardRange]:
    settings = BatchSettings.from_options({"streamName": "orders"} | options)
    return shard_ranges(settings, SHARDS, PIN, filters or PushedFilters(), service_time_ms=now_ms)


def pushed(*filters: Any) -> PushedFilters:
    return PushedFilters.of(filters)[0]


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def test_by_default_each_shard_is_read_from_its_oldest_record_to_the_load() -> None:
    """An end at a record is no later than that. Shards that JSON does not name are read as a whole;
    those that a filter excludes are not read.
    """
    whole = [
        ShardRange(
            shard_id=one.shard_id,
            start=TRIM_HORIZON,
            until_ms=LATEST_MS,
            hash_range=HashRange(*one.hash_key_range),
        )
        for one in SHARDS
    ]
    assert ranges() == whole
    start, end = Position.at(SequenceNumber(5)), Position.after(SequenceNumber(9))
    assert ranges(shardIds="shardId-1", startingPosition="AT:5", endingPosition="AFTER:9") == [
        replace(whole[1], start=start, end=end)
    ]
    one = '{"shardId-1": "AT:5"}'
    assert ranges(STARTINGPOSITION=one) == [whole[0], replace(whole[1], start=start), whole[2]]
    assert ranges(pushed(EqualTo(("shardId",), "shardId-2"))) == whole[2:]
    assert ranges(pushed(EqualTo(("streamName",), "other"))) == []


def test_times_ago_are_counted_from_the_load_whenever_the_action_runs() -> None:
    """Nothing is missed from before the stream was created. A range without time is not read."""
    early, late = (
        ranges(now_ms=now_ms, startingPosition="-2h", endingPosition="-1h")
        for now_ms in (LOADED_MS, LOADED_MS + 9 * HOUR_MS)
    )
    assert early == late
    assert early[0].start == Position.at_timestamp(LATEST_MS - 2 * HOUR_MS)
    assert early[0].until_ms == LATEST_MS - HOUR_MS
    assert early[0].covered_ms == LATEST_MS - 2 * HOUR_MS
    assert ranges(startingPosition="-900h")[0].covered_ms == PIN.created_ms
    assert ranges(startingPosition="LATEST") == []
    assert ranges(startingPosition="-1h", endingPosition="-1h") == []


def test_filters_on_times_narrow_the_range_and_what_must_not_have_expired() -> None:
    """With a margin."""
    arrival = ("approximateArrivalTimestamp",)
    filters = pushed(
        GreaterThanOrEqual(arrival, at(LATEST_MS - 2 * HOUR_MS)),
        GreaterThanOrEqual(arrival, at(LATEST_MS - 3 * HOUR_MS)),
        LessThan(arrival, at(LATEST_MS - HOUR_MS)),
    )
    start_ms = LATEST_MS - 2 * HOUR_MS - HINT_MARGIN_MS
    (plain, *_), (timed, *_) = ranges(filters), ranges(filters, startingPosition="-9h")
    assert plain.start == timed.start == Position.at_timestamp(start_ms)
    assert plain.until_ms == LATEST_MS - HOUR_MS + HINT_MARGIN_MS
    assert (plain.covered_ms, timed.covered_ms) == (None, start_ms)
    (wider, *_) = ranges(filters, startingPosition="-90m", endingPosition="-80m")
    assert wider.start == Position.at_timestamp(LATEST_MS - 90 * 60_000)
    assert wider.until_ms == LATEST_MS - 80 * 60_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shardIds": "shardId-9"}, "option shardIds names shard 'shardId-9', which the stream"),
        ({"startingPosition": '{"x": "LATEST"}'}, "option startingPosition names shard 'x'"),
        ({"endingPosition": '{"x": "LATEST"}'}, "option endingPosition names shard 'x'"),
        ({"startingPosition": "AT:5"}, "belongs to one"),
        ({"endingPosition": "AFTER:5"}, "belongs to one"),
        ({"startingPosition": "-1h", "endingPosition": "-2h"}, "from -1h to -2h, which is earlier"),
        (BACKWARDS, "which is earlier"),
        ({"endingPosition": at(LOADED_MS + HOUR_MS).isoformat()}, "which is in the future"),
        ({"streamNam": "x"}, "did you mean streamName"),
        ({"applicationName": "a"}, r"applicationName is not one of a batch read.*readStream"),
        ({"shardIds": " , "}, "give shard ids with commas between them"),
        ({"endingPosition": "TRIM_HORIZON"}, "nothing lies before TRIM_HORIZON"),
        ({"endingPosition": '{"a": "TRIM_HORIZON"}'}, "nothing lies before TRIM_HORIZON"),
        ({"startingPosition": "SHARD_END"}, "option startingPosition: SHARD_END is not"),
    ],
)
def test_an_option_or_a_range_that_cannot_be_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ranges(**options)


def test_the_action_waits_until_tips_show_the_whole_range_and_tasks_are_dealt_shards() -> None:
    read = ranges()
    assert settled_in_s(read, LOADED_MS) == (1_000 + TIP_MARGIN_MS) / 1000
    assert settled_in_s(read, LOADED_MS + HOUR_MS) == 0
    assert settled_in_s([], LOADED_MS) == 0
    assert grouped(read, 64) == [(one,) for one in read]
    assert grouped(read, 2) == [(read[0], read[2]), (read[1],)]
    assert grouped([], 2) == []
