"""A tree of HTML and SVG elements, and its text.

A string in the tree is text, in an attribute as between the tags: it is escaped when the tree is
rendered, and nothing can be put in that is not. Tags and attributes are those of the lists below.
So no value, whatever it holds, makes an element, an attribute, a script or a request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from kinesis_spout.html.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# fmt: off
Tag = Literal[
    "a", "bdi", "body", "button", "caption", "code", "dd", "div", "dl", "dt", "figcaption",
    "figure", "footer", "form", "h1", "h2", "h3", "header", "input", "label", "li", "main", "meta",
    "nav", "ol", "p", "section", "span", "table", "tbody", "td", "th", "thead", "title", "tr", "ul",
    # SVG
    "circle", "desc", "g", "line", "path", "rect", "svg", "text",
]
Name = Literal[
    "action", "aria-current", "aria-hidden", "aria-label", "aria-labelledby", "autocomplete",
    "charset", "class", "content", "hidden", "href", "http-equiv", "id", "method", "name", "role",
    "scope", "tabindex", "type", "value",
    # SVG
    "cx", "cy", "d", "height", "r", "rx", "viewBox", "width", "x", "x1", "x2", "y", "y1", "y2",
]
# fmt: on
Value: TypeAlias = str | int | float
Attributes: TypeAlias = dict[Name, Value]
TAGS: frozenset[str] = frozenset(get_args(Tag))
NAMES: frozenset[str] = frozenset(get_args(Name))
VOID: frozenset[str] = frozenset({"input", "meta"})  # they have no content and no end tag
# Where a link or a form may lead: a path of the site that the page is from, or a query of it. So
# none leads to another host or runs a script.
_ADDRESSES: frozenset[str] = frozenset({"action", "href"})
_OWN_ADDRESS = re.compile(r"/(?![/\\])[!-~]*|\?[!-~]*")


@dataclass(frozen=True, slots=True)
class Element:
    """One element with all that is in it. Raises ValueError for a tag or an attribute that is not
    in the lists, a number that is not finite, content of a void element, an address that is no
    path of the page's own site.
    """

    tag: Tag
    attributes: Mapping[Name, Value] = field(default_factory=dict)
    children: tuple[Element | str, ...] = ()

    def __post_init__(self) -> None:
        if self.tag not in TAGS:
            raise ValueError(f"<{self.tag}> is not in the list of tags; add it if it runs nothing")
        if self.children and self.tag in VOID:
            raise ValueError(f"<{self.tag}> has no content in HTML; put it beside the element")
        for name, value in self.attributes.items():
            if name not in NAMES:
                raise ValueError(f"{name}= is not in the list of attributes; it must run nothing")
            if name in _ADDRESSES and not _OWN_ADDRESS.fullmatch(str(value)):
                raise ValueError(f"{name}= leads to {value!r}; give it a path of this site, quoted")
            if isinstance(value, float) and not isfinite(value):
                raise ValueError(f"{name}= of <{self.tag}> is {value}; give it a finite number")


Node: TypeAlias = Element | str


def element(
    tag: Tag, attributes: Mapping[Name, Value] | None = None, /, *children: Node
) -> Element:
    """The element with these attributes and, in it, these elements and texts."""
    return Element(tag, attributes or {}, children)


def render(node: Node) -> str:
    """The HTML of a tree. Characters that are not seen become escapes (`text.visible`)."""
    return "".join(_pieces(node))


def _pieces(node: Node) -> Iterator[str]:
    if isinstance(node, str):
        yield escape(visible(node), quote=False)
        return
    attributes = "".join(
        f' {name}="{escape(visible(_text(value)))}"' for name, value in node.attributes.items()
    )
    yield f"<{node.tag}{attributes}>"
    if node.tag not in VOID:
        for child in node.children:
            yield from _pieces(child)
        yield f"</{node.tag}>"


def _text(value: Value) -> str:
    """A float as pixels: one digit after the point, and none that is 0."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
