"""How commands declare their options, and the options that several of them share: the connections
to Kinesis and ZooKeeper, `--option KEY=VALUE`, and those before the command's name. Also the
console on stderr.

A command's own options are the arguments of its function, with their types and defaults. What the
help says of each stands in a table of `Options`.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from kinesis_spout import options
from kinesis_spout.cli.exit_codes import exit_code_of, one_sentence
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, nearest_name
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import SECURITY, SHARED, Option, meaning_of
from scheme.errors import SchemeDefinitionError
from scheme.named import FORMS, scheme_of
from state.errors import InvalidPositionError, InvalidSequenceNumberError
from state.position import StartingPosition
from state.zookeeper.security import ZookeeperSecurity

# The options of the Spark reader that a command takes by `--option`.
AWS = {name: option for name, option in SHARED.items() if name in AwsConfig.__dataclass_fields__}
CONNECTION_OPTIONS = AWS | SECURITY
Options = Mapping[str, Any]
"""By the name of its argument, an option: its help, or what `option` or typer makes of it. A switch
has one name only. The options of a panel stand in a table below the panel's name.
"""


def option(text: str, *names: str, **more: Any) -> Any:
    """An option with this help."""
    return typer.Option(*names, help=text, **more)


PAIRS = option("Any other connection option, e.g. profile=work. Repeatable.", metavar="KEY=VALUE")


def parameters_of(
    command: Callable[..., None], table: Options, *others: str
) -> list[inspect.Parameter]:
    """The arguments of a command, but `others`, as typer takes them."""
    panels = {name: told for name, told in table.items() if isinstance(told, dict)}
    found = {name: (told, None) for name, told in table.items() if name not in panels}
    for panel, told in panels.items():
        found |= {name: (one, panel) for name, one in told.items()}
    own = inspect.signature(command, eval_str=True).parameters.values()
    return [
        parameter(one.name, one.annotation, *found[one.name], default=one.default)
        for one in own
        if one.name not in others
    ]


def parameter(
    name: str,
    kind: Any,
    told: Any,
    panel: str | None = None,
    default: Any = inspect.Parameter.empty,
) -> inspect.Parameter:
    """One argument of this type, as typer takes it."""
    if isinstance(told, str):
        told = option(told, *([f"--{name.replace('_', '-')}"] if kind is bool else []))
    if panel is not None:
        told = copy(told)
        told.rich_help_panel = panel
    annotated = Annotated[kind, told]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotated
    )


def as_command(
    run: Callable[..., None], command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """`run` as typer is to see it: with the name and the help of the command, and these arguments
    behind the context.
    """
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    whole = [context, *parameters]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(whole)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {one.name: one.annotation for one in whole}
    return run


def own_options(table: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The decorated command has the options of the table alone. An error becomes a sentence."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(ctx: typer.Context, **given: Any) -> None:
            with sentences(ctx):
                command(**given)

        return as_command(run, command, parameters_of(command, table))

    return decorate


def sentences(
    ctx: typer.Context, code_of: Callable[[Exception], int] = exit_code_of
) -> AbstractContextManager[None]:
    """`one_sentence` on stderr, for this command."""
    return one_sentence(errors(), ctx=ctx, debug=is_debug(ctx), code_of=code_of)


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
    """The connection from fields and from `key=value` texts, which win. Raises `ConfigError`, or
    typer's usage error for a text that is not `key=value`.
    """
    texts = {name: text for name, text in named.items() if text is not None}
    return options.connection_of(_read(AWS, texts | _given(pairs)))


def security_of(pairs: Sequence[str]) -> ZookeeperSecurity:
    """ZooKeeper's security from the same texts. Raises as `connection_of`."""
    return options.security_of(_read(SECURITY, _given(pairs)))


def parse_pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` texts as a mapping. Raises typer's usage error, which names `option`."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # Do not show the text: it may be a secret, which cannot be recognised without its key.
            raise wrong_usage(option, "expected key=value")
        found[key.strip()] = value
    return found


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


def is_debug(ctx: typer.Context) -> bool:
    """Whether --debug stands before the command's name."""
    return bool(ctx.find_root().params.get("_debug"))


def errors() -> Console:
    """The console on stderr."""
    return Console(stderr=True)


def tell(sentence: str, head: str = "", style: str = "") -> None:
    """Print a sentence on stderr as it is, behind a head such as `error:`."""
    errors().print(Text.assemble((head, style), " " if head else "", sentence), soft_wrap=True)


def warn(sentence: str) -> None:
    """Print a warning on stderr."""
    tell(sentence, "warning:", "bold yellow")


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
