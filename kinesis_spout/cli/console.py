"""What the commands share on the screen: the consoles and the options before the command's name."""

from dataclasses import dataclass

import typer
from rich.console import Console


@dataclass(slots=True)
class RootOptions:
    """Options that stand before the command's name."""

    debug: bool = False


def root_options(ctx: typer.Context) -> RootOptions:
    """The options before the command's name; the defaults where a command is run without
    `kinesis-spout` around it.
    """
    root = ctx.find_root()
    if not isinstance(root.obj, RootOptions):
        root.obj = RootOptions()
    return root.obj


def errors() -> Console:
    """The console on stderr."""
    return Console(stderr=True)
