"""How commands declare and read their options, and the console on stderr.

A command states each of its options once, as the default of its function's argument:

    until: str | None = option("End once all records that arrived by this time are read.")

An option whose type does not include None is required. A bool is a switch, which has one name, and
is off. The options that say where an application is are `places.command`'s.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, get_args

import typer
from rich.console import Console
from rich.text import Text
from typer.models import OptionInfo, ParameterInfo

from kinesis_spout.cli.exit_codes import one_sentence
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, did_you_mean, parse_duration_ms
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import SECURITY, SHARED, meaning_of
from scheme.errors import SchemeDefinitionError
from scheme.named import FORMS, scheme_of
from state.errors import InvalidPositionError, InvalidSequenceNumberError
from state.position import StartingPosition

# The options of the Spark reader that a command takes by `--option`.
AWS = {name: option for name, option in SHARED.items() if name in AwsConfig.__dataclass_fields__}
CONNECTION_OPTIONS = AWS | SECURITY
MAX_WAIT_S = 366 * 86_400.0  # far below what a thread can wait


# declaring options --------------------------------------------------------------------------------
def option(
    text: str, *names: str, default: Any = None, panel: str | None = None, **more: Any
) -> Any:
    """An option with this help, as the default of an argument. `names`: from the argument's name,
    if none is given.
    """
    return typer.Option(default, *names, help=text, rich_help_panel=panel, **more)


def argument(text: str, name: str, panel: str | None = None, **more: Any) -> Any:
    """An argument without an option's name, which the help shows as `name`."""
    shown: Any = {"metavar": name, "help": text, "show_default": False, "rich_help_panel": panel}
    return typer.Argument(None, **shown, **more)


def flag(field: str, *names: str, needs: str = "", **more: Any) -> Any:
    """The command's option for one of the shared options, whose meaning is its help. `needs`: the
    option that must be given with it.
    """
    shared = SHARED[field]
    if shared.choices:
        more["metavar"] = f"[{'|'.join(shared.choices)}]"
    text = meaning_of(field, lambda name: f"--{name.replace('_', '-')}").replace("`", "")
    text = f"{text[0].upper()}{text[1:]}."
    return option(f"{text} Requires {needs}." if needs else text, *names, **more)


def duration_option(text: str, default: str, **more: Any) -> Any:
    """An option like `10s`, whose value is in seconds."""
    return option(text, default=default, metavar="TIME", parser=_seconds, **more)


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration_ms(text, option="") / 1000
    except ConfigError as exc:
        raise typer.BadParameter(f"{exc.problem.removeprefix(': ')}; {exc.remedy}") from exc
    if seconds > MAX_WAIT_S:
        raise typer.BadParameter(f"{text!r} is too large; pass a smaller value")
    return seconds


def scheme_flag(panel: str | None = None) -> Any:
    """The option `--scheme`, whose value is a `RecordScheme`."""
    text = (
        "Decode the payload with this decoder and show the decoded fields instead of the payload: "
        f"{FORMS}."
    )
    return option(text, "--scheme", metavar="SCHEME", parser=usage_errors()(scheme_of), panel=panel)


def parameter(name: str, kind: Any, declared: ParameterInfo) -> inspect.Parameter:
    """One argument of a command, as typer takes it."""
    if kind is bool and isinstance(declared, OptionInfo):
        declared.param_decls = declared.param_decls or (f"--{name.replace('_', '-')}",)
        declared.default = bool(declared.default)
    elif declared.default is None and type(None) not in get_args(kind):
        declared.default = ...
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=kind
    )


def as_command(
    command: Callable[..., None],
    run: Callable[..., None],
    first: Sequence[inspect.Parameter] = (),
    last: Sequence[inspect.Parameter] = (),
) -> Callable[..., None]:
    """`run` as typer is to see it: with the name and the help of the command, and behind the
    context, with its arguments between `first` and `last`.
    """
    own = [
        parameter(one.name, one.annotation, one.default)
        for one in inspect.signature(command, eval_str=True).parameters.values()
        if isinstance(one.default, ParameterInfo)
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    whole = [context, *first, *own, *last]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(whole)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {one.name: one.annotation for one in whole}
    return run


def own_options(command: Callable[..., None]) -> Callable[..., None]:
    """The decorated command has its own options alone. An error becomes a sentence."""

    def run(ctx: typer.Context, **given: Any) -> None:
        with one_sentence(errors(), ctx=ctx):
            command(**given)

    return as_command(command, run)


def command_group(
    commands: Mapping[str, Callable[..., None]],
) -> Callable[[Callable[[], None]], typer.Typer]:
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


# reading their values -----------------------------------------------------------------------------
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
        raise wrong_usage(option, str(exc)) from exc


def wrong_usage(option: str | None, problem: str) -> typer.BadParameter:
    """Typer's usage error, which names the option."""
    return typer.BadParameter(problem, param_hint=option)


def check_host(host: str) -> None:
    """Raise typer's usage error for an empty address, which means every address to a socket."""
    if not host:
        raise wrong_usage("--host", "the address is empty; pass an address of this machine")


def typed_text(text: str | None) -> str | None:
    """An option's text as it was typed, for a value that is stored or compared in UTF-8. Where the
    locale is ASCII, Python has each byte of other characters as half a surrogate pair.

    Raises typer's usage error. Not for a path: that has to keep the locale's form.
    """
    if text is None or not any("\ud800" <= one <= "\udfff" for one in text):
        return text
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        raise typer.BadParameter("the value is not valid UTF-8") from None


def shard_id_of(text: str) -> str:
    """The shard that a user names, by its id or, as the screens do, by its number alone."""
    return f"shardId-{int(text):012}" if text.isdigit() and text.isascii() else text


def with_zone(option: str, text: str | None) -> str | None:
    """The text of an option that is a position. A time without a zone, which is in UTC, comes back
    whole and with its zone, and a note says that.
    """
    try:
        start = None if text is None else StartingPosition.parse(text)
    except InvalidPositionError:
        return text  # whoever reads it raises
    if start is None or not start.lacks_zone:
        return text
    moment = str(start.pin(SystemClock().now_ms()))
    note(f"{option} {start.text} means {moment}: a time without a time zone is in UTC")
    return moment


def parse_pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` texts as a mapping. Raises typer's usage error, which names `option`."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # Do not show the text: it may be a secret, which cannot be recognised without its key.
            raise wrong_usage(option, "the value must have the form KEY=VALUE")
        found[key.strip()] = value
    return found


def connection_values(pairs: Sequence[str], **named: str | None) -> dict[str, Any]:
    """The connection's values by field, as `kinesis_spout.options` takes them: from fields, and
    from `key=value` texts, which win. Raises `ConfigError`, or typer's usage error for a text that
    is not `key=value`.
    """
    texts = {name: text for name, text in named.items() if text is not None}
    texts |= {known_option(key): text for key, text in parse_pairs("--option", pairs).items()}
    return {name: CONNECTION_OPTIONS[name].read(text) for name, text in texts.items()}


def known_option(key: str) -> str:
    """The field of a connection option. Raises `ConfigError`, with the nearest name."""
    by_key = {option.name.lower(): name for name, option in CONNECTION_OPTIONS.items()}
    if key.lower() in by_key:
        return by_key[key.lower()]
    known = [option.name for option in CONNECTION_OPTIONS.values()]
    hint = did_you_mean(key, known, f"connection options are {', '.join(known)}")
    raise ConfigError.about(key, " is not a connection option", hint)


# stderr -------------------------------------------------------------------------------------------
@cache
def errors() -> Console:
    """The console on stderr. It is one, so that all else is printed above what is redrawn on it."""
    return Console(stderr=True)


def tell(sentence: str | Text, head: str = "", style: str = "") -> None:
    """Print a sentence on stderr as it is, behind a head such as `error:`. In any thread."""
    errors().print(Text.assemble((head, style), " " if head else "", sentence), soft_wrap=True)


def note(sentence: str) -> None:
    """Print a note on stderr."""
    tell(sentence, "note:")


def warn(sentence: str) -> None:
    """Print a warning on stderr."""
    tell(sentence, "warning:", "bold yellow")
