"""The source's options: one table that ties a field's name, its option's name, its reader and its meaning together.

Spark lower-cases option keys, so options are matched without regard to case and named in camelCase in every error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kinesis_spout.config import parse_bool, parse_duration_ms, parse_size_bytes
from kinesis_spout.errors import ConfigError
from state.connect_string import ConnectString
from state.embedded_zookeeper import embedded_directory
from state.errors import InvalidPositionError, InvalidStoreSettingError
from state.position import StartingPosition
from state.zookeeper_paths import valid_name

Reader = Callable[[str, str], Any]
_JSON_START = '{"default": "LATEST"}'
_WHOLE = re.compile(r"\s*([0-9]{1,18})\s*", re.ASCII)


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


def _name(option: str, text: str) -> str:
    """A name of a node in ZooKeeper: refused here what would be refused only when the query runs."""
    try:
        return valid_name(f"option {option}", text)
    except InvalidStoreSettingError as exc:
        raise ConfigError(str(exc)) from exc


def _address(option: str, text: str) -> str:
    try:
        if embedded_directory(text) is None:
            ConnectString.parse(text)
    except InvalidStoreSettingError as exc:
        raise ConfigError(f"option {option}: {exc}") from exc
    return text


def _integer(minimum: int) -> Reader:
    def read(option: str, text: str) -> int:
        match = _WHOLE.fullmatch(text)
        if match is not None and int(match[1]) >= minimum:
            return int(match[1])
        raise ConfigError(f"option {option} is {text[:40]!r}; give a whole number of at least {minimum}, of at most 18 digits")

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
            raise ConfigError(f'option {option}: a JSON start maps shard ids (and "default") to positions, as in {_JSON_START}')
        default = StartingPosition.parse(wishes.pop("default", "LATEST"))
        return StartWish(
            default=default, shards=tuple((shard, StartingPosition.parse(wish)) for shard, wish in sorted(wishes.items()))
        )
    except json.JSONDecodeError as exc:
        raise ConfigError(f"option {option} is {text!r}, which is not JSON: {exc}; give it as in {_JSON_START}") from exc
    except InvalidPositionError as exc:
        raise ConfigError(f"option {option}: {exc}") from exc


@dataclass(frozen=True, slots=True)
class Option:
    """One reader option: its name, how its text is read, its default as text (None: not set), whether it is a secret.

    `meaning` is for people, as Markdown: one line, with the bounds.
    """

    name: str
    read: Reader
    default: str | None = None
    secret: bool = False
    meaning: str = field(kw_only=True)


# field of KinesisSource -> option. The README's table is made from this one (scripts/readme_options.py).
OPTIONS: dict[str, Option] = {
    "stream": Option("streamName", _text, meaning="the stream, by its name; or give `streamArn`"),
    "stream_arn": Option("streamArn", _text, meaning="the stream, by its ARN, which also names the region"),
    "application": Option("applicationName", _name, meaning="the name under which the checkpoints are kept; required"),
    "zookeeper": Option(
        "zookeeper",
        _address,
        meaning="connect string, like `zk1:2181,zk2:2181/chroot`, or `embedded:<directory>` on one machine; required",
    ),
    "zookeeper_root": Option(
        "zookeeperRoot",
        _name,
        "kinesis-spout",
        meaning="the folder in ZooKeeper that holds all applications",
    ),
    "zookeeper_session_timeout": Option(
        "zookeeperSessionTimeout",
        _duration(1_000, 120_000),
        "10s",
        meaning="how long ZooKeeper holds the ownership of a job that has died; 1s to 2m",
    ),
    "region": Option("region", _text, meaning="the AWS region; without it, that of the AWS configuration"),
    "endpoint_url": Option("endpointUrl", _text, meaning="another Kinesis endpoint: a VPC endpoint, or a local emulator"),
    "profile": Option("profile", _text, meaning="a profile of the AWS configuration files"),
    "access_key_id": Option(
        "awsAccessKeyId", _text, secret=True, meaning="an access key; without it, botocore's own chain of credentials"
    ),
    "secret_access_key": Option(
        "awsSecretAccessKey",
        _text,
        secret=True,
        meaning="its secret; shown in no log or error",
    ),
    "session_token": Option(
        "awsSessionToken",
        _text,
        secret=True,
        meaning="its session token, if it is a temporary one",
    ),
    "role_arn": Option("roleArn", _text, meaning="a role to assume by STS; renewed before it expires, on executors too"),
    "role_external_id": Option(
        "roleExternalId",
        _text,
        secret=True,
        meaning="the external id that the role asks for",
    ),
    "role_session_name": Option(
        "roleSessionName",
        _text,
        "kinesis-spout",
        meaning="the name of the role's session, as CloudTrail shows it",
    ),
    "starting_position": Option(
        "startingPosition",
        _start,
        "LATEST",
        meaning="where a new application starts: `LATEST`, `TRIM_HORIZON`, an ISO time, `-2h`, `AT:<sequence>`, "
        "`AFTER:<sequence>`, or JSON of these by shard id and `default`",
    ),
    "max_records_per_trigger": Option(
        "maxRecordsPerTrigger", _integer(1), meaning="at most so many records a batch, over all shards; 1 or more"
    ),
    "max_records_per_shard": Option(
        "maxRecordsPerShard",
        _integer(1),
        "100000",
        meaning="at most so many records of a shard a batch; 1 or more",
    ),
    "max_bytes_per_task": Option(
        "maxBytesPerTask",
        _size(1),
        "64MiB",
        meaning="how many bytes of payload a task gives, and about what it holds in memory",
    ),
    "max_fetch_time": Option(
        "maxFetchTime",
        _duration(1),
        "5s",
        meaning="how long a task reads at most, once it has found something; up to 24h",
    ),
    "max_search_time": Option(
        "maxSearchTime",
        _duration(1),
        "60s",
        meaning="how long a task looks for the first record of a shard that is behind, "
        "and an AvailableNow run for a shard's end; up to 24h",
    ),
    "max_tasks": Option(
        "maxTasks",
        _integer(1),
        "64",
        meaning="tasks a batch at most; `KinesisSource` sets the number of cores; 1 or more",
    ),
    "reads_per_second": Option(
        "readsPerSecond",
        _rate,
        "5",
        meaning="calls a second and shard; the service allows 5 for all readers together; 0.1 to 1000",
    ),
    "read_bytes_per_second": Option(
        "readBytesPerSecond",
        _size(1024),
        "2MiB",
        meaning="bytes a second and shard; the service allows 2 MB; 1KiB or more",
    ),
    "fail_on_data_loss": Option(
        "failOnDataLoss",
        _bool,
        "true",
        meaning="whether to stop when records may have expired unread; `false` says so in the log and goes on",
    ),
    "aggregated_records": Option(
        "aggregatedRecords",
        _choice("fail", "raw"),
        "fail",
        meaning="`fail` stops at a record that the Kinesis Producer Library has aggregated, `raw` hands over its bytes",
    ),
    "idle_wait": Option(
        "idleWait",
        _duration(0, 60_000),
        "1s",
        meaning="how long the driver waits for something new before it returns to Spark; up to 60s",
    ),
    "probe_interval": Option(
        "probeInterval",
        _duration(200),
        "1s",
        meaning="how often an idle shard is asked for something new; 200ms to 24h",
    ),
    "probe_max_shards": Option(
        "probeMaxShards",
        _integer(0),
        "100",
        meaning="with more shards than that, tasks look for new records every `idleInterval` instead; 0 or more",
    ),
    "idle_interval": Option(
        "idleInterval",
        _duration(200),
        "10s",
        meaning="the time between two batches that find nothing, where shards are too many to be asked; 200ms to 24h",
    ),
    "shard_refresh_interval": Option(
        "shardRefreshInterval",
        _duration(100),
        "10s",
        meaning="how often the list of shards is read; 100ms to 24h",
    ),
    "owner_wait": Option(
        "ownerWait",
        _duration(0),
        "30s",
        meaning="how long a new job waits for an earlier one of its name to be gone; up to 24h",
    ),
    "states_per_write": Option(
        "statesPerWrite",
        _integer(1),
        "500",
        meaning="how many shard states one write to ZooKeeper holds; 1 or more, above 500 as 500",
    ),
}
