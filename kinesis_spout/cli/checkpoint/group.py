"""`kinesis-spout checkpoint`: the group of its commands."""

from collections.abc import Callable
from typing import Any

import typer

from kinesis_spout.cli.checkpoint.export import export
from kinesis_spout.cli.checkpoint.history import history
from kinesis_spout.cli.checkpoint.import_export import import_export
from kinesis_spout.cli.checkpoint.move import move
from kinesis_spout.cli.checkpoint.reset import reset
from kinesis_spout.cli.checkpoint.rewind import rewind
from kinesis_spout.cli.checkpoint.show import show
from kinesis_spout.cli.checkpoint.skip import skip


def _group(**commands: Callable[..., None]) -> Callable[[Callable[[], None]], typer.Typer]:
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


_COMMANDS: dict[str, Any] = {
    "show": show,
    "set": move,
    "skip": skip,
    "reset": reset,
    "export": export,
    "import": import_export,
    "history": history,
    "rewind": rewind,
}


@_group(**_COMMANDS)
def checkpoint() -> None:
    """Show, move, save and restore an application's checkpoints."""
