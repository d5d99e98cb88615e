"""The options that all commands that start Spark have."""

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Spark"
DEFAULT_LOG = Path("kinesis-spout.log")

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master; else Spark's configuration's, else local[*].", rich_help_panel=PANEL
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Spark configuration. Repeatable.", rich_help_panel=PANEL
    ),
]
LogFile = Annotated[Path, typer.Option(help="Where Spark's log goes.", rich_help_panel=PANEL)]
