"""The bands of a timeline, with their numbers above. Bands whose numbers would touch share one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.html.element import element
from kinesis_spout.html.plot import TOP, number, runs, x_of
from kinesis_spout.html.text import count, cut, seconds
from kinesis_spout.html.timeline import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.html.element import Attributes, Element
    from kinesis_spout.html.timeline import Band, Timeline

_BADGE_HEIGHT, _DIGIT, _BADGE_Y = 18.0, 6.6, 8.0
_SOME = 5  # bands that a tooltip names


@dataclass(slots=True)
class _Cluster:
    """Bands, by their numbers, that share a badge."""

    timeline: Timeline
    bands: list[tuple[int, Band]] = field(default_factory=list)

    @property
    def label(self) -> str:
        numbers = [each for each, _ in self.bands]
        return f"{min(numbers)}" if len(numbers) == 1 else f"{min(numbers)}-{max(numbers)}"

    @property
    def width(self) -> float:
        return max(len(self.label) * _DIGIT + 8, _BADGE_HEIGHT)

    @property
    def left(self) -> float:
        """It does not depend on the label: a badge grows to the right, towards the next one."""
        return x_of(self.timeline.column(self.bands[0][1].began_s)) - _BADGE_HEIGHT / 2


def bands(timeline: Timeline, bottom: float) -> Iterator[Element]:
    """The bands from above the lanes down to `bottom`, each with a tooltip."""
    clusters = _clusters(timeline)
    # Areas are translucent: a column has one only, of the first band that is there.
    during: dict[int, int] = {}
    after: dict[int, int] = {}
    for index, cluster in enumerate(clusters):
        for _, band in cluster.bands:
            began, ended = timeline.column(band.began_s), timeline.column(band.ended_s)
            settled = ended if band.settled_s is None else timeline.column(band.settled_s)
            for column in range(began, ended + 1):
                during.setdefault(column, index)
            for column in range(ended + 1, settled + 1):
                after.setdefault(column, index)
    after = {column: index for column, index in after.items() if column not in during}
    for index, cluster in enumerate(clusters):
        yield element(
            "g",
            {},
            element("title", {}, "; ".join(_told(cluster))),
            *_area("after", [after.get(column) == index for column in range(COLUMNS)], bottom),
            *_area("band", [during.get(column) == index for column in range(COLUMNS)], bottom),
            *_badge(cluster),
        )


def _clusters(timeline: Timeline) -> list[_Cluster]:
    found: list[_Cluster] = []
    numbered = sorted(enumerate(timeline.bands, start=1), key=lambda one: one[1].began_s)
    for one in numbered:
        alone = _Cluster(timeline, [one])
        if found and alone.left < found[-1].left + found[-1].width + 2:
            found[-1].bands.append(one)
        else:
            found.append(alone)
    return found


def _area(name: str, columns: list[bool], bottom: float) -> Iterator[Element]:
    shape = "".join(
        f"M{number(x_of(first))} {TOP - 8:.0f}H{number(x_of(end))}V{number(bottom)}"
        f"H{number(x_of(first))}z"
        for first, end in runs(columns)
    )
    if shape:
        yield element("path", {"class": name, "d": shape})


def _badge(cluster: _Cluster) -> Iterator[Element]:
    box: Attributes = {
        "x": cluster.left,
        "y": _BADGE_Y,
        "width": cluster.width,
        "height": _BADGE_HEIGHT,
    }
    yield element("rect", {"class": "badge", **box, "rx": _BADGE_HEIGHT / 2})
    middle: Attributes = {"x": cluster.left + cluster.width / 2, "y": _BADGE_Y + 13}
    yield element("text", {"class": "badge", **middle}, cluster.label)


def _told(cluster: _Cluster) -> Iterator[str]:
    for each, band in cluster.bands[:_SOME]:
        began_s = band.began_s - cluster.timeline.began_s
        yield f"{each}: {cut(band.name)}, at {seconds(began_s)} for {seconds(_lasted_s(band))}"
    if len(cluster.bands) > _SOME:
        yield f"and {count(len(cluster.bands) - _SOME)} more"


def _lasted_s(band: Band) -> float:
    return band.ended_s - band.began_s
