"""The page of an application: its verdict, its shards over time, and what holds it up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from kinesis_spout.html.element import element
from kinesis_spout.html.line_chart import line_chart
from kinesis_spout.html.shell import document
from kinesis_spout.html.table import Column, table
from kinesis_spout.html.text import count, cut, plural
from kinesis_spout.html.timeline_picture import timeline_figure
from kinesis_spout.inspection.explanation import grouped
from kinesis_spout.inspection.health import SEVERITY, Health
from kinesis_spout.inspection.page import cells
from kinesis_spout.inspection.page.shard_lanes import lanes_of
from kinesis_spout.inspection.page.shard_table import finder, query, shards
from kinesis_spout.inspection.page.unresolved_tables import (
    by_reason,
    held,
    one_by_one,
    shards_cell,
)
from kinesis_spout.inspection.page.view import SPANS_MS
from kinesis_spout.inspection.status import (
    move_sentence,
    owners_sentence,
    plan_sentence,
    unresolved_sentence,
    verdict_sentence,
    waits_sentence,
)
from kinesis_spout.inspection.wording import cut_expiry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.html.element import Attributes, Element, Node
    from kinesis_spout.inspection.explanation import Group
    from kinesis_spout.inspection.page.throughput import Sample
    from kinesis_spout.inspection.page.view import View
    from kinesis_spout.inspection.status import ShardStatus

MAX_EXPLAINED, MAX_GROUPS, MAX_NAMED, MAX_RECORDS, MAX_REASONS = 300, 8, 5, 50, 50
_LEAST_CHART_S = 60.0
_SIGNS = {
    Health.OK: ("kept", "M19 33l9 9 17-19"),
    Health.UNKNOWN: ("slow", "M25 26a7 7 0 1 1 9 7q-2 1-2 5M32 46v.1"),
    Health.PAUSED: ("slow", "M25 21V43M39 21V43"),
    Health.NOT_RUNNING: ("slow", "M23 23H41V41H23Z"),
    Health.LAGGING: ("slow", "M32 18V33l9 7"),
    Health.STALLED: ("broken", "M32 17V37M32 45v.1"),
    Health.LOSING: ("broken", "M21 21l22 22M43 21L21 43"),
}


def application_page(view: View) -> str:
    """The page as text, to be sent or stored as UTF-8. Its size is bounded: lists are cut, and say
    so. Every value in it is escaped.
    """
    now = view.look.now
    return document(
        f"{view.status.verdict.value}: {cut(now.application)} on {cut(now.stream.name)}",
        *([cells.away()] if view.is_live else []),
        element(
            "section",
            {"class": "live", "id": "top", "aria-label": "Now"},
            *cells.banner(view),
            _verdict(view),
            cells.facts(list(_facts(view))),
            element("h2", {}, "Shards over time"),
            *_picture(view),
            element("h2", {}, "Throughput"),
            *_charts(view),
            *_causes(view),
            element("h2", {}, "Shards"),
        ),
        *([finder(view)] if view.is_live else []),
        element(
            "section",
            {"class": "live", "id": "tables", "aria-label": "Tables"},
            *shards(view),
            *_unresolved(view),
            *_letters(view),
            element("footer", {}, *_footer(view)),
        ),
        is_live=view.is_live,
    )


# on top -------------------------------------------------------------------------------------------
def _verdict(view: View) -> Element:
    """A sign, a word and a colour say the same."""
    now, verdict = view.look.now, view.status.verdict
    tone, sign = _SIGNS[verdict]
    stream = f" ({now.stream.status}, keeps {duration(now.stream.retention_ms)})"
    return element(
        "header",
        {"class": f"verdict {tone}"},
        element(
            "svg",
            {"viewBox": "0 0 64 64", "width": 56, "height": 56, "aria-hidden": "true"},
            element("circle", {"cx": 32, "cy": 32, "r": 30}),
            element("path", {"d": sign}),
        ),
        element(
            "div",
            {},
            element(
                "p",
                {"class": "over"},
                "Application ",
                cells.value(now.application),
                " on stream ",
                cells.value(now.stream.name),
                stream,
            ),
            element("h1", {}, verdict.value),
            element("p", {}, verdict_sentence(view.status)),
        ),
    )


def _facts(view: View) -> Iterator[tuple[str, Node]]:
    yield "owner", cells.prose(owners_sentence(view.look))
    if view.look.now.stored.paused:
        yield "paused", "yes: it keeps its place and reads nothing"
    if (plan := plan_sentence(view.look)) is not None:
        yield "plan", cells.prose(plan)
    if (moved := move_sentence(view.look)) is not None:
        yield "moved", cells.prose(moved)
    yield "records", unresolved_sentence(view.status)
    states = Counter(one.phase.value for one in view.status.shards)
    yield "shards", ", ".join(f"{count(many)} {state}" for state, many in states.items()) or "none"
    healths = Counter(one.health for one in view.status.live)
    worst = sorted(healths.items(), key=lambda one: -SEVERITY[one[0]])
    yield "health", element("span", {}, *_healths(view, worst)) if worst else "every shard is over"
    losing = [one.expires_in_ms for one in view.status.shards if one.expires_in_ms is not None]
    if losing:
        least_ms = min(losing)
        told = cut_expiry(least_ms, view.look.now.stream.retention_ms)
        yield "expires in", told if least_ms else "now: records expire, or have expired"
    if (waits := waits_sentence(view.look)) is not None:
        yield "waiting", cells.prose(waits)
    if view.look.refused is not None:
        yield "not asked", cells.prose(view.look.refused)


def _healths(view: View, found: list[tuple[Health, int]]) -> Iterator[Node]:
    for health, many in found:
        said: list[Node] = [f"{count(many)} ", cells.chip(health)]
        if view.is_live:
            said = [element("a", {"href": query(health.value, view.wish.span)}, *said)]
        yield from (*said, " ")


def _picture(view: View) -> Iterator[Element]:
    lanes = lanes_of(view)
    if view.is_live:
        yield element(
            "nav",
            {"aria-label": "Time shown"},
            element("ul", {"class": "pages"}, *(_span(view, one) for one in ("", *SPANS_MS))),
        )
    yield timeline_figure(lanes.timeline, "Shards over time")
    for note in lanes.notes:
        yield element("p", {"class": "soft"}, note)


def _span(view: View, span: str) -> Element:
    here: Attributes = {"aria-current": "true"} if span == view.wish.span else {}
    address: Attributes = {"href": query(view.wish.text, span, view.wish.page)}
    return element("li", {}, element("a", {**address, **here}, span or "what matters"))


def _charts(view: View) -> Iterator[Element]:
    samples = view.samples
    oldest_ms = min((one.at_ms for one in samples), default=view.now_ms)
    span_s = max((view.now_ms - oldest_ms) / 1000, _LEAST_CHART_S)

    def chart(
        title: str, points: list[tuple[Sample, float | None]], name_of: Callable[[float], str]
    ) -> Element:
        ago = [
            ((view.now_ms - sample.at_ms) / 1000, figure)
            for sample, figure in points
            if figure is not None
        ]
        return line_chart(title, ago, span_s, name_of)

    yield element(
        "div",
        {"class": "charts"},
        chart(
            "Stream time read in a second", [(one, one.pace) for one in samples], "{:,.2f} s".format
        ),
        chart("Largest lag", [(one, one.lag_ms) for one in samples], duration),
        *(
            [
                chart(
                    "Rows read in a second",
                    [(one, one.rows_per_s) for one in samples],
                    "{:,.1f}".format,
                )
            ]
            if any(one.rows_per_s is not None for one in samples)
            else []
        ),
    )
    yield element(
        "p",
        {"class": "soft"},
        "1 s of stream time in a second keeps pace with the clock. ",
        "Rows are those that Spark's tasks have published at a look: there may be more.",
    )


# what holds it up ---------------------------------------------------------------------------------
def _causes(view: View) -> Iterator[Element]:
    needy = [one for one in view.status.shards if _needs_a_word(view, one)]
    if not needy:
        return
    groups = grouped(view.look, [one.shard_id for one in needy[:MAX_EXPLAINED]])
    yield element("h2", {}, "Why, and what to do")
    yield element("ul", {"class": "causes"}, *(_group(view, one) for one in groups[:MAX_GROUPS]))
    told = sum(len(one.shards) for one in groups[:MAX_GROUPS])
    if told < len(needy) and view.look.now.is_known:
        more = plural(len(needy) - told, "more shard is", "more shards are")
        yield element("p", {"class": "soft"}, f"{more} held up: the page of each says by what.")


def _needs_a_word(view: View, one: ShardStatus) -> bool:
    """Whether it is not simply well, or was not asked."""
    return (
        not view.look.now.is_known
        or one.health not in {Health.OK, Health.UNKNOWN}
        or one.unresolved > 0
    )


def _group(view: View, group: Group) -> Element:
    explained = group.explanation
    health = view.look.health(explained.shard_id)
    links: list[Node] = []
    for one in group.shards[:MAX_NAMED]:
        links += [cells.shard_link(view, one), " "]
    more = len(group.shards) - MAX_NAMED
    links += [f"and {count(more)} more "] if more > 0 else []
    return element(
        "li",
        {"class": str(cells.TONES[health])},
        element("h3", {}, *links, cells.chip(health)),
        *cells.causes(explained),
        cells.actions(view, explained.actions(view.commands)),
    )


# the tables ---------------------------------------------------------------------------------------
def _unresolved(view: View) -> Iterator[Element]:
    yield element("h2", {}, "Unresolved records")
    records = held(view)
    if not records:
        said = unresolved_sentence(view.status)
        yield element("p", {}, f"{said[:1].upper()}{said[1:]}.")
        return
    yield by_reason(view, records)
    yield one_by_one(view, records, most=MAX_RECORDS, with_shard=True)


def _letters(view: View) -> Iterator[Element]:
    yield element("h2", {}, "Dead letters")
    plan, letters = view.look.now.stored.plan, view.letters
    outcomes = None if plan is None else plan.outcomes
    if outcomes is not None and outcomes.dead_lettered:
        number = plural(outcomes.dead_lettered, "record")
        yield element("p", {}, f"The last batch that reported has dead-lettered {number}.")
    if letters is None:
        yield element(
            "p",
            {},
            "ZooKeeper does not hold dead letters: it counts those of the last batch only. Where "
            "they are files, start kinesis-spout ui with --dead-letters PATH to see their reasons.",
        )
        return
    worst = letters.worst()
    rows: list[tuple[Node, ...]] = [
        (
            cells.value(reason or "(no reason given)", 300),
            count(one.records),
            count(one.attempts) if one.attempts else "-",
            cells.name(one.last_failure[:19] or "-"),
            shards_cell(view, sorted(one.shards)) if one.shards else "-",
            cells.name(one.example),
        )
        for reason, one in worst[:MAX_REASONS]
    ]
    columns = [
        Column("Reason"),
        Column("Records", number=True),
        Column("Attempts, most", number=True),
        Column("Last failure", short=True),
        Column("Shards", short=True),
        Column("One of them", short=True),
    ]
    more = f", the first {MAX_REASONS} of {plural(len(worst), 'reason')}"
    yield element("p", {}, "Files in ", cells.value(letters.place, 200))
    caption = plural(letters.records, "record") + (more if len(worst) > MAX_REASONS else "")
    yield table(caption, columns, rows) if rows else element("p", {}, "There is no dead letter.")
    for note in letters.notes:
        yield element("p", {"class": "soft"}, cells.prose(note))


def _footer(view: View) -> Iterator[Element]:
    yield element("p", {}, view.looked())
    if view.is_live:
        yield element(
            "p",
            {},
            "It only reads, and is looked at again every few seconds. For programs: ",
            element("a", {"href": "/status.json"}, "status.json"),
        )
