"""The declaration of options: name, type, default, bounds, meaning and secrecy of each, once.

Here are the options that the Spark source, the spout and the commands share. From them come the
reader's options (`spark_job.options` adds those that only Spark has), the defaults and checks of
`SpoutConfig`, the connection options and flags of the commands, and the reference page. The typed
arguments of `KinesisSource` and the fields of `AwsConfig`, `ReadRate` and `ZookeeperSecurity` are
written out for completion, and a test compares them with this.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from kinesis_spout.config import (
    AwsConfig,
    StreamRef,
    check_connection,
    parse_bool,
    parse_duration_ms,
    parse_size_bytes,
)
from kinesis_spout.errors import ConfigError
from kinesis_spout.shards.start_position import RequestedStart
from state.errors import InvalidPositionError, InvalidStoreSettingError
from state.position import StartingPosition
from state.znodes.paths import valid_name
from state.zookeeper.security import ACLS, AUTHS, PASSWORD_VARIABLE, ZookeeperSecurity
from state.zookeeper.servers import EMBEDDED_PREFIX, ConnectString

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_WHOLE = re.compile(r"\s*([0-9]{1,18})\s*", re.ASCII)
# API reference of RegisterStreamConsumer.
_CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
_CONSUMER_ARN = re.compile(
    r"(?P<stream>arn:[^:]+:kinesis:[^:]+:[0-9]+:stream/(?P<name>[^/]+))/consumer/[^:/]+:[0-9]+",
    re.ASCII,
)
_JSON_START = '{"default": "LATEST"}'


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    - `name`: as readers and writers of Spark spell it. Its fields and arguments in Python have the
      same name in snake_case, or `field`.
    - `meaning`: one line of Markdown, for the reference and the help of commands.
    - `default`: as text; None means that the option is not set.
    - `parse`: the value of a text, None for a text that is none. Gets the option's name too, and
      may raise a `ConfigError` of its own. Durations are in milliseconds, sizes in bytes.
    - `fits`: whether a value is within the bounds; `rule`: what it must be, as errors say it.
    - `bounds`: the same for the reference, unless the meaning says it.
    - `secret`: no error or repr shows its value.
    """

    name: str
    meaning: str
    default: str | None = None
    parse: Callable[[str, str], Any] = lambda _, text: text
    fits: Callable[[Any], object] = lambda _: True
    rule: str = ""
    bounds: str = ""
    required: bool = False
    secret: bool = False
    field: str = ""
    choices: tuple[str, ...] = ()

    @classmethod
    def switch(cls, name: str, meaning: str, default: str) -> Option:
        return cls(name, meaning, default, lambda option, text: parse_bool(text, option=option))

    @classmethod
    def choice(
        cls, name: str, meaning: str, default: str | None = None, *, among: tuple[str, ...]
    ) -> Option:
        return cls(
            name,
            meaning,
            default,
            fits=lambda value: value in among,
            rule=f"{', '.join(among[:-1])} or {among[-1]}",
            choices=among,
        )

    @classmethod
    def whole(cls, name: str, meaning: str, default: str | None = None) -> Option:
        """A number of 1 or more."""

        def parse(_: str, text: str) -> int | None:
            match = _WHOLE.fullmatch(text)
            return None if match is None else int(match[1])

        return cls(
            name,
            meaning,
            default,
            parse,
            fits=lambda value: value >= 1,
            rule="a whole number of at least 1, with at most 18 digits",
            bounds="1 or more",
        )

    @classmethod
    def duration(
        cls,
        name: str,
        meaning: str,
        default: str | None = None,
        *,
        least: str = "0s",
        most: str = "24h",
    ) -> Option:
        low, high = (parse_duration_ms(text, option=name) for text in (least, most))
        return cls(
            name,
            meaning,
            default,
            lambda option, text: parse_duration_ms(text, option=option),
            fits=lambda value: low <= value <= high,
            rule=f"a duration from {least} to {most}",
            bounds=f"{least} to {most}" if low else f"up to {most}",
        )

    @classmethod
    def size(cls, name: str, meaning: str, default: str, *, least: str) -> Option:
        low = parse_size_bytes(least, option=name)
        return cls(
            name,
            meaning,
            default,
            lambda option, text: parse_size_bytes(text, option=option),
            fits=lambda value: value >= low,
            rule=f"a size of {least} or more",
            bounds=f"{least} or more",
        )

    def read(self, text: str) -> Any:
        """The value of a text. Raises `ConfigError` with the option, the text and the rule."""
        if not text.strip():
            raise ConfigError.about(
                self.name, " is empty", "set a value for the option, or omit the option"
            )
        value = self.parse(self.name, text)
        if value is None or not self.fits(value):
            raise ConfigError.about(self.name, f" is {text[:200]!r}", f"use {self.rule}")
        return value

    def check(self, field: str, value: object) -> None:
        """Raise `ConfigError`, which names the field, for a value out of bounds."""
        if value is not None and not self.fits(value):
            raise ConfigError.of(field, f"must be {self.rule}", value)

    @property
    def value(self) -> Any:
        """The default's value."""
        return None if self.default is None else self.read(self.default)


def by_field(*options: Option) -> dict[str, Option]:
    """A table of options by their names in Python."""
    return {
        option.field or re.sub("([A-Z])", r"_\1", option.name).lower(): option for option in options
    }


def _znode_name(option: str, text: str) -> str:
    """Without this check a bad name would fail only when the query runs."""
    try:
        return valid_name("", text)
    except InvalidStoreSettingError as exc:  # its message begins with the name, which is the text
        raise ConfigError.about(option, exc.message, exc.remedy) from exc


def _address(option: str, text: str) -> str | None:
    if text.startswith(EMBEDDED_PREFIX):
        return text if text.removeprefix(EMBEDDED_PREFIX).strip() else None
    try:
        ConnectString.parse(text)
    except InvalidStoreSettingError as exc:
        raise ConfigError.about(option, f": {exc}") from exc
    return text


def _number(_: str, text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def positions(missing_default: str) -> Callable[[str, str], RequestedStart | None]:
    """Reads a position for all shards, or JSON that maps shard ids and "default" to positions.
    Without "default", the other shards are at `missing_default`.
    """

    def parse(option: str, text: str) -> RequestedStart | None:
        try:
            if not text.lstrip().startswith("{"):
                return RequestedStart(default=StartingPosition.parse(text))
            found = json.loads(text)
            if not all(isinstance(position, str) for position in found.values()):
                return None
            default = StartingPosition.parse(found.pop("default", missing_default))
            shards = (
                (shard, StartingPosition.parse(position))
                for shard, position in sorted(found.items())
            )
            return RequestedStart(default=default, shards=tuple(shards))
        except json.JSONDecodeError as exc:
            raise ConfigError.about(
                option,
                f" is {text!r}, which is not valid JSON: {exc}",
                f"write the positions in the form {_JSON_START}",
            ) from exc
        except InvalidPositionError as exc:
            raise ConfigError.about(option, f": {exc}") from exc

    return parse


POSITIONS_RULE = (
    'a position, or a JSON object that maps shard ids and "default" to positions, as in '
    f"{_JSON_START}"
)

# How to reach the service, whatever is done there.
CONNECTION = by_field(
    Option("region", "AWS region of the stream; default: the region of the AWS configuration"),
    Option(
        "endpointUrl",
        "URL of the Kinesis endpoint, such as a VPC endpoint or a local emulator; default: the "
        "endpoint of the region",
    ),
    Option(
        "profile",
        "name of a profile in the AWS configuration files; default: the profile "
        "that botocore chooses",
    ),
    Option(
        "awsAccessKeyId",
        "AWS access key id; default: the credentials that botocore finds",
        field="access_key_id",
        secret=True,
    ),
    Option(
        "awsSecretAccessKey",
        "AWS secret access key, which no log or error shows",
        field="secret_access_key",
        secret=True,
    ),
    Option(
        "awsSessionToken",
        "AWS session token of a temporary access key",
        field="session_token",
        secret=True,
    ),
    Option(
        "roleArn",
        "ARN of a role to assume with STS. The driver and the executors renew the role's "
        "credentials before they expire",
    ),
    Option(
        "roleExternalId",
        "external id that the role in `roleArn` requires",
        secret=True,
    ),
    Option("roleSessionName", "name of the role session, as shown in CloudTrail", "kinesis-spout"),
)

# How to reach ZooKeeper: the fields of `ZookeeperSecurity`, with `zookeeper_` before them.
SECURITY = by_field(
    Option.switch(
        "zookeeperTls",
        "`true` connects to ZooKeeper with TLS and verifies the server's certificate",
        "false",
    ),
    Option(
        "zookeeperCaFile",
        "PEM file, on driver and executors, with the certificate authorities that the job trusts "
        "for ZooKeeper; default: the authorities that the machine trusts",
    ),
    Option(
        "zookeeperCertFile",
        "PEM file, on driver and executors, with the client certificate for ZooKeeper",
    ),
    Option(
        "zookeeperKeyFile",
        "PEM file, on driver and executors, with the client certificate's private key. The key "
        "must have no passphrase",
    ),
    Option.switch(
        "zookeeperVerifyHostname",
        "`false` accepts a trusted ZooKeeper server certificate that was issued for another host "
        "name",
        "true",
    ),
    Option.choice(
        "zookeeperAuth",
        "authentication to ZooKeeper: `none`; `digest` (user and password); `sasl` (DIGEST-MD5, "
        "which needs the pip extra `sasl`); `kerberos` (GSSAPI)",
        "none",
        among=AUTHS,
    ),
    Option("zookeeperUser", "user name for ZooKeeper, with `zookeeperAuth` `digest` or `sasl`"),
    Option(
        "zookeeperPassword",
        "password of `zookeeperUser`. Prefer `zookeeperPasswordFile`, which keeps the "
        "password out of the job's options",
        secret=True,
    ),
    Option(
        "zookeeperPasswordFile",
        "file on the driver whose first line is the password of `zookeeperUser`; default: the "
        f"password in the environment variable `{PASSWORD_VARIABLE}`",
    ),
    Option.choice(
        "zookeeperAcl",
        "access to the znodes that the job creates. `open`: everyone has access. `creator`: only "
        "the job's identity has access. `creator-read`: the job's identity has access, and "
        "everyone can read. Default: `open` if `zookeeperAuth` is `none`, otherwise `creator`",
        among=ACLS,
    ),
)

_STATE = by_field(
    Option(
        "applicationName",
        "name of the application. ZooKeeper stores the checkpoints under this name",
        parse=_znode_name,
        required=True,
        field="application",
    ),
    Option(
        "zookeeper",
        "ZooKeeper connect string, such as `zk1:2181,zk2:2181/chroot`, or `embedded:<directory>` "
        "on a single machine",
        parse=_address,
        rule="embedded:<directory>, such as embedded:.zookeeper",
        required=True,
    ),
    Option(
        "zookeeperRoot",
        "name of the znode that contains all applications",
        "kinesis-spout",
        _znode_name,
    ),
    Option.duration(
        "zookeeperSessionTimeout",
        "ZooKeeper session timeout: the time after which another process can take over a killed "
        "process's application",
        "10s",
        least="1s",
        most="2m",
    ),
)

_READING = by_field(
    Option.choice(
        "wireFormat",
        "encoding of GetRecords responses. `json` needs no extra package. `cbor` takes less CPU, "
        "and needs the pip extra `cbor`. `auto` is `cbor` if the extra is installed and the "
        "endpoint supports CBOR; otherwise, `auto` is `json`",
        "auto",
        among=("auto", "json", "cbor"),
    ),
    Option(
        "startingPosition",
        "position at which a new application starts: `LATEST`, `TRIM_HORIZON`, an ISO time or "
        "`14:00` (UTC), `-2h`, `AT:<sequence>`, `AFTER:<sequence>`, or JSON that maps shard ids "
        "and `default` to such positions",
        "LATEST",
        positions("LATEST"),
        rule=POSITIONS_RULE,
    ),
    Option.choice(
        "readMode",
        "how shards are read. `polling` reads with GetRecords. `efo` reads by enhanced fan-out "
        "with a registered consumer; a shard without a subscription is read with GetRecords",
        "polling",
        among=("polling", "efo"),
    ),
    Option(
        "consumerName",
        "with `readMode` `efo`: name of the enhanced fan-out consumer. The job registers the "
        "consumer if it does not exist. Set `consumerName` or `consumerArn`",
        fits=_CONSUMER_NAME.fullmatch,
        rule="1 to 128 letters, digits, dots, dashes or underscores",
    ),
    Option(
        "consumerArn",
        "with `readMode` `efo`: ARN of an existing enhanced fan-out consumer of the stream. Set "
        "`consumerArn` or `consumerName`",
        fits=_CONSUMER_ARN.fullmatch,
        rule="the ARN of a consumer, such as "
        "arn:aws:kinesis:<region>:<account>:stream/<name>/consumer/<name>:<number>",
    ),
    Option(
        "readsPerSecond",
        "maximum number of GetRecords requests per second to each shard. Kinesis allows 5 "
        "requests per second, shared by all consumers",
        "5",
        _number,
        fits=lambda value: 0.1 <= value <= 1000,
        rule="requests per second, from 0.1 to 1000",
        bounds="0.1 to 1000",
    ),
    Option.size(
        "readBytesPerSecond",
        "maximum number of bytes read per second from each shard. Kinesis allows 2 MB per "
        "second, shared by all consumers",
        "2MiB",
        least="1KiB",
    ),
    Option.switch(
        "failOnDataLoss",
        "`true` stops the job with an error if unread records may have expired. `false` logs a "
        "warning, and the job continues",
        "true",
    ),
    Option.choice(
        "aggregatedRecords",
        "handling of aggregates of the Kinesis Producer Library. `unpack` delivers each user "
        "record. `fail` stops the job with an error. `raw` delivers the aggregate's bytes",
        "unpack",
        among=("unpack", "fail", "raw"),
    ),
    Option.whole(
        "maxUnresolvedPerShard",
        "maximum number of unresolved records (in flight, or waiting for a retry or a dead letter) "
        "per shard. A shard with this many unresolved records is not read until some of them are "
        "acked or dead-lettered",
        "100000",
    ),
    Option.duration(
        "shardRefreshInterval",
        "interval between two listings of the stream's shards",
        "10s",
        least="100ms",
    ),
    Option.duration(
        "ownerWait",
        "maximum time that a new job waits for the application's earlier job to end",
        "30s",
    ),
)

SHARED = {**_STATE, **SECURITY, **CONNECTION, **_READING}


def meaning_of(field: str, spelt: Callable[[str], str] = str) -> str:
    """A shared option's meaning. The options that it names are spelt as their fields are, or as
    `spelt` makes of these.
    """
    fields = {option.name: name for name, option in SHARED.items()}
    return re.sub(
        r"`(\w+)`",
        lambda match: f"`{spelt(fields[match[1]]) if match[1] in fields else match[1]}`",
        SHARED[field].meaning,
    )


def connection_of(values: dict[str, Any], stream: StreamRef | None = None) -> AwsConfig:
    """Take the fields of the connection out of the values. Raises `ConfigError`, which names the
    options.
    """
    own = {each.name: values.pop(each.name) for each in fields(AwsConfig) if each.name in values}
    if stream is not None:
        stream.region_or(own["region"])
    given = {name: value for name, value in own.items() if value is not None}
    check_connection(given, lambda name: SHARED[name].name)
    return AwsConfig(**given)


def security_of(values: dict[str, Any]) -> ZookeeperSecurity:
    """Take ZooKeeper's security out of the values. Raises `ConfigError`."""
    own = {name.removeprefix("zookeeper_"): values.pop(name) for name in SECURITY if name in values}
    try:
        return ZookeeperSecurity(**own)
    except InvalidStoreSettingError as exc:
        raise ConfigError(str(exc)) from exc


def check_consumer(
    values: Mapping[str, Any], stream: StreamRef, spelt: Callable[[str], str] = str
) -> None:
    """Raise `ConfigError` for a consumer that is not needed, missing, or of another stream.
    `spelt`: the name of a field as the user knows it.
    """
    name, arn = values["consumer_name"], values["consumer_arn"]
    mode, by_name, by_arn = map(spelt, ("read_mode", "consumer_name", "consumer_arn"))
    if values["read_mode"] != "efo":
        for field, value in ((by_name, name), (by_arn, arn)):
            if value is not None:
                remedy = f"set {mode} to efo, or omit {field}"
                raise ConfigError.of(field, f"has an effect only with {mode} efo", remedy=remedy)
    elif (name is None) == (arn is None):
        raise ConfigError.of(by_name, f"{mode} efo requires either {by_name} or {by_arn}")
    elif arn is not None:
        SHARED["consumer_arn"].check(by_arn, arn)
        of = _CONSUMER_ARN.fullmatch(arn)
        if of is None or stream not in (StreamRef(of["name"]), StreamRef(of["name"], of["stream"])):
            rule = f"does not belong to stream {stream.name}"
            remedy = f"use the ARN of a consumer of stream {stream.name}"
            raise ConfigError.of(by_arn, rule, arn, remedy=remedy)
