"""Writes the generated part of the reference: `python -m scripts.reference.write FOLDER`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.reference import api
from scripts.reference.aws import aws_page
from scripts.reference.columns import columns_page
from scripts.reference.commands import commands_page
from scripts.reference.errors import errors_page
from scripts.reference.failpoints import failpoints_page
from scripts.reference.foreign_options import foreign_options_page
from scripts.reference.metrics import metrics_page
from scripts.reference.options import options_page
from scripts.reference.spout_config import spout_config_page
from scripts.reference.znodes import znodes_page
from spark_job.options import AWSLABS, DATABRICKS

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES: dict[str, Callable[[], str]] = {
    "options": options_page,
    "options-awslabs": partial(foreign_options_page, AWSLABS),
    "options-databricks": partial(foreign_options_page, DATABRICKS),
    "spout-config": spout_config_page,
    "columns": columns_page,
    "command-line": commands_page,
    "zookeeper": znodes_page,
    "metrics": metrics_page,
    "errors": errors_page,
    "aws": aws_page,
    "failpoints": failpoints_page,
    **{f"api-{name}": partial(api.api_page, name) for name in api.PAGES},
}


def write_pages(folder: Path) -> None:
    """Write all pages. A file that holds the text already is not touched, so that Sphinx does not
    read it again; a file of no page is removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        path, text = folder / f"{name}.md", make()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    for path in folder.glob("*.md"):
        if path.stem not in PAGES:
            path.unlink()


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
