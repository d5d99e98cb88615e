"""Docstrings are written as Markdown; autodoc reads reStructuredText."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SPAN = re.compile(r"`[^`]+`")
_MARKUP = re.compile(r"([\\*|_])")
DIAGRAM_INDENT = 4


def rst_of(markdown: str, module_of: Callable[[str], str | None]) -> str:
    """Inline code becomes literal, a public name a link, an indented block a literal block; nothing
    else is markup. `module_of`: the module whose page documents a name, None for other names.
    """
    parts = []
    for paragraph in re.split(r"\n\s*\n", markdown.strip("\n")):
        if paragraph.strip() and all(
            line.startswith(" " * DIAGRAM_INDENT) for line in paragraph.splitlines()
        ):
            parts.append(f"::\n\n{paragraph}")
        else:
            parts.append(_inline(paragraph, module_of))
    return "\n\n".join(parts)


def _inline(text: str, module_of: Callable[[str], str | None]) -> str:
    spans = re.split(r"(`[^`]+`)", text)
    shown = []
    for index, span in enumerate(spans):
        if not _SPAN.fullmatch(span):
            shown.append(_MARKUP.sub(r"\\\1", span))
            continue
        content = " ".join(span[1:-1].split())
        after = spans[index + 1] if index + 1 < len(spans) else ""
        # a literal must be followed by a space or punctuation: the escaped space is invisible
        shown.append(_code(content, module_of) + ("\\ " if re.match(r"\w", after) else ""))
    return "".join(shown)


def _code(content: str, module_of: Callable[[str], str | None]) -> str:
    module = module_of(content)
    return f"``{content}``" if module is None else f":py:obj:`{content} <{module}.{content}>`"
