"""The command line: every command with its arguments and options, from the typer application."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from kinesis_spout.cli.main import OWN_COMMANDS, app
from scripts.reference.markdown import REQUIRED, anchor, block, code, page, plain, table
from scripts.reference.words import EXIT_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
PROGRAM = "kinesis-spout"


def commands() -> dict[str, Any]:
    """The commands by name, as click objects: those of `kinesis_spout`, and those that
    pyproject.toml registers.
    """
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    group: Any = typer.main.get_command(app)
    found = {name: group.get_command(None, name) for name in OWN_COMMANDS}
    for name, point in project["entry-points"]["kinesis_spout.commands"].items():
        module, _, function = point.partition(":")
        alone = typer.Typer(
            pretty_exceptions_enable=False, add_completion=False, rich_markup_mode="rich"
        )
        alone.command(name)(getattr(importlib.import_module(module), function))
        found[name] = typer.main.get_command(alone)
    return dict(sorted(_flat(found)))


def _flat(commands: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The commands, those below a group with the group's name before theirs."""
    for name, command in commands.items():
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            yield from _flat({f"{name} {one}": each for one, each in below.items()})


def global_options() -> list[Any]:
    """The options that stand before the command."""
    group: Any = typer.main.get_command(app)
    return list(group.params)


def commands_page() -> str:
    return page(
        "## Before the command",
        _table(global_options()),
        "## Exit codes",
        table(("code", "meaning"), [(code(number), text) for number, text in EXIT_CODES.items()]),
        *(_command(name, command) for name, command in commands().items()),
    )


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    required = [f"{one.opts[0]} {_metavar(one)}" for one in options if one.required]
    words = [_metavar(one) if one.required else f"[{_metavar(one)}]" for one in arguments]
    usage = " ".join([PROGRAM, name, *words, *required, "[OPTIONS]"])
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(getattr(option, "rich_help_panel", None) or "", []).append(option)
    return page(
        anchor(f"command-{name.replace(' ', '-')}"),
        f"## `{PROGRAM} {name}`",
        *(plain(paragraph) for paragraph in _help(command.help).split("\n\n")),
        block("console", f"$ {usage}"),
        _table(arguments) if arguments else "",
        *(
            (f"**{plain(panel)}**\n\n" if panel else "") + _table(listed)
            for panel, listed in panels.items()
        ),
    )


def _table(parameters: list[Any]) -> str:
    kind = "argument" if all(one.param_type_name == "argument" for one in parameters) else "option"
    return table(
        (kind, "default", "meaning"),
        [(_names(one), _default(one), plain(_help(one.help))) for one in parameters],
    )


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return code(_metavar(parameter))
    names = ", ".join(code(name) for name in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {code(_metavar(parameter))}"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.strip("_").replace("_", "-")).upper()


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return REQUIRED
    if value is None or value is False or callable(value) or not _is_shown(value):
        return ""
    return code(value)


def _is_shown(value: object) -> bool:
    """Not click's own marks for `no default`, nor a flag's."""
    return isinstance(value, str | int | float | Path) and value is not True and value != ""


def _help(text: str | None) -> str:
    """Without rich's markup, paragraphs kept."""
    shown = Text.from_markup((text or "").strip()).plain
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", shown))
