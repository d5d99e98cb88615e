"""The shards as a table, worst first, a page of it at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from kinesis_spout.config import duration
from kinesis_spout.html.element import element
from kinesis_spout.html.table import Column, table
from kinesis_spout.html.text import count, plural
from kinesis_spout.inspection.page.cells import chip, lag, name, shard_link
from kinesis_spout.inspection.page.view import ROWS
from kinesis_spout.inspection.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.html.element import Element, Node
    from kinesis_spout.inspection.page.view import View, Wish
    from kinesis_spout.inspection.status import ShardStatus

_COLUMNS = (
    Column("Shard", short=True),
    Column("Health", short=True),
    Column("State", short=True),
    Column("Read to", short=True),
    Column("Checkpoint", short=True),
    *(
        Column(one, number=True)
        for one in ("Lag", "Lost in", "Speed", "Unacked", "Oldest", "Tries")
    ),
)
MAX_NEIGHBOURS = 2  # pages before and after this one that have a link


def finder(view: View) -> Element:
    """The form that narrows the table. It stays while the page is refreshed."""
    label = "Only shards with this in their name, health or state: "
    given = [element("input", {"type": "hidden", "name": "span", "value": view.wish.span})]
    return element(
        "form",
        {"class": "finder", "action": "/", "method": "get", "role": "search"},
        element("label", {"id": "finder-label"}, label),
        element(
            "input",
            {
                "type": "search",
                "name": "q",
                "value": view.wish.text,
                "aria-labelledby": "finder-label",
                "autocomplete": "off",
            },
        ),
        *(given if view.wish.span else []),
        element("button", {"type": "submit"}, "Show"),
    )


def shards(view: View) -> Iterator[Element]:
    """The table, and links to its other pages."""
    found = [one for one in view.status.shards if _has(one, view.wish.text.strip().lower())]
    pages = max(1, -(-len(found) // ROWS))
    page = min(max(view.wish.page, 1), pages)
    first = (page - 1) * ROWS
    shown = found[first : first + ROWS]
    total = plural(len(view.status.shards), "shard")
    of = total if len(found) == len(view.status.shards) else f"{count(len(found))} of {total}"
    which = f", {count(first + 1)} to {count(first + len(shown))}" if pages > 1 else ""
    caption = f"{of}, the worst first{which}"
    yield table(caption, _COLUMNS, [tuple(_cells(view, one)) for one in shown])
    if pages > 1 and view.is_live:
        yield _pages(view.wish, page, pages)


def _has(one: ShardStatus, text: str) -> bool:
    return not text or any(
        text in each for each in (one.shard_id.lower(), one.health.value, one.phase.value)
    )


def _cells(view: View, one: ShardStatus) -> Iterator[Node]:
    lost = (
        "-"
        if one.expires_in_ms is None
        else duration(one.expires_in_ms)
        if one.expires_in_ms
        else "now"
    )
    yield shard_link(view, one.shard_id)
    yield chip(one.health)
    yield one.phase.value
    yield name(shortened(one.position or "-"))
    yield name(shortened(one.checkpoint or "none"))
    yield lag(one.lag_ms, measured=one.lag_measured)
    yield lost
    yield "-" if one.speed is None or not one.lag_ms else f"{one.speed:.1f}x"
    yield count(one.unresolved) if one.unresolved else "-"
    yield "-" if one.oldest_ms is None else duration(one.oldest_ms)
    yield count(one.attempts) if one.attempts else "-"


def _pages(wish: Wish, page: int, pages: int) -> Element:
    near = range(max(1, page - MAX_NEIGHBOURS), min(pages, page + MAX_NEIGHBOURS) + 1)
    return element(
        "nav",
        {"aria-label": "Pages of the table"},
        element(
            "ul",
            {"class": "pages"},
            *(element("li", {}, _page(wish, one, page)) for one in sorted({1, *near, pages})),
        ),
    )


def _page(wish: Wish, one: int, page: int) -> Element:
    address = query(wish.text, wish.span, one)
    here = {"aria-current": "page"} if one == page else {}
    return element("a", {"href": address, **here}, f"page {count(one)}")  # type: ignore[dict-item]  # a literal name


def query(text: str, span: str, page: int = 1) -> str:
    """The address of the page with these wishes."""
    given = {"q": text, "span": span, "page": page if page > 1 else ""}
    asked = {key: one for key, one in given.items() if one}
    return f"/?{urlencode(asked)}" if asked else "/"
