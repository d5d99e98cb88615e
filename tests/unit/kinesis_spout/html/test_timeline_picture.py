"""A picture of a timeline: what is in it, for whom, and how large it gets."""

from __future__ import annotations

import re

from kinesis_spout.html.element import render
from kinesis_spout.html.timeline import Lane, Series, Timeline
from kinesis_spout.html.timeline_picture import timeline_figure
from tests.support.html.parsed_page import ParsedPage


def parsed(timeline: Timeline) -> ParsedPage:
    page = ParsedPage(render(timeline_figure(timeline, "Shards over time")))
    assert page.faults == []
    return page


def lane(**events: list[tuple[float, int]]) -> Lane:
    named = {Series[series]: what for series, what in events.items()}
    return Lane(name="shard", began_s=0, events=named)


def test_the_checkpoint_is_a_line_of_what_was_put() -> None:
    """It rises to the top when all is checkpointed, and falls where a checkpoint moves back."""
    events = {"PUT": [(0.0, 100)], "CHECKPOINTED": [(15.0, 50), (30.0, -50), (45.0, 100)]}
    page = parsed(Timeline(began_s=0, ended_s=60, lanes=[lane(**events)]))
    (line,) = (attrs["d"] for _, attrs in page.tags if attrs.get("class") == "checkpoint")
    heights = [float(y) for y in re.findall(r"(?:V|M[\d.]+ )([\d.]+)", line)]
    bottom, half, back, top = heights
    assert bottom == back
    assert abs((bottom + top) / 2 - half) <= 0.5
    assert top < half < bottom


def test_the_size_depends_on_the_lanes_and_not_on_the_records() -> None:
    """As many elements for a hundred thousand records as for some hundred."""

    def size(records: int) -> tuple[int, int]:
        at = [(60 * index / records, 1) for index in range(records)]
        text = render(
            timeline_figure(
                Timeline(
                    began_s=0,
                    ended_s=60,
                    lanes=[lane(PUT=at, READ=at, CHECKPOINTED=at, FAILED=at, DEAD_LETTER=at)],
                ),
                "t",
            )
        )
        return text.count("<"), len(text)

    few, many = size(500), size(100_000)
    assert many[0] <= few[0]
    assert many[1] <= few[1] * 1.5
