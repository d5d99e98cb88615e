"""The results file: one JSON line for each run, appended when the run has ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Result = dict[str, Any]
Identity = tuple[str, str, int]


def identity(result: Result) -> Identity:
    return result["scenario"], result["key"], result["round"]


def load(file: Path) -> list[Result]:
    """The runs in the file. A last line that was cut off is left out: its run is done again."""
    if not file.exists():
        return []
    lines = file.read_text("utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


def append(file: Path, result: Result) -> None:
    """Blocks until the line is written."""
    text = file.read_text("utf-8") if file.exists() else ""
    with file.open("w", encoding="utf-8") as out:
        out.write(text[: text.rfind("\n") + 1] + json.dumps(result) + "\n")
