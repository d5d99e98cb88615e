"""The options of the commands that start Spark."""

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Spark"
DEFAULT_LOG = Path("kinesis-spout.log")

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master (default: from Spark's configuration, otherwise local[*]).",
        rich_help_panel=PANEL,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Spark configuration. Repeatable.", rich_help_panel=PANEL
    ),
]
LogFile = Annotated[Path, typer.Option(help="File for Spark's log.", rich_help_panel=PANEL)]
