"""The landing page in a checkout that lacks some of the pages which it names.

The order of the sidebar is a list of patterns, and the cards are links. A pattern or a link without
a page is a warning, and a warning is an error, so these are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from sphinx.application import Sphinx

_PATTERN = re.compile(r"^[a-z/-]*\*\n", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([a-z/-]+\.md)\)")


def setup(app: Sphinx) -> None:
    app.connect("source-read", _on_source)


def with_pages(text: str, folder: Path) -> str:
    """The text without patterns that match no page in `folder` that an earlier pattern has not
    matched, and without links to pages that are not there; the words of such a link stay.
    """
    taken: set[Path] = set()

    def kept(line: re.Match[str]) -> str:
        found = set(folder.glob(f"{line[0].strip()}.md")) - taken
        taken.update(found)
        return line[0] if found else ""

    return _LINK.sub(
        lambda link: link[0] if (folder / link[2]).exists() else link[1],
        _PATTERN.sub(kept, text),
    )


def _on_source(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "index":
        source[0] = with_pages(source[0], app.srcdir)
