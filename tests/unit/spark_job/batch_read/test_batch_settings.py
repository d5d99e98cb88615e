"""The options of a batch read."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import ConfigError
from spark_job.batch_read.batch_settings import BATCH_OPTIONS, BatchSettings
from spark_job.options import OPTIONS


def test_options_are_matched_in_any_case_and_have_defaults() -> None:
    settings = BatchSettings.from_options({"streamname": "orders", "SHARDIDS": "b, a,b"})
    assert settings.stream.name == "orders"
    assert settings.shard_ids == ("b", "a")
    assert settings.starting_position.text == "TRIM_HORIZON"
    assert settings.ending_position.text == "LATEST"
    assert (settings.max_tasks, settings.fail_on_data_loss, settings.push_down_filters) == (
        64,
        True,
        False,
    )


def test_shards_that_json_does_not_name_are_read_as_a_whole() -> None:
    """The default of the start is the oldest record, the one of the end the newest."""
    one = '{"shardId-1": "AT:7"}'
    settings = BatchSettings.from_options(
        {"streamName": "orders", "startingPosition": one, "endingPosition": one}
    )
    assert settings.starting_position.default.text == "TRIM_HORIZON"
    assert settings.ending_position.default.text == "LATEST"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the stream is not named"),
        ({"streamNam": "x"}, "did you mean streamName"),
        ({"applicationName": "a"}, r"applicationName is not one of a batch read.*readStream"),
        ({"MAXFETCHTIME": "1s"}, "maxFetchTime is not one of a batch read"),
        ({"shardIds": " , "}, "give shard ids with commas between them"),
        ({"endingPosition": "TRIM_HORIZON"}, "nothing lies before TRIM_HORIZON"),
        ({"endingPosition": '{"a": "TRIM_HORIZON"}'}, "nothing lies before TRIM_HORIZON"),
        ({"endingPosition": "later"}, "option endingPosition: 'later' is not"),
        ({"startingPosition": "SHARD_END"}, "option startingPosition: SHARD_END is not"),
        ({"readsPerSecond": "0"}, "option readsPerSecond"),
        ({"region": "x"}, "option region: 'x' is not a region"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BatchSettings.from_options(({"streamName": "orders"} if options else {}) | options)


def test_an_option_that_the_source_has_too_is_spelt_as_there() -> None:
    shared = BATCH_OPTIONS.keys() & OPTIONS.keys()
    assert {BATCH_OPTIONS[name].name for name in shared} == {OPTIONS[name].name for name in shared}
    assert BATCH_OPTIONS.keys() - shared == {"ending_position", "shard_ids", "push_down_filters"}
