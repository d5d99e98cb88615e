"""The source's options: one table that ties a field's name, its option's name and its reader together.

`SourceSettings` is what the source runs on: parsed, checked, frozen, hashable and picklable (it travels to the
executors). `spark_job.kinesis_source.KinesisSource` is what a user writes. Spark lower-cases option keys, so
options are matched without regard to case and named in camelCase in every error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kinesis_spout.config import AwsConfig, ReadRate, StreamRef, nearest_name, parse_bool, parse_duration_ms, parse_size_bytes
from kinesis_spout.errors import ConfigError
from state.errors import InvalidPositionError
from state.position import StartingPosition

Reader = Callable[[str, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWish:
    """What the user asked for as the start: one wish for all shards, and wishes for single shards."""

    default: StartingPosition
    shards: tuple[tuple[str, StartingPosition], ...] = ()

    @property
    def text(self) -> str:
        return (
            self.default.text
            if not self.shards
            else json.dumps({"default": self.default.text} | {s: w.text for s, w in self.shards})
        )


def _text(_option: str, text: str) -> str:
    return text


def _integer(minimum: int) -> Reader:
    def read(option: str, text: str) -> int:
        if text.strip().isascii() and text.strip().isdecimal() and int(text) >= minimum:
            return int(text)
        raise ConfigError(f"option {option} is {text!r}; give a whole number of at least {minimum}")

    return read


def _rate(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0.1 <= value <= 1000:
        return value
    raise ConfigError(f"option {option} is {text!r}; give calls a second, from 0.1 to 1000")


def _duration(minimum_ms: int = 0, maximum_ms: int = 86_400_000) -> Reader:
    def read(option: str, text: str) -> int:
        value = parse_duration_ms(text, option=option)
        if minimum_ms <= value <= maximum_ms:
            return value
        raise ConfigError(f"option {option} is {text!r}; give a duration from {minimum_ms} ms to {maximum_ms} ms")

    return read


def _size(minimum: int) -> Reader:
    def read(option: str, text: str) -> int:
        value = parse_size_bytes(text, option=option)
        if value >= minimum:
            return value
        raise ConfigError(f"option {option} is {text!r}; give a size of at least {minimum} bytes")

    return read


def _bool(option: str, text: str) -> bool:
    return parse_bool(text, option=option)


def _choice(*allowed: str) -> Reader:
    def read(option: str, text: str) -> str:
        if text in allowed:
            return text
        raise ConfigError(f"option {option} is {text!r}; give one of {', '.join(allowed)}")

    return read


def _start(option: str, text: str) -> StartWish:
    try:
        if not text.lstrip().startswith("{"):
            return StartWish(default=StartingPosition.parse(text))
        wishes = json.loads(text)
        if not isinstance(wishes, dict) or not all(isinstance(wish, str) for wish in wishes.values()):
            raise ConfigError(
                f'option {option}: a JSON start maps shard ids (and "default") to positions, as in {{"default": "LATEST"}}'
            )
        default = StartingPosition.parse(wishes.pop("default", "LATEST"))
        return StartWish(
            default=default, shards=tuple((shard, StartingPosition.parse(wish)) for shard, wish in sorted(wishes.items()))
        )
    except (InvalidPositionError, json.JSONDecodeError) as exc:
        raise ConfigError(f"option {option}: {exc}") from exc


@dataclass(frozen=True, slots=True)
class Option:
    """One reader option: its name, how its text is read, its default as text (None: not set), whether it is a secret."""

    name: str
    read: Reader
    default: str | None = None
    secret: bool = False


# field of KinesisSource -> option. The README's table is checked against this one.
OPTIONS: dict[str, Option] = {
    "stream": Option("streamName", _text),
    "stream_arn": Option("streamArn", _text),
    "application": Option("applicationName", _text),
    "zookeeper": Option("zookeeper", _text),
    "zookeeper_root": Option("zookeeperRoot", _text, "kinesis-spout"),
    "zookeeper_session_timeout": Option("zookeeperSessionTimeout", _duration(1_000, 120_000), "10s"),
    "region": Option("region", _text),
    "endpoint_url": Option("endpointUrl", _text),
    "profile": Option("profile", _text),
    "access_key_id": Option("awsAccessKeyId", _text),
    "secret_access_key": Option("awsSecretAccessKey", _text, secret=True),
    "session_token": Option("awsSessionToken", _text, secret=True),
    "role_arn": Option("roleArn", _text),
    "role_external_id": Option("roleExternalId", _text, secret=True),
    "role_session_name": Option("roleSessionName", _text, "kinesis-spout"),
    "starting_position": Option("startingPosition", _start, "LATEST"),
    "max_records_per_trigger": Option("maxRecordsPerTrigger", _integer(1)),
    "max_records_per_shard": Option("maxRecordsPerShard", _integer(1), "100000"),
    "max_bytes_per_task": Option("maxBytesPerTask", _size(1), "64MiB"),
    "max_fetch_time": Option("maxFetchTime", _duration(1), "5s"),
    "max_search_time": Option("maxSearchTime", _duration(1), "60s"),
    "max_tasks": Option("maxTasks", _integer(1), "64"),
    "reads_per_second": Option("readsPerSecond", _rate, "5"),
    "read_bytes_per_second": Option("readBytesPerSecond", _size(1024), "2MiB"),
    "fail_on_data_loss": Option("failOnDataLoss", _bool, "true"),
    "aggregated_records": Option("aggregatedRecords", _choice("fail", "raw"), "fail"),
    "idle_wait": Option("idleWait", _duration(0, 60_000), "1s"),
    "probe_interval": Option("probeInterval", _duration(200), "1s"),
    "probe_max_shards": Option("probeMaxShards", _integer(0), "100"),
    "idle_interval": Option("idleInterval", _duration(200), "10s"),
    "shard_refresh_interval": Option("shardRefreshInterval", _duration(100), "10s"),
    "owner_wait": Option("ownerWait", _duration(0), "30s"),
    "states_per_write": Option("statesPerWrite", _integer(1), "500"),
}
_FIELD_HINTS = {name.replace("_", ""): option.name for name, option in OPTIONS.items()} | {n: o.name for n, o in OPTIONS.items()}
_FIELD_BY_KEY = {option.name.lower(): name for name, option in OPTIONS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The checked settings of one source. Durations in milliseconds, sizes in bytes. Secrets are in `aws` only, masked there."""

    aws: AwsConfig
    stream: StreamRef
    application: str
    zookeeper: str
    zookeeper_root: str
    zookeeper_session_timeout_ms: int
    starting_position: StartWish
    max_records_per_trigger: int | None
    max_records_per_shard: int
    max_bytes_per_task: int
    max_fetch_time_ms: int
    max_search_time_ms: int
    max_tasks: int
    rate: ReadRate
    fail_on_data_loss: bool
    aggregated_records: str
    idle_wait_ms: int
    probe_interval_ms: int
    probe_max_shards: int
    idle_interval_ms: int
    shard_refresh_interval_ms: int
    owner_wait_ms: int
    states_per_write: int
    start_is_default: bool = field(default=False, compare=False)

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> SourceSettings:
        """Check and read values by field name. Raises `ConfigError` naming the option, the value (unless secret) and the rule."""
        values = {name: _read(option, texts.get(name, option.default)) for name, option in OPTIONS.items()}
        if values["stream"] is None and values["stream_arn"] is None:
            raise ConfigError("option streamName is missing; give the stream's name, or its ARN as streamArn")
        for name in ("application", "zookeeper"):
            if not values[name]:
                raise ConfigError(f"option {OPTIONS[name].name} is missing; {_WHY[name]}")
        stream = StreamRef.parse(name=values.pop("stream"), arn=values.pop("stream_arn"))
        aws = _aws({f.name: values.pop(f.name) for f in fields(AwsConfig)}, stream)
        rate = ReadRate(reads_per_second=values.pop("reads_per_second"), bytes_per_second=values.pop("read_bytes_per_second"))
        known = {f.name for f in fields(cls)}
        named = {name if name in known else f"{name}_ms": value for name, value in values.items()}
        return cls(aws=aws, stream=stream, rate=rate, start_is_default="starting_position" not in texts, **named)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SourceSettings:
        """Check and read reader options, in any case. Unknown ones raise `ConfigError` naming the nearest known one."""
        return cls.from_texts(texts_from_options(options))


_WHY = {
    "application": "it names this job's checkpoints, e.g. orders-etl",
    "zookeeper": "give a connect string like zk1:2181,zk2:2181/chroot, or embedded:<directory> on one machine",
}


def texts_from_options(options: Mapping[str, str]) -> dict[str, str]:
    """Reader options as texts by field name."""
    texts: dict[str, str] = {}
    for key, value in options.items():
        name = _FIELD_BY_KEY.get(key.lower())
        if name is None:
            nearest = _FIELD_HINTS.get(key.lower()) or nearest_name(key, [option.name for option in OPTIONS.values()])
            hint = (
                f"did you mean {nearest}?"
                if nearest
                else f"the options are {', '.join(sorted(o.name for o in OPTIONS.values()))}"
            )
            raise ConfigError(f"option {key} is not known; {hint}")
        texts[name] = value
    return texts


def _aws(values: dict[str, Any], stream: StreamRef) -> AwsConfig:
    """The connection's config; an error there names its field, and is spelt here as the option."""
    try:
        stream.region_or(values["region"])
        return AwsConfig(**values)
    except ConfigError as exc:
        raise exc.respelt(OPTIONS[exc.option].name if exc.option in OPTIONS else str(exc.option)) from exc


def _read(option: Option, text: str | None) -> Any:
    if text is None:
        return None
    if not text.strip():
        raise ConfigError(f"option {option.name} is empty; give a value or leave it out")
    return option.read(option.name, text)
