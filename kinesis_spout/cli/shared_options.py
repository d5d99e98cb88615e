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

from kinesis_spout import options
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, nearest_name
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import SECURITY, SHARED, meaning_of
from scheme.errors import SchemeDefinitionError
from scheme.named import FORMS, scheme_of
from state.errors import InvalidPositionError, InvalidSequenceNumberError
from state.position import StartingPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kinesis_spout.options import Option
    from state.zookeeper.security import ZookeeperSecurity

# The options of the Spark reader that a command takes by `--option`.
AWS = {name: option for name, option in SHARED.items() if name in AwsConfig.__dataclass_fields__}
CONNECTION_OPTIONS = AWS | SECURITY


def flag(field: str, *names: str, panel: str | None = None, needs: str = "", **more: Any) -> Any:
    """The command's option for one of the shared options, whose meaning is its help. `needs`: the
    option that must be given with it.
    """
    shared = SHARED[field]
    if shared.choices:
        more["metavar"] = f"[{'|'.join(shared.choices)}]"
    text = meaning_of(field, lambda name: f"--{name.replace('_', '-')}").replace("`", "")
    text = f"{text[0].upper()}{text[1:]}."
    if needs:
        text = f"{text} Requires {needs}."
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


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
    return aws_config(texts | _given(pairs))


def security_of(pairs: Sequence[str]) -> ZookeeperSecurity:
    """ZooKeeper's security from the same `key=value` texts.

    Raises `ConfigError`, or typer's usage error for a text that is not `key=value`.
    """
    return options.security_of(_read(SECURITY, _given(pairs)))


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
    """The connection from texts by field name. Raises `ConfigError`, which names the option."""
    return options.connection_of(_read(AWS, texts))


@contextmanager
def usage_errors(option: str | None = None) -> Iterator[None]:
    """Turn an error about an option's text into typer's usage error, which names `option`. A parser
    of an option is decorated with it, and needs no name.
    """
    try:
        yield
    except (
        ConfigError,
        InvalidPositionError,
        InvalidSequenceNumberError,
        SchemeDefinitionError,
    ) as exc:
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
        raise typer.BadParameter("the text is not UTF-8") from None


def scheme_flag(panel: str | None = None) -> Any:
    """The option `--scheme`, whose value is a `RecordScheme`."""
    return typer.Option(
        "--scheme",
        metavar="SCHEME",
        parser=usage_errors()(scheme_of),
        rich_help_panel=panel,
        help=f"Show the fields that this scheme reads, in place of the payload: {FORMS}.",
    )


def shard_id_of(text: str) -> str:
    """The shard that a user names, by its id or, as the screens do, by its number alone."""
    return f"shardId-{int(text):012}" if text.isdigit() and text.isascii() else text


def _read(table: Mapping[str, Option], texts: Mapping[str, str]) -> dict[str, Any]:
    return {name: table[name].read(text) for name, text in texts.items() if name in table}


def _given(pairs: Sequence[str]) -> dict[str, str]:
    """The texts of the connection options, by field. Raises `ConfigError` for any other option."""
    return {known_option(key): text for key, text in parse_pairs("--option", pairs).items()}


def known_option(key: str) -> str:
    """The field of a connection option. Raises `ConfigError`, with the nearest name."""
    by_key = {option.name.lower(): name for name, option in CONNECTION_OPTIONS.items()}
    if key.lower() in by_key:
        return by_key[key.lower()]
    known = [option.name for option in CONNECTION_OPTIONS.values()]
    nearest = nearest_name(key, known)
    hint = f"did you mean {nearest}?" if nearest else f"connection options are {', '.join(known)}"
    raise ConfigError(f"option {key} is not a connection option", hint, option=key)


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
