"""Pieces that several pages have: names, links, chips, the banner, what to do."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING
from urllib.parse import quote

from kinesis_spout.config import duration
from kinesis_spout.html.element import element
from kinesis_spout.html.text import cut
from kinesis_spout.html.timeline import Tone
from kinesis_spout.inspection.cause import introduced
from kinesis_spout.inspection.health import Health

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.html.element import Element, Node
    from kinesis_spout.inspection.cause import Action, Explanation
    from kinesis_spout.inspection.page.view import View

MAX_COMMAND = 2_000
_CHIPS = {
    Health.OK: "kept",
    Health.UNKNOWN: "unsure",
    Health.PAUSED: "slow",
    Health.NOT_RUNNING: "slow",
    Health.LAGGING: "slow",
    Health.STALLED: "broken",
    Health.LOSING: "broken",
}
TONES = {
    Health.OK: Tone.PLAIN,
    Health.UNKNOWN: Tone.UNSURE,
    Health.PAUSED: Tone.SLOW,
    Health.NOT_RUNNING: Tone.SLOW,
    Health.LAGGING: Tone.SLOW,
    Health.STALLED: Tone.BAD,
    Health.LOSING: Tone.BAD,
}


def value(text: str, max_chars: int = 100) -> Element:
    """A text that somebody else gave: cut, and apart from the direction of the text around it."""
    return element("bdi", {"class": "value"}, cut(text, max_chars))


def prose(text: str, max_chars: int = 600) -> Element:
    """A sentence with values in it: cut, and apart from the direction of the text around it."""
    return element("bdi", {}, cut(text, max_chars))


def name(text: str) -> Element:
    """A name that is short as a rule, and is not broken over lines."""
    return element("bdi", {"class": "value id"}, cut(text, 40))


def address_of(shard_id: str) -> str:
    return f"/shard/{quote(shard_id, safe='')}"


def shard_link(view: View, shard_id: str) -> Element:
    if not view.is_live:
        return name(shard_id)
    return element("a", {"href": address_of(shard_id)}, name(shard_id))


def chip(health: Health) -> Element:
    return element("span", {"class": f"chip {_CHIPS[health]}"}, health.value)


def lag(lag_ms: int | None, *, measured: bool) -> str:
    if lag_ms is None:
        return "-"
    return "tip" if not lag_ms else f"{'' if measured else '<'}{duration(lag_ms)}"


def banner(view: View) -> Iterator[Element]:
    """Nothing while looks succeed."""
    if view.trouble is not None:
        yield element(
            "p",
            {"class": "banner", "role": "status"},
            f"No new look for {duration(view.trouble.since_ms)}: ",
            prose(view.trouble.says),
            ". What follows is the last one.",
        )


def away() -> Element:
    """What the script shows where the page itself cannot be fetched again."""
    return element(
        "p",
        {"class": "banner", "id": "away", "hidden": "hidden", "role": "status"},
        "This page is not up to date: its server does not answer. It goes on when it does.",
    )


def causes(explained: Explanation) -> Iterator[Element]:
    """A line for each cause: what holds the shard, what follows from it, remarks."""
    for word, one in explained.introduced():
        yield element("p", {}, element("span", {}, f"{word}: "), prose(one.text, 1_000))


def actions(view: View, found: Sequence[Action]) -> Element:
    return element(
        "ul", {}, *(element("li", {}, *_told(view, word, one)) for word, one in introduced(found))
    )


def _told(view: View, word: str, one: Action) -> Iterator[Node]:
    """The action, with its command as it can be pasted."""
    yield prose(f"{word}: {one.text}")
    if one.command:
        command = shlex.join(["kinesis-spout", *one.command])
        if view.whole_command is not None:
            command = view.whole_command(one.command)
        yield ": "
        yield element("code", {}, cut(command, MAX_COMMAND))


def facts(found: Sequence[tuple[str, Node]]) -> Element:
    """Names and what is known under them."""
    cells = [(element("dt", {}, title), element("dd", {}, said)) for title, said in found]
    return element("dl", {"class": "facts"}, *(cell for pair in cells for cell in pair))
