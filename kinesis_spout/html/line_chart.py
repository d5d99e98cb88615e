"""A small chart of one figure over the time until now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.html.element import element
from kinesis_spout.html.plot import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kinesis_spout.html.element import Element

COLUMNS = 120
_WIDTH, _HEIGHT = 360.0, 118.0
_GAP = 12  # columns
_MINUTES_FROM_S = 120.0
_LEFT, _TOP, _BOTTOM = 8.0, 8.0, 20.0


def line_chart(
    title: str,
    points: Iterable[tuple[float, float]],
    span_s: float,
    name_of: Callable[[float], str],
) -> Element:
    """`points`: seconds before now, and a value of 0 or more. `span_s`: how many seconds are shown.
    `name_of` names a value. Points of one of the `COLUMNS` are one, their mean; a column without a
    point is a gap.
    """
    means = _means(points, span_s)
    highest = max((one for one in means if one is not None), default=0.0)
    last = next((one for one in reversed(means) if one is not None), None)
    said = "no figures yet" if last is None else f"{name_of(last)}, at most {name_of(highest)}"
    bottom = _HEIGHT - _BOTTOM
    return element(
        "figure",
        {"class": "chart"},
        element(
            "figcaption", {}, element("span", {"class": "name"}, title), element("p", {}, said)
        ),
        element(
            "svg",
            {
                "viewBox": f"0 0 {number(_WIDTH)} {number(_HEIGHT)}",
                "role": "img",
                "aria-label": f"{title}: {said}",
            },
            element(
                "line", {"class": "grid", "x1": _LEFT, "x2": _WIDTH, "y1": bottom, "y2": bottom}
            ),
            *_lines(means, highest, bottom),
            element("text", {"class": "from", "x": _LEFT, "y": _HEIGHT - 5}, _ago(span_s)),
            element("text", {"class": "to", "x": _WIDTH - 2, "y": _HEIGHT - 5}, "now"),
        ),
    )


def _ago(span_s: float) -> str:
    return f"{span_s:.0f} s ago" if span_s < _MINUTES_FROM_S else f"{span_s / 60:.0f} min ago"


def _means(points: Iterable[tuple[float, float]], span_s: float) -> list[float | None]:
    columns: list[list[float]] = [[] for _ in range(COLUMNS)]
    for ago_s, value in points:
        if 0 <= ago_s <= span_s and span_s > 0:
            columns[min(int((span_s - ago_s) / span_s * COLUMNS), COLUMNS - 1)].append(value)
    return [sum(one) / len(one) if one else None for one in columns]


def _lines(means: Sequence[float | None], highest: float, bottom: float) -> Iterator[Element]:
    """A line through the columns with a point. A gap of a few columns is a pace of looks slower
    than the columns, and no interruption.
    """
    line, before = "", -COLUMNS
    for column, value in enumerate(means):
        if value is None:
            continue
        x = number(_LEFT + (column + 0.5) * (_WIDTH - _LEFT - 2) / COLUMNS)
        y = number(bottom - (bottom - _TOP) * (value / highest if highest > 0 else 0.0))
        line += f"{'L' if column - before <= _GAP else 'M'}{x} {y}"
        if column - before > _GAP:
            line += "h1"  # a point alone is seen too
        before = column
    if line:
        yield element("path", {"class": "line", "d": line})
