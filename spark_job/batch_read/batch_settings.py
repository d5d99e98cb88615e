"""The batch read's options and its checked settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kinesis_spout.config import AwsConfig, ReadRate, StreamRef
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import (
    CONNECTION,
    POSITIONS_RULE,
    Option,
    by_field,
    connection_of,
    positions,
)
from spark_job.options import OPTIONS, STREAM
from spark_job.settings import texts_from_options, values_of
from state.position import TRIM_HORIZON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.shards.start_position import RequestedStart
    from scheme.record_scheme import RecordScheme


def _shard_ids(_: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


def _is_end(end: RequestedStart) -> bool:
    named = (end.default, *(position for _, position in end.shards))
    positions = [one.position for one in named if one.position is not None]
    return all(one != TRIM_HORIZON and not (one.sequence and one.sequence.sub) for one in positions)


# By field. `scripts/reference/options.py` makes the page of options from it.
BATCH_OPTIONS: dict[str, Option] = {
    **STREAM,
    **by_field(
        Option(
            "startingPosition",
            "position at which the read starts: `TRIM_HORIZON`, an ISO time, `-2h`, "
            "`AT:<sequence>`, `AFTER:<sequence>`, `LATEST`, or JSON that maps shard ids and "
            "`default` to such positions",
            "TRIM_HORIZON",
            positions("TRIM_HORIZON"),
            rule=POSITIONS_RULE,
        ),
        Option(
            "endingPosition",
            "position at which the read ends; only earlier records are read. The option has the "
            "same forms as `startingPosition`. `LATEST` is the end of the stream at the time of "
            "`load()`",
            "LATEST",
            positions("LATEST"),
            fits=_is_end,
            rule=f"{POSITIONS_RULE}; the read cannot end at TRIM_HORIZON or inside an aggregate",
        ),
        Option(
            "shardIds",
            "ids of the shards to read, separated by commas; default: all shards that the stream "
            "lists",
            parse=_shard_ids,
            fits=bool,
            rule="pass shard ids separated by commas, or omit the option",
        ),
    ),
    **CONNECTION,
    "wire_format": OPTIONS["wire_format"],
    "max_tasks": replace(
        OPTIONS["max_tasks"],
        meaning=(
            "maximum number of Spark tasks of a batch read. With more shards than tasks, a task "
            "reads several shards in parallel. Default: the number of tasks that the session "
            "runs at a time"
        ),
    ),
    "reads_per_second": OPTIONS["reads_per_second"],
    "read_bytes_per_second": OPTIONS["read_bytes_per_second"],
    "fail_on_data_loss": replace(
        OPTIONS["fail_on_data_loss"],
        meaning=(
            "`true` fails the read if records after a `startingPosition` (a time or a sequence "
            "number) may have expired. `false` logs a warning, and the read continues"
        ),
    ),
    "aggregated_records": OPTIONS["aggregated_records"],
    "scheme": OPTIONS["scheme"],
    **by_field(
        Option.switch(
            "pushDownFilters",
            "`true` uses a filter on `approximateArrivalTimestamp`, `shardId` or `streamName` to "
            "read fewer records. Set the option only for a frame with a single filter",
            "false",
        )
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
    scheme: RecordScheme | None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> BatchSettings:
        """Settings from reader options, in upper or lower case. Raises `ConfigError`."""
        streaming = sorted(_STREAMING[key.lower()] for key in options if key.lower() in _STREAMING)
        if streaming:
            raise ConfigError(
                f"option {streaming[0]} applies only to a streaming query, but this is a "
                "batch read",
                f"omit option {streaming[0]}, or use spark.readStream with applicationName "
                "and zookeeper",
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
