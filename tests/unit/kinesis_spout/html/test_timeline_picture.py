"""A picture of a timeline: what is in it, for whom, and how large it gets."""

from __future__ import annotations

from kinesis_spout.html.element import render
from kinesis_spout.html.timeline import Lane, Series, Timeline
from kinesis_spout.html.timeline_picture import timeline_figure


def lane(**events: list[tuple[float, int]]) -> Lane:
    named = {Series[series]: what for series, what in events.items()}
    return Lane(name="shard", began_s=0, events=named)


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
