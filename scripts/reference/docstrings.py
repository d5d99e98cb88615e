"""Sphinx's hook for docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scripts.reference.api import rst_of

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", _on_docstring)


def _on_docstring(
    _app: Sphinx, _what: str, name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    lines[:] = [*rst_of("\n".join(lines), name).splitlines(), ""]
