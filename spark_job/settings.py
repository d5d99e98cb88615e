"""The source's checked settings: frozen, hashable, and picklable for the way to the executors.

`spark_job.options` is the table of options. `spark_job.kinesis_source.KinesisSource` is the form
that users write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from kinesis_spout.config import AwsConfig, ReadRate, StreamRef, nearest_name
from kinesis_spout.errors import ConfigError
from spark_job.options import OPTIONS, ZOOKEEPER_PREFIX, ZOOKEEPER_SECURITY, Option
from state.errors import InvalidStoreSettingError
from state.zookeeper.security import ZookeeperSecurity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.shards.start_position import RequestedStart

_FIELD = re.compile(
    rf"\b(?:{'|'.join(name for name in OPTIONS if '_' in name)})\b"
)  # only names with an underscore: the others are ordinary words too


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The checked settings of one source. Durations are in milliseconds, sizes in bytes.

    Secrets are only in `aws` and `zookeeper_security`, whose reprs mask them.
    `start_is_default`: the user gave no `startingPosition`.
    """

    aws: AwsConfig
    stream: StreamRef
    application: str
    zookeeper: str
    zookeeper_root: str
    zookeeper_session_timeout_ms: int
    zookeeper_security: ZookeeperSecurity
    starting_position: RequestedStart
    max_records_per_trigger: int | None
    max_records_per_shard: int
    max_bytes_per_task: int
    max_fetch_time_ms: int
    max_search_time_ms: int
    max_tasks: int
    rate: ReadRate
    fail_on_data_loss: bool
    aggregated_records: str
    max_unresolved_per_shard: int
    whole_batch_ack: bool
    available_now_retry_wait_ms: int | None
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
        """Settings from texts by field name.

        Raises `ConfigError` with the option, the value (unless it is a secret) and the rule.
        """
        values = values_of(texts, OPTIONS)
        if values["stream"] is None and values["stream_arn"] is None:
            raise ConfigError(
                "option streamName is missing; give the stream's name, or its ARN as streamArn"
            )
        for name in ("application", "zookeeper"):
            if not values[name]:
                raise ConfigError(f"option {OPTIONS[name].name} is missing; {_REMEDIES[name]}")
        stream = StreamRef.parse(name=values.pop("stream"), arn=values.pop("stream_arn"))
        aws = connection_of(values, stream)
        security = _security_of(values)
        rate = ReadRate(
            reads_per_second=values.pop("reads_per_second"),
            bytes_per_second=values.pop("read_bytes_per_second"),
        )
        known = {f.name for f in fields(cls)}
        named = {name if name in known else f"{name}_ms": value for name, value in values.items()}
        return cls(
            aws=aws,
            stream=stream,
            rate=rate,
            zookeeper_security=security,
            start_is_default="starting_position" not in texts,
            **named,
        )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SourceSettings:
        """Settings from reader options, in upper or lower case.

        An unknown option raises `ConfigError` with the nearest known name.
        """
        return cls.from_texts(texts_from_options(options))

    def with_password(self) -> SourceSettings:
        """The same, with ZooKeeper's password in them instead of where it is, as executors need it.
        Reads the password's file, or the environment. Raises `ConfigError`.
        """
        try:
            return replace(self, zookeeper_security=self.zookeeper_security.loaded())
        except InvalidStoreSettingError as exc:
            raise ConfigError(str(exc)) from exc


_REMEDIES = {
    "application": "give a name for this job's checkpoints, e.g. orders-etl",
    "zookeeper": "give a connect string like zk1:2181,zk2:2181/chroot, or "
    "embedded:<directory> on one machine",
}


def texts_from_options(
    options: Mapping[str, str], table: Mapping[str, Option] = OPTIONS
) -> dict[str, str]:
    """Options by field name. Raises `ConfigError` for one that the table does not have."""
    names = {option.name.lower(): name for name, option in table.items()}
    texts: dict[str, str] = {}
    for key, value in options.items():
        name = names.get(key.lower())
        if name is None:
            known = sorted(option.name for option in table.values())
            by_field = {
                spelt: option.name
                for field, option in table.items()
                for spelt in (field, field.replace("_", ""))
            }
            nearest = by_field.get(key.lower()) or nearest_name(key, known)
            hint = f"did you mean {nearest}?" if nearest else f"the options are {', '.join(known)}"
            raise ConfigError(f"option {key} is not known; {hint}")
        texts[name] = value
    return texts


def values_of(texts: Mapping[str, str], table: Mapping[str, Option]) -> dict[str, Any]:
    """Every option's value by field name, with the defaults; None for one that is not set. Raises
    `ConfigError`.
    """
    return {name: _read(option, texts.get(name, option.default)) for name, option in table.items()}


def connection_of(values: dict[str, Any], stream: StreamRef | None) -> AwsConfig:
    """Take the fields of the connection out of the values. The errors of the config name fields;
    this turns the names into options. Raises `ConfigError`.
    """
    own = {f.name: values.pop(f.name) for f in fields(AwsConfig) if f.name in values}
    try:
        if stream is not None:
            stream.region_or(own["region"])
        return AwsConfig(**own)
    except ConfigError as exc:
        named = exc.respelt(OPTIONS[exc.option].name if exc.option in OPTIONS else str(exc.option))
        raise ConfigError(
            _FIELD.sub(lambda match: OPTIONS[match[0]].name, str(named)), option=named.option
        ) from exc


def _security_of(values: dict[str, Any]) -> ZookeeperSecurity:
    """Take ZooKeeper's security out of the values. Raises `ConfigError`."""
    own = {name.removeprefix(ZOOKEEPER_PREFIX): values.pop(name) for name in ZOOKEEPER_SECURITY}
    try:
        return ZookeeperSecurity(**own)
    except InvalidStoreSettingError as exc:
        raise ConfigError(str(exc)) from exc


def _read(option: Option, text: str | None) -> Any:
    if text is None:
        return None
    if not text.strip():
        raise ConfigError(f"option {option.name} is empty; give a value or leave it out")
    return option.read(option.name, text)
