"""The command line: `kinesis-spout`.

A command's module is imported when the command is called: `local` must not pay for the import of
boto3 and pyarrow, nor `--help` for all of them. The list of commands takes its sentences from the
source files instead. Commands that need Spark live in `spark_job`, above this
package, and are entry points of the group `kinesis_spout.commands`. A command that cannot be loaded
because the package of an extra is missing stays in the list, and says what to install.
"""

import ast
import importlib.metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
import typer.rich_utils
from rich.markup import escape
from typer.core import TyperGroup

from kinesis_spout import __version__
from kinesis_spout.cli.exit_codes import CliError, one_sentence
from kinesis_spout.cli.shared_options import errors, option
from kinesis_spout.programs import how_to_install

COMMAND_GROUP = "kinesis_spout.commands"
# Those whose module or function has another name.
_ELSEWHERE = {
    "explain": "explain:explain_command",
    "import": "import_:import_",
    "resume": "pause:resume",
    "reset": "checkpoint:reset",
}
# In the order of the help.
_NAMES = (
    *("consume", "produce", "status", "explain", "doctor", "ui", "shards", "checkpoint", "import"),
    *("peek", "pause", "resume", "reset", "consumers", "local", "drill"),
)
OWN_COMMANDS = {
    name: importlib.metadata.EntryPoint(
        name, f"kinesis_spout.cli.{_ELSEWHERE.get(name, f'{name}:{name}')}", COMMAND_GROUP
    )
    for name in _NAMES
}
# Modules that only an extra installs -> the package's name, and the extras of the commands that
# import it.
EXTRAS_BY_MODULE = {"pyspark": ("PySpark", ("spark",)), "psutil": ("psutil", ("spark", "local"))}
# Behind the type, a range takes so much room that names of options are cut in 80 columns.
typer.rich_utils.RANGE_STRING = "\n[{}]"


class CommandsByEntryPoint(TyperGroup):
    """The commands of this package, and those that other packages register."""

    _is_listing = False  # commands are wanted for their names and sentences, not to be called

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._is_listing = True
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        self._is_listing = True
        return super().shell_complete(ctx, incomplete)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # typer suggests names out of `commands`, which has none while commands are loaded by name.
        self.commands: Any = dict.fromkeys(self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """All names. Registered commands come first, because most users come for them; `demo`
        before all others, for newcomers.
        """
        del ctx
        return [*sorted(_entry_points(), key=lambda name: (name != "demo", name)), *OWN_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now unless it is only listed; None for an unknown name."""
        del ctx
        point = OWN_COMMANDS.get(cmd_name) or _entry_points().get(cmd_name)
        if point is None:
            return None
        quick = self._is_listing and all(map(find_spec, EXTRAS_BY_MODULE))
        sentence = _sentence_of(point) if quick else None
        if sentence is None:
            return _load(cmd_name, point)
        listed = typer.Typer(add_completion=False, rich_markup_mode="rich")
        listed.command(cmd_name, help=sentence)(lambda: None)
        return typer.main.get_command(listed)


app = typer.Typer(
    name="kinesis-spout",
    cls=CommandsByEntryPoint,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if asked:
        typer.echo(f"kinesis-spout {__version__}")
        raise typer.Exit


@app.callback()
def kinesis_spout(
    *,
    _debug: bool = option("Show the Python traceback of an error.", "--debug", default=False),
    _version: bool = option(
        "Print the version of kinesis-spout and exit.",
        "--version",
        default=False,
        callback=_print_version,
        is_eager=True,
    ),
) -> None:
    """Read Kinesis streams, track each record until it is acked, and checkpoint in ZooKeeper."""


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=COMMAND_GROUP)}


def _sentence_of(point: importlib.metadata.EntryPoint) -> str | None:
    """The first paragraph of the function's docstring, from the source file; None if only importing
    the module tells.
    """
    package, *names = point.module.split(".")
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder, *names).with_suffix(".py")
        tree = ast.parse(file.read_bytes()) if file.is_file() else ast.Module([], [])
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == point.attr:
                return (ast.get_docstring(node) or "").partition("\n\n")[0] or None
    return None


def _load(name: str, point: importlib.metadata.EntryPoint) -> Any:
    command = typer.Typer(
        add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    try:
        function = point.load()
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing not in EXTRAS_BY_MODULE:
            raise
        package, extras = EXTRAS_BY_MODULE[missing]
        install = how_to_install(*extras)

        def fail(ctx: typer.Context) -> None:
            with one_sentence(errors(), ctx=ctx):
                what = f"kinesis-spout {ctx.info_name} needs {package}, which is not installed"
                raise CliError(what, install)

        sentence = _sentence_of(point) or ""  # the list shows only the first paragraph
        command.command(
            name,
            help=escape(
                f"{sentence} (needs {package})\n\n{package} is not installed; {install}".lstrip()
            ),
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )(fail)
    else:
        if isinstance(function, typer.Typer):
            command = function  # commands of its own below it
        else:
            command.command(name)(function)
    loaded = typer.main.get_command(command)
    loaded.name = name  # a group has none of its own, and the list of commands shows it
    return loaded
