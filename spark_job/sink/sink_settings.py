"""The sink's options and its checked settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import CONNECTION, Option, by_field, connection_of
from spark_job.settings import texts_from_options, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

BY_KEY = "key"
# Options of `writeStream` itself, which it hands on.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})

# By field. `scripts/reference/options.py` makes the page of options from it.
SINK_OPTIONS: dict[str, Option] = {
    **by_field(
        Option(
            "streamName",
            "name of the stream to write to. Without `streamName` and `streamArn`, each row's "
            "column `streamName` names its stream",
            field="stream",
        ),
        Option("streamArn", "ARN of the stream to write to, which also sets the region"),
    ),
    **CONNECTION,
    **by_field(
        Option.choice(
            "ordering",
            "order of writing. `key` puts the records of a partition key one at a time, in the "
            "order of the task's rows. A refused record then delays the later records of its "
            "key. `none` keeps no order, and is faster",
            "none",
            among=("none", BY_KEY),
        ),
        Option.switch(
            "aggregate",
            "`true` packs the rows for a shard into aggregates of the Kinesis Producer Library "
            "(up to 50 KiB each). Consumers must unpack these aggregates. The option requires "
            "`ordering` `none`",
            "false",
        ),
        Option.whole(
            "requestsInFlight",
            "maximum number of PutRecords requests that a task has in flight",
            "4",
        ),
        Option.duration(
            "retryFor",
            "maximum time without an accepted record, after which the write fails",
            "5m",
            least="1s",
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The checked settings of one write. `stream`: None where column `streamName` names it."""

    aws: AwsConfig
    stream: StreamRef | None
    ordering: str
    requests_in_flight: int
    retry_for_ms: int
    aggregate: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SinkSettings:
        """Settings from writer options, in upper or lower case. Raises `ConfigError`."""
        own = {key: text for key, text in options.items() if key.lower() not in _SPARK_OPTIONS}
        values = values_of(texts_from_options(own, SINK_OPTIONS), SINK_OPTIONS)
        if values["aggregate"] and values["ordering"] == BY_KEY:
            raise ConfigError(
                "option aggregate=true cannot be combined with ordering=key",
                "omit option aggregate or option ordering: after a reshard, an aggregate's records "
                "are put one by one and lose their order",
            )
        name, arn = values.pop("stream"), values.pop("stream_arn")
        stream = None if name is None and arn is None else StreamRef.parse(name=name, arn=arn)
        return cls(
            aws=connection_of(values, stream),
            stream=stream,
            retry_for_ms=values.pop("retry_for"),
            **values,
        )


def refuse_keys(settings: SinkSettings, stream: StreamRef) -> None:
    """Raise `ConfigError` for an order by key, or aggregates, on a stream that ignores keys."""
    if settings.aggregate:
        raise ConfigError(
            f"option aggregate is true, but stream {stream.name} has record distribution AUTO, "
            "so consumers would discard the user records that belong to other shards",
            "omit option aggregate",
        )
    if settings.ordering == BY_KEY:
        raise ConfigError(
            f"option ordering is {BY_KEY}, but stream {stream.name} has record distribution "
            "AUTO, which spreads the records of a key over the shards, so they have no order",
            "omit option ordering, or write to a stream with record distribution "
            "USER_PARTITION_KEY",
        )
