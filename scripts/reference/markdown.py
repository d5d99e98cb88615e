"""Pieces of Markdown, as MyST reads it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


REQUIRED = "**required**"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a cell may hold inline Markdown, and is put on one line."""
    lines = [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def code(text: object) -> str:
    """Inline code, also of a text that holds backticks; nothing for an empty text."""
    shown = str(text)
    if not shown:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown else f"`{shown}`"


def block(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```\n"


def page(*parts: str) -> str:
    """The parts with an empty line between each two."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def anchor(name: str) -> str:
    """A target that other pages can link to as `#name`."""
    return f"({name})="


def plain(text: str) -> str:
    """Text of the code in which `<`, `*` and `_` stand for themselves; backticks keep their
    meaning.
    """
    spans = re.split(r"(`[^`]*`)", text)
    return "".join(
        span if span.startswith("`") else re.sub(r"([<>*_\[\]\\])", r"\\\1", span) for span in spans
    )


def _row(cells: Sequence[str]) -> str:
    shown = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(shown)} |"
