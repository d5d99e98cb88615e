"""Options that several commands share: the connections to Kinesis and ZooKeeper, `--option
KEY=VALUE`, and the options before the command's name. Also the console on stderr.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, nearest_name, parse_bool
from kinesis_spout.errors import ConfigError
from state.errors import (
    InvalidPositionError,
    InvalidSequenceNumberError,
    InvalidStoreSettingError,
)
from state.position import StartingPosition
from state.zookeeper.security import ZookeeperSecurity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Option names of the Spark reader -> fields of AwsConfig.
CONNECTION_OPTIONS = {
    "region": "region",
    "endpointUrl": "endpoint_url",
    "profile": "profile",
    "awsAccessKeyId": "access_key_id",
    "awsSecretAccessKey": "secret_access_key",
    "awsSessionToken": "session_token",
    "roleArn": "role_arn",
    "roleExternalId": "role_external_id",
    "roleSessionName": "role_session_name",
    "wireFormat": "wire_format",
}
# The same, for the fields of ZookeeperSecurity.
ZOOKEEPER_OPTIONS = {
    "zookeeperTls": "tls",
    "zookeeperCaFile": "ca_file",
    "zookeeperCertFile": "cert_file",
    "zookeeperKeyFile": "key_file",
    "zookeeperVerifyHostname": "verify_hostname",
    "zookeeperAuth": "auth",
    "zookeeperUser": "user",
    "zookeeperPassword": "password",
    "zookeeperPasswordFile": "password_file",
    "zookeeperAcl": "acl",
}
_SWITCHES = ("tls", "verify_hostname")


def with_zone(option: str, text: str | None, say: Callable[[str], object]) -> str | None:
    """The text of an option that is a position. A time without a zone, which is in UTC, comes back
    whole and with its zone, and `say` gets a sentence about that.
    """
    try:
        start = None if text is None else StartingPosition.parse(text)
    except InvalidPositionError:
        return text  # whoever reads it raises
    if start is None or not start.lacks_zone:
        return text
    moment = str(start.pin(SystemClock().now_ms()))
    say(f"{option} {start.text} is {moment}: a time without a zone is in UTC")
    return moment


def connection_of(named: Mapping[str, str | None], pairs: Sequence[str]) -> AwsConfig:
    """The connection from fields and from `key=value` texts. The texts win.

    Raises `ConfigError`, or typer's usage error for a text that is not `key=value`.
    """
    texts = {name: text for name, text in named.items() if text is not None}
    return aws_config(texts | _given(CONNECTION_OPTIONS, pairs))


def security_of(pairs: Sequence[str]) -> ZookeeperSecurity:
    """ZooKeeper's security from the same `key=value` texts.

    Raises `ConfigError`, or typer's usage error for a text that is not `key=value`.
    """
    texts = _given(ZOOKEEPER_OPTIONS, pairs)
    values: dict[str, Any] = dict(texts)
    for name, field in ZOOKEEPER_OPTIONS.items():
        if field in _SWITCHES and field in texts:
            values[field] = parse_bool(texts[field], option=name)
    try:
        return ZookeeperSecurity(**values)
    except InvalidStoreSettingError as exc:
        raise ConfigError(str(exc)) from exc


def parse_pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` texts as a mapping. Raises typer's usage error, which names `option`."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # Do not show the text: it may be a secret, which cannot be recognised without its key.
            raise typer.BadParameter("expected key=value", param_hint=option)
        found[key.strip()] = value
    return found


def aws_config(texts: Mapping[str, str]) -> AwsConfig:
    """The connection from texts by field name.

    Raises `ConfigError`, which names the option instead of the field.
    """
    try:
        return AwsConfig(**texts)
    except ConfigError as exc:
        option_names = {field: name for name, field in CONNECTION_OPTIONS.items()}
        raise exc.respelt(option_names[exc.option]) if exc.option in option_names else exc from None


@contextmanager
def usage_errors(option: str) -> Iterator[None]:
    """Turn what is wrong with an option's text into typer's usage error, which names `option`."""
    try:
        yield
    except (ConfigError, InvalidPositionError, InvalidSequenceNumberError) as exc:
        raise typer.BadParameter(str(exc), param_hint=option) from exc


def typed_text(text: str | None) -> str | None:
    """An option's text as it was typed, for a value that is stored or compared in UTF-8. Where the
    locale is ASCII, Python has each byte of other characters as half a surrogate pair.

    Raises typer's usage error. Not for a path: that has to keep the locale's form.
    """
    if text is None or text.isascii() or not any("\ud800" <= one <= "\udfff" for one in text):
        return text
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        raise typer.BadParameter("is not UTF-8") from None


def shard_id_of(text: str) -> str:
    """The shard that a user names, by its id or, as the screens do, by its number alone."""
    return f"shardId-{int(text):012}" if text.isdigit() and text.isascii() else text


def _given(table: Mapping[str, str], pairs: Sequence[str]) -> dict[str, str]:
    """The texts of the options in `table`, by field. Raises `ConfigError` for an option that is in
    no table.
    """
    found = {known_option(key): value for key, value in parse_pairs("--option", pairs).items()}
    return {table[name]: value for name, value in found.items() if name in table}


def known_option(key: str) -> str:
    """The connection option's name as it is spelt. Raises `ConfigError`, with the nearest one."""
    known = (*CONNECTION_OPTIONS, *ZOOKEEPER_OPTIONS)
    by_key = {name.lower(): name for name in known}
    if key.lower() in by_key:
        return by_key[key.lower()]
    nearest = nearest_name(key, known)
    hint = f"did you mean {nearest}?" if nearest else f"connection options are {', '.join(known)}"
    raise ConfigError(f"option {key} is not a connection option; {hint}", option=key)


@dataclass(slots=True)
class RootOptions:
    """Options before the command's name."""

    debug: bool = False


def root_options(ctx: typer.Context) -> RootOptions:
    """The options before the command's name.

    They have their defaults when a command runs without `kinesis-spout` around it.
    """
    root = ctx.find_root()
    if not isinstance(root.obj, RootOptions):
        root.obj = RootOptions()
    return root.obj


def errors() -> Console:
    """The console on stderr."""
    return Console(stderr=True)


def command_group(**commands: Callable[..., None]) -> Callable[[Callable[[], None]], typer.Typer]:
    """The decorated function as a group of these commands, in their order."""

    def group(function: Callable[[], None]) -> typer.Typer:
        made = typer.Typer(
            add_completion=False,
            no_args_is_help=True,
            rich_markup_mode="rich",
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        made.callback()(function)
        for name, command in commands.items():
            made.command(name)(command)
        return made

    return group
