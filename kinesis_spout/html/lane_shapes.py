"""What is drawn in a lane. All shapes of a kind are one path, so that a lane has few elements."""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING

from kinesis_spout.html.element import element
from kinesis_spout.html.plot import number as _n
from kinesis_spout.html.plot import runs, x_of
from kinesis_spout.html.timeline import COLUMNS, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kinesis_spout.html.element import Element
    from kinesis_spout.html.timeline import Row, Timeline

DENSITIES = 5
HIGH_FROM = 18.0  # a lower lane shows no area; its marks are strokes
_SIGN_COLUMNS = 3  # signs nearer than that are one
_STRIP_COLUMNS = 3  # that many are one step of the strip, or regular deliveries would flicker
_REPEATED = 0.4  # of the strip


def bar(row: Row, top: float, height: float) -> Element:
    """The time in which the lane was open."""
    began, ended = x_of(row.first), x_of(COLUMNS if row.last is None else row.last + 1)
    return element(
        "rect",
        {
            "class": f"lane {row.tone}".rstrip(),
            "x": began,
            "y": top,
            "width": ended - began,
            "height": height,
            "rx": 2,
        },
    )


def content(row: Row, top: float, height: float, densest: int) -> Iterator[Element]:
    """`densest`: the number of deliveries in a column that is the darkest."""
    strip = height if height < HIGH_FROM else min(max(height * 0.22, 4.0), 12.0)
    bottom = top + height
    if row.last is not None and row.seen > row.last:
        middle = _n(bottom - strip / 2)
        yield _path("late", f"M{_n(x_of(row.last + 1))} {middle}H{_n(x_of(row.seen))}")
    if height >= HIGH_FROM:
        yield from _progress(row, top + 2, bottom - strip - 1, areas=True)
    yield from _strip(row, bottom - strip, strip, densest)
    if height < HIGH_FROM:
        yield from _progress(row, top + 1, bottom - 1, areas=False)
    yield from _marks(row, top, height)


def reached(timeline: Timeline, row: Row, top: float, height: float) -> Iterator[Element]:
    """How far the lane's consumer is, from the left: what is acked, what was read, what was not;
    and a stroke at the read position and at the checkpoint.
    """
    reach = row.reach
    if reach is None:
        return
    began, ended = x_of(row.first), x_of(COLUMNS if row.last is None else row.last + 1)

    def x_at(at_s: float) -> float:
        at = COLUMNS if at_s >= timeline.ended_s else timeline.column(at_s)
        return min(max(x_of(at), began), ended)

    read = x_at(reach.read_s)
    acked = began if reach.checkpoint_s is None else min(x_at(reach.checkpoint_s), read)
    ahead = read if reach.ahead_s is None else max(read, x_at(reach.ahead_s))
    for name, first, after in (
        ("acked", began, acked),
        ("unacked", acked, read),
        ("partly", read, ahead),
        ("unread", ahead, ended),
    ):
        if after > first:
            yield _path(name, _box(first, after, top, height))
    if reach.checkpoint_s is not None:
        yield _path("stop", _box(max(acked - 2, began), acked, top, height))
    yield _path("reader", _box(max(read - 2, began), max(read, began + 2), top, height))


def _box(first: float, after: float, top: float, height: float) -> str:
    return f"M{_n(first)} {_n(top)}H{_n(after)}v{_n(height)}H{_n(first)}z"


def reads(row: Row) -> list[int]:
    """The deliveries in the steps of the strip."""
    return _strip_steps(row, Series.READ)


def _strip_steps(row: Row, series: Series) -> list[int]:
    counts = row.counts[series]
    return [sum(counts[at : at + _STRIP_COLUMNS]) for at in range(0, COLUMNS, _STRIP_COLUMNS)]


def _strip(row: Row, top: float, height: float, densest: int) -> Iterator[Element]:
    """The deliveries; in the lower part of the strip those that were repeated."""
    # A single record among thousands is to be seen, so the steps are those of the square root.
    depths = [ceil(DENSITIES * sqrt(many / densest)) if many > 0 else 0 for many in reads(row)]
    for depth in range(1, DENSITIES + 1):
        boxes = _strip_runs([one == depth for one in depths])
        if boxes:
            yield _path(f"read d{depth}", _boxes(boxes, top, height))
    again = _strip_runs([many > 0 for many in _strip_steps(row, Series.REPEATED)])
    if again:
        low = max(height * _REPEATED, 2.0)
        yield _path("again", _boxes(again, top + height - low, low))


def _strip_runs(steps: list[bool]) -> list[tuple[int, int]]:
    return [(first * _STRIP_COLUMNS, after * _STRIP_COLUMNS) for first, after in runs(steps)]


def _progress(row: Row, top: float, bottom: float, *, areas: bool) -> Iterator[Element]:
    """What was put as an area, the checkpoint as a line; both as a share of all that was put."""
    put, done = row.running(Series.PUT), row.running(Series.CHECKPOINTED)
    most = max(*put, *done)
    if most <= 0:
        return

    def y_of(many: int) -> float:
        # Half pixels, so that a path has no more points than can be seen.
        return round((bottom - (bottom - top) * max(many, 0) / most) * 2) / 2

    # A closed lane goes on until it was read; there is nothing to say after that.
    after = COLUMNS if row.last is None else max(row.seen, row.last) + 1
    if areas:
        area = _steps(put, y_of, row.first, after)
        yield _path("put", f"{area}V{_n(bottom)}H{_n(x_of(row.first))}z")
    if any(row.counts[Series.CHECKPOINTED]):
        line = _steps(done, y_of, row.first, after)
        if areas:
            yield _path("done", f"{line}V{_n(bottom)}H{_n(x_of(row.first))}z")
        yield _path("checkpoint" if areas else "checkpoint low", line)


def _marks(row: Row, top: float, height: float) -> Iterator[Element]:
    """A failure is a triangle, a dead letter a diamond; in low lanes a short and a long stroke."""
    is_low = height < HIGH_FROM
    for series, name, size in ((Series.FAILED, "failed", 5.0), (Series.DEAD_LETTER, "letter", 8.0)):
        columns = _apart(row.counts[series])
        if is_low:
            reach = height * (0.5 if series is Series.FAILED else 1.0)
            shape = "".join(f"M{_n(x_of(each))} {_n(top)}v{_n(reach)}" for each in columns)
        elif series is Series.FAILED:
            shape = "".join(
                f"M{_n(x_of(each) - size / 2)} {_n(top + 1)}h5l-2.5 4.5z" for each in columns
            )
        else:
            shape = "".join(f"M{_n(x_of(each))} {_n(top + 1)}l4 4-4 4-4-4z" for each in columns)
        if shape:
            yield _path(f"{name} low" if is_low else name, shape)


def inner_joints(columns: Iterable[int], top: float, height: float) -> Element:
    """Splits and merges within a row that several lanes share."""
    shape = "".join(f"M{_n(x_of(each))} {_n(top + height)}v-4" for each in sorted(columns))
    return _path("joint", shape)


def _apart(counts: Sequence[int]) -> list[int]:
    """The columns with a mark, the first one of those that would touch."""
    found: list[int] = []
    for column, many in enumerate(counts):
        if many and (not found or column - found[-1] >= _SIGN_COLUMNS):
            found.append(column)
    return found


def _boxes(columns: Sequence[tuple[int, int]], top: float, height: float) -> str:
    return "".join(_box(x_of(first), x_of(after), top, height) for first, after in columns)


def _steps(values: Sequence[int], y_of: Callable[[int], float], first: int, after: int) -> str:
    """A line that stays level until the value changes, without the points that change nothing."""
    y = y_of(values[first])
    path = f"M{_n(x_of(first))} {_n(y)}"
    for column in range(first + 1, after):
        if (next_y := y_of(values[column])) != y:
            path += f"H{_n(x_of(column))}V{_n(next_y)}"
            y = next_y
    return f"{path}H{_n(x_of(after))}"


def _path(name: str, shape: str) -> Element:
    return element("path", {"class": name, "d": shape})
