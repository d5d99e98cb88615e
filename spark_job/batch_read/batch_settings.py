"""The batch read's options and its checked settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kinesis_spout.config import AwsConfig, ReadRate, StreamRef
from kinesis_spout.errors import ConfigError
from spark_job.options import CONNECTION, OPTIONS, Option
from spark_job.options.values import read_boolean, read_positions
from spark_job.settings import connection_of, texts_from_options, values_of
from state.position import TRIM_HORIZON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.shards.start_position import RequestedStart


def _read_end(option: str, text: str) -> RequestedStart:
    end: RequestedStart = read_positions("LATEST")(option, text)
    for one in (end.default, *(position for _, position in end.shards)):
        if one.position == TRIM_HORIZON:
            raise ConfigError(
                f"option {option} is {text!r}; nothing lies before TRIM_HORIZON, so name a time, a "
                "sequence number or LATEST"
            )
    return end


def _read_shard_ids(option: str, text: str) -> tuple[str, ...]:
    shard_ids = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    if not shard_ids:
        raise ConfigError(
            f"option {option} is {text!r}; give shard ids with commas between them, or leave it out"
        )
    return shard_ids


# By field. `scripts/reference/options.py` makes the page of options from it.
BATCH_OPTIONS: dict[str, Option] = {
    "stream": OPTIONS["stream"],
    "stream_arn": OPTIONS["stream_arn"],
    "starting_position": Option(
        "startingPosition",
        read_positions("TRIM_HORIZON"),
        "TRIM_HORIZON",
        meaning="where the read begins: `TRIM_HORIZON`, an ISO time, `-2h`, `AT:<sequence>`, "
        "`AFTER:<sequence>`, `LATEST`, or JSON that maps shard ids and `default` to these",
    ),
    "ending_position": Option(
        "endingPosition",
        _read_end,
        "LATEST",
        meaning="where the read ends: the records before this position, in the same grammar; "
        "`LATEST` is the end of the stream at `load()`",
    ),
    "shard_ids": Option(
        "shardIds",
        _read_shard_ids,
        meaning="the shards to read, with commas between them; default: all that the stream lists",
    ),
    **{name: OPTIONS[name] for name in (*CONNECTION, "wire_format")},
    "max_tasks": replace(
        OPTIONS["max_tasks"],
        meaning="maximum tasks of a read; a task reads several shards at the same time where there "
        "are more shards; 1 or more; default: as many as the session runs at a time",
    ),
    "reads_per_second": OPTIONS["reads_per_second"],
    "read_bytes_per_second": OPTIONS["read_bytes_per_second"],
    "fail_on_data_loss": replace(
        OPTIONS["fail_on_data_loss"],
        meaning="`true` fails the read when records after a start that names a time or a record "
        "may have expired; `false` logs them and goes on",
    ),
    "aggregated_records": OPTIONS["aggregated_records"],
    "push_down_filters": Option(
        "pushDownFilters",
        read_boolean,
        "false",
        meaning="`true` takes filters on `approximateArrivalTimestamp`, `shardId` and `streamName` "
        "over from Spark, so that less is read; only for a frame that is loaded for one filter",
    ),
}
_STREAMING = {
    option.name.lower(): option.name
    for name, option in OPTIONS.items()
    if name not in BATCH_OPTIONS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """The checked settings of one batch read. `shard_ids`: None for all listed shards."""

    aws: AwsConfig
    stream: StreamRef
    starting_position: RequestedStart
    ending_position: RequestedStart
    shard_ids: tuple[str, ...] | None
    max_tasks: int
    rate: ReadRate
    fail_on_data_loss: bool
    aggregated_records: str
    push_down_filters: bool

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> BatchSettings:
        """Settings from reader options, in upper or lower case. Raises `ConfigError`."""
        streaming = sorted(_STREAMING[key.lower()] for key in options if key.lower() in _STREAMING)
        if streaming:
            raise ConfigError(
                f"option {streaming[0]} is not one of a batch read, which has no application; "
                "leave it out, or use spark.readStream with applicationName and zookeeper"
            )
        values = values_of(texts_from_options(options, BATCH_OPTIONS), BATCH_OPTIONS)
        stream = StreamRef.parse(name=values.pop("stream"), arn=values.pop("stream_arn"))
        return cls(
            aws=connection_of(values, stream),
            stream=stream,
            rate=ReadRate(
                reads_per_second=values.pop("reads_per_second"),
                bytes_per_second=values.pop("read_bytes_per_second"),
            ),
            **values,
        )
