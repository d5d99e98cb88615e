"""The page of one shard: why it stands where it does, and its unresolved records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.html.element import element
from kinesis_spout.html.shell import document
from kinesis_spout.html.text import cut
from kinesis_spout.inspection.explanation import explain
from kinesis_spout.inspection.page import cells
from kinesis_spout.inspection.page.unresolved_tables import by_reason, held, one_by_one
from kinesis_spout.inspection.wording import cut_expiry, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.html.element import Element, Node
    from kinesis_spout.inspection.page.view import View

MAX_RECORDS = 500
MAX_RELATIVES = 50


def shard_page(view: View, shard_id: str) -> str | None:
    """The page as text; None for a shard that the look does not know."""
    look = view.look
    if shard_id not in look.now.shard_ids:
        return None
    explained = explain(look, shard_id)
    return document(
        f"{look.health(shard_id).value}: {cut(shard_id)}",
        *([cells.away()] if view.is_live else []),
        element(
            "section",
            {"class": "live", "id": "top", "aria-label": "Shard"},
            *cells.banner(view),
            element("p", {"class": "over"}, *_over(view)),
            element("h1", {}, cells.value(shard_id, 200), " ", cells.chip(look.health(shard_id))),
            element("h2", {}, "Why, and what to do"),
            *cells.causes(explained),
            cells.actions(view, explained.actions(view.commands)),
            element("h2", {}, "State"),
            cells.facts(list(_facts(view, shard_id))),
            element("h2", {}, "Unresolved records"),
            *_records(view, shard_id),
            element("footer", {}, element("p", {}, view.looked())),
        ),
        is_live=view.is_live,
    )


def _over(view: View) -> Iterator[Node]:
    now = view.look.now
    yield element("a", {"href": "/"}, "All shards") if view.is_live else "Shard"
    yield " of application "
    yield cells.value(now.application)
    yield " on stream "
    yield cells.value(now.stream.name)


def _facts(view: View, shard_id: str) -> Iterator[tuple[str, Node]]:
    look, lineage = view.look, view.look.now.lineage
    one = next(each for each in view.status.shards if each.shard_id == shard_id)
    yield "state", one.phase.value
    yield "read to", cells.value(one.position or "-")
    yield "checkpoint", cells.value(one.checkpoint or "none")
    yield "lag", cells.lag(one.lag_ms, measured=one.lag_measured)
    if one.expires_in_ms is not None:
        yield "expires in", cut_expiry(one.expires_in_ms, look.now.stream.retention_ms)
    if one.speed is not None:
        yield "speed", f"{one.speed:.1f}x"
    if one.waits_for:
        yield "waits for", _links(view, one.waits_for)
    if parents := lineage.parents(shard_id):
        yield "parents", _links(view, parents)
    if holds_up := look.now.held_up.get(shard_id):
        yield "waited for by", _links(view, holds_up)
    children = [each for each in look.now.shard_ids if shard_id in lineage.parents(each)]
    if children:
        yield "children", _links(view, children)
    if (listed := lineage.listed.get(shard_id)) is not None:
        first, last = listed.hash_key_range
        yield "hash keys", cells.value(f"{first} to {last}")


def _links(view: View, shard_ids: Sequence[str]) -> Element:
    found: list[Node] = []
    for one in shard_ids[:MAX_RELATIVES]:
        found += [cells.shard_link(view, one), " "]
    return element("span", {}, *found)


def _records(view: View, shard_id: str) -> Iterator[Element]:
    found = held(view, shard_id)
    if not found:
        planned = view.look.now.planned.get(shard_id)
        read = 0 if planned is None or planned.result is None else planned.result.count
        said = "None: every record of it that was read is acked."
        if read:
            said = f"None; {records(read)} of it in the batch under way, not settled yet."
        yield element("p", {}, said)
        return
    yield by_reason(view, found)
    yield one_by_one(view, found, most=MAX_RECORDS, with_shard=False)
