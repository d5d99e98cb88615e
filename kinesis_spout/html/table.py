"""A table with a caption, that can be read by row on a narrow screen and by a screen reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.html.element import element

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesis_spout.html.element import Attributes, Element, Node


class Column(NamedTuple):
    """`number`: the cells are figures, which stand to the right. `short`: a word or two."""

    name: str
    number: bool = False
    short: bool = False


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Node]]) -> Element:
    """The first cell of a row is its header. Raises ValueError for a row of another length."""
    head = element("tr", {}, *(element("th", _cell(one, "col"), one.name) for one in columns))
    return element(
        "div",
        # A keyboard can scroll only what it can reach.
        {"class": "scroll", "role": "region", "aria-label": caption, "tabindex": 0},
        element(
            "table",
            {},
            element("caption", {}, caption),
            element("thead", {}, head),
            element("tbody", {}, *(_row(columns, row) for row in rows)),
        ),
    )


def _row(columns: Sequence[Column], cells: Sequence[Node]) -> Element:
    (first, header), *others = zip(columns, cells, strict=True)
    return element(
        "tr",
        {},
        element("th", _cell(first, "row"), header),
        *(element("td", _cell(column), cell) for column, cell in others),
    )


def _cell(column: Column, scope: str = "") -> Attributes:
    found: Attributes = {"scope": scope} if scope else {}
    name = "number" if column.number else "short" if column.short else ""
    return {**found, "class": name} if name else found
