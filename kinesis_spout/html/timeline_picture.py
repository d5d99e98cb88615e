"""The picture of a `Timeline` as SVG, with its legend.

A lane has, from the bottom: a strip of the deliveries, the stronger the more; above it, as an area,
the records that were put, and as a line the checkpoint. The distance between the area's edge and
the line is what was still to do. Failures and dead letters are marks at the top. A low lane leaves
out what would not be seen in it.

A lane with a `Reach` shows how far its consumer is instead: acked, read, unread. The elements of a
picture are some for each row, not for each record.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from kinesis_spout.html.band_shapes import bands
from kinesis_spout.html.element import element
from kinesis_spout.html.lane_shapes import HIGH_FROM, bar, content, inner_joints, reached, reads
from kinesis_spout.html.plot import BOTTOM, LEFT, TOP, WIDTH, number, x_of
from kinesis_spout.html.text import count, cut, plural, seconds
from kinesis_spout.html.time_axis import ticks
from kinesis_spout.html.timeline import COLUMNS, Picture, Series, Tone, picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.html.element import Attributes, Element
    from kinesis_spout.html.timeline import Joint, Row, Timeline

_ALL_LANES, _LOW_LANE, _HIGH_LANE, _SHARED_LANE = 560.0, 8.0, 128.0, 14.0
_LINE = 12.0  # the height of a lane's name
_NOTE_FROM = 32.0  # a lower lane shows its name only
_NAME_CHARS = 24


def timeline_figure(timeline: Timeline, title: str) -> Element:
    """The picture and its legend. `title` is read out with a sentence on what is shown."""
    drawn = picture(timeline)
    shared = len(drawn.rows) < len(timeline.lanes)
    caption = (
        f"{plural(len(timeline.lanes), 'shard')}. Neighbours share a row, which is named by its "
        "part of all hash keys."
    )
    return element(
        "figure",
        {},
        _legend(timeline, drawn),
        element(
            "div",
            # A keyboard can scroll only what it can reach.
            {"class": "scroll", "role": "region", "aria-label": title, "tabindex": 0},
            _svg(timeline, drawn, title),
        ),
        *([element("figcaption", {}, caption)] if shared else []),
    )


def _svg(timeline: Timeline, drawn: Picture, title: str) -> Element:
    height, gap = _lane_height(drawn.rows)
    tops = [TOP + index * (height + gap) for index in range(len(drawn.rows))]
    bottom = TOP + len(drawn.rows) * (height + gap)
    densest = max((max(reads(row)) for row in drawn.rows), default=0)
    size: Attributes = {"width": WIDTH, "height": bottom + BOTTOM}
    named: Attributes = {"role": "img", "aria-labelledby": "timeline-title timeline-desc"}
    placed = list(zip(drawn.rows, tops, strict=True))
    return element(
        "svg",
        {"viewBox": f"0 0 {number(WIDTH)} {number(bottom + BOTTOM)}", **size, **named},
        element("title", {"id": "timeline-title"}, title),
        element("desc", {"id": "timeline-desc"}, _described(timeline)),
        *(bar(row, top, height) for row, top in placed),
        *_axis(timeline, bottom),
        *bands(timeline, bottom),
        *(
            _linked(
                row,
                element("title", {}, _told(row)),
                *reached(timeline, row, top, height),
                *content(row, top, height, densest),
            )
            for row, top in placed
        ),
        *(inner_joints(at, tops[row], height) for row, at in sorted(drawn.inner.items())),
        *_joints(drawn.joints, [top + height / 2 for top in tops]),
        *_names(timeline, placed, height, gap),
    )


def _linked(row: Row, *shapes: Element) -> Element:
    """The shapes of a row, which lead to its lane's address."""
    if len(row.lanes) > 1 or not row.lanes[0].address:
        return element("g", {}, *shapes)
    # A picture has many lanes. A keyboard reaches their addresses in a list, and skips them here.
    return element("a", {"href": row.lanes[0].address, "tabindex": -1}, *shapes)


def _lane_height(rows: Sequence[Row]) -> tuple[float, float]:
    """The height of a lane, and of the gap below it."""
    low = _SHARED_LANE if any(len(row.lanes) > 1 for row in rows) else _LOW_LANE
    height = min(max(_ALL_LANES / max(len(rows), 1), low), _HIGH_LANE)
    gap = round(min(max(height / 8, 1.0), 8.0))
    return round(height) - gap, gap


def _axis(timeline: Timeline, bottom: float) -> Iterator[Element]:
    span_s = timeline.ended_s - timeline.began_s
    for tick in ticks(span_s):
        at_s, name = tick
        if timeline.is_now:
            at_s, name = span_s - at_s, f"{name} ago" if at_s else "now"
        x = x_of(COLUMNS * at_s / span_s if span_s > 0 else 0)
        yield element("line", {"class": "grid", "x1": x, "x2": x, "y1": TOP - 8, "y2": bottom + 4})
        yield element("text", {"class": "tick", "x": x, "y": bottom + 18}, name)


def _joints(joints: Sequence[Joint], middles: Sequence[float]) -> Iterator[Element]:
    """From the end of each parent to the beginning of each child."""
    shape, dots = "", ""
    for one in joints:
        x1, y1 = number(x_of(one.from_column)), number(middles[one.from_row])
        x2, y2 = number(x_of(one.to_column)), number(middles[one.to_row])
        shape += f"M{x1} {y1}V{y2}H{x2}"
        dots += f"M{x1} {y1}h0"
    if shape:
        yield element("path", {"class": "joint", "d": shape})
        yield element("path", {"class": "joint dot", "d": dots})


def _names(
    timeline: Timeline, placed: Sequence[tuple[Row, float]], height: float, gap: float
) -> Iterator[Element]:
    """Left of the lanes; where they are low, of some of them."""
    each = max(ceil(_LINE / (height + gap)), 1)
    keys = max((lane.last_key for lane in timeline.lanes), default=0) + 1
    for row, top in placed[::each]:
        with_note = height >= _NOTE_FROM and len(row.lanes) == 1 and row.lanes[0].note
        middle = top + height / 2 + (4 if not with_note else -2)
        right: Attributes = {"x": LEFT - 8}
        yield element("text", {"class": "name", **right, "y": middle}, _name(row, keys))
        if with_note:
            note: Attributes = {"class": "note", **right, "y": middle + 14}
            yield element("text", note, cut(row.lanes[0].note, 40))


def _name(row: Row, keys: int) -> str:
    """`keys`: how many hash keys there are."""
    if len(row.lanes) > 1:
        first, last = row.lanes[0].first_key / keys, row.lanes[-1].last_key / keys
        return f"{first * 100:.1f}-{last * 100:.1f} % · {plural(len(row.lanes), 'shard')}"
    name = row.lanes[0].name
    return name if len(name) <= _NAME_CHARS else f"…{name[-_NAME_CHARS:]}"


# in words -----------------------------------------------------------------------------------------
def _told(row: Row) -> str:
    """The tooltip of a row."""
    names = cut(row.lanes[0].name, 60)
    if len(row.lanes) > 1:
        names = f"{plural(len(row.lanes), 'shard')}, {names} to {cut(row.lanes[-1].name, 60)}"
    what = [f"{count(row.total(one))} {name}" for one, name in _TOTALS.items() if row.total(one)]
    if row.reach is not None and len(row.lanes) == 1 and row.lanes[0].note:
        what.insert(0, row.lanes[0].note)
    return ": ".join([names, *([", ".join(what)] if what else [])])


_TOTALS = {
    Series.PUT: "put",
    Series.READ: "delivered",
    Series.REPEATED: "delivered again",
    Series.FAILED: "failures",
    Series.DEAD_LETTER: "dead letters",
}


def _described(timeline: Timeline) -> str:
    """For those who do not see the picture."""
    shards, faults = plural(len(timeline.lanes), "shard"), plural(len(timeline.bands), "fault")
    faults = "" if timeline.is_now else f", and {faults}"
    joined = count(sum(bool(lane.parents) for lane in timeline.lanes))
    lasted = seconds(timeline.ended_s - timeline.began_s)
    return f"{shards} over {lasted}, {joined} of them from a split or a merge{faults}."


_REACHED = (
    ("acked", "M0 3H20V13H0z", "acked"),
    ("unacked", "M0 3H20V13H0z", "read, not all acked"),
    ("unread", "M0 3H20V13H0z", "not read yet"),
    ("stop", "M9 2H11V14H9z", "checkpoint"),
    ("reader", "M9 2H11V14H9z", "read position"),
)
_PARTLY = (("partly", "M0 3H20V13H0z", "read in some of the row's shards"),)
_TONES = {Tone.SLOW: "lagging", Tone.BAD: "stalled or losing", Tone.UNSURE: "not known"}


def _legend(timeline: Timeline, drawn: Picture) -> Element:
    """What is in the picture, and no more."""
    there = {one for row in drawn.rows for one in Series if any(row.counts[one])}
    joined = bool(drawn.joints or drawn.inner)
    reached_some = [row.reach for row in drawn.rows if row.reach is not None]
    tones = {row.tone for row in drawn.rows}
    settled = any(band.settled_s is not None for band in timeline.bands)
    if _lane_height(drawn.rows)[0] >= HIGH_FROM:
        lanes = [
            ("put", "M0 14V10H6V7H12V3H20V14z", "put, not checkpointed yet", Series.PUT),
            ("done", "M0 14V10H6V7H12V3H20V14z", "checkpointed", Series.CHECKPOINTED),
            ("read d4", "M0 3H20V13H0z", "deliveries: the stronger, the more", Series.READ),
            ("again", "M0 8H20V12H0z", "delivered again", Series.REPEATED),
            ("failed", "M5 4h10l-5 8z", "failure", Series.FAILED),
            ("letter", "M10 2l6 6-6 6-6-6z", "dead letter", Series.DEAD_LETTER),
        ]
    else:
        lanes = [
            ("read d4", "M0 3H20V13H0z", "deliveries: the stronger, the more", Series.READ),
            ("again", "M0 8H20V12H0z", "delivered again", Series.REPEATED),
            ("checkpoint low", "M0 12H6V9H12V5H20", "checkpoint of all put", Series.CHECKPOINTED),
            ("failed low", "M10 4V9", "failure", Series.FAILED),
            ("letter low", "M10 2V14", "dead letter", Series.DEAD_LETTER),
        ]
    entries = [
        *(_REACHED if reached_some else ()),
        *(_PARTLY if any(one.ahead_s is not None for one in reached_some) else ()),
        *(
            (f"lane {tone}", "M1 3H19V13H1z", name)
            for tone, name in _TONES.items()
            if tone in tones
        ),
        *((name, shape, label) for name, shape, label, series in lanes if series in there),
        *([("joint", "M5 2V14M5 2H16M5 14H16", "split or merge")] if joined else []),
        *([("band", "M4 0H16V16H4z", "fault")] if timeline.bands else []),
        *([("after", "M2 0H18V16H2z", "recovering")] if settled else []),
    ]
    return element(
        "ul",
        {"class": "legend", "aria-label": "Legend"},
        *(
            element(
                "li",
                {},
                element(
                    "svg",
                    {"viewBox": "0 0 20 16", "width": 20, "height": 16, "aria-hidden": "true"},
                    element("path", {"class": name, "d": shape}),
                ),
                label,
            )
            for name, shape, label in entries
        ),
    )
