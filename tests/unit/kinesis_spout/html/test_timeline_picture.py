"""A picture of a timeline: what is in it, for whom, and how large it gets."""

from __future__ import annotations

import re

from kinesis_spout.html.element import render
from kinesis_spout.html.timeline import COLUMNS, Band, Lane, Series, Timeline
from kinesis_spout.html.timeline_picture import timeline_figure
from tests.support.html.parsed_page import ParsedPage


def parsed(timeline: Timeline) -> ParsedPage:
    page = ParsedPage(render(timeline_figure(timeline, "Shards over time")))
    assert page.faults == []
    return page


def lane(**events: list[tuple[float, int]]) -> Lane:
    named = {Series[series]: what for series, what in events.items()}
    return Lane(name="shard", began_s=0, events=named)


def legend(page: ParsedPage) -> list[str]:
    return page.texts.get("li", [])


def test_the_picture_has_a_title_and_a_description() -> None:
    """A screen reader reads them in the place of the picture."""
    page = parsed(Timeline(began_s=0, ended_s=60, lanes=[lane()], bands=[Band("kill", 10, 20)]))
    (names,) = page.values("svg", "aria-labelledby")
    assert names.split() == [*page.values("title", "id"), *page.values("desc", "id")]
    assert page.values("svg", "role") == ["img"]
    assert page.texts["desc"] == [
        "1 shard over 1 min 00 s, 0 of them from a split or a merge, and 1 fault."
    ]


def test_the_legend_names_what_is_there_and_no_more() -> None:
    quiet = parsed(Timeline(began_s=0, ended_s=60, lanes=[lane(PUT=[(1, 1)])]))
    assert legend(quiet) == ["put, not checkpointed yet"]
    letters = [(1.0, 1)]
    dead = parsed(
        Timeline(began_s=0, ended_s=60, lanes=[lane(FAILED=letters, DEAD_LETTER=letters)])
    )
    assert legend(dead) == ["failure", "dead letter"]


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


def test_repeated_deliveries_and_dead_letters_have_shapes_of_their_own() -> None:
    """Colour is not needed to tell them apart."""
    at = [(30.0, 1)]
    page = parsed(
        Timeline(
            began_s=0,
            ended_s=60,
            lanes=[lane(READ=at, REPEATED=at, FAILED=at, DEAD_LETTER=at)],
        )
    )
    shapes = {
        attrs["class"]: attrs["d"] for _, attrs in page.tags if "d" in attrs and "class" in attrs
    }
    assert {"read d5", "again", "failed", "letter"} <= set(shapes)
    drawn = [shapes[name] for name in ("read d5", "again", "failed", "letter")]
    assert len(set(drawn)) == len(drawn)


def test_each_band_has_its_number_and_a_tooltip() -> None:
    bands = [Band("kill -9 <b>", 10, 20, 25), Band("ZooKeeper away", 40, 42)]
    page = parsed(Timeline(began_s=0, ended_s=60, lanes=[lane()], bands=bands))
    texts = [text for text in page.texts["text"] if text in {"1", "2"}]
    assert texts == ["1", "2"]
    assert "1: kill -9 <b>, at 10.0 s for 10.0 s" in page.texts["title"]
    assert "2: ZooKeeper away, at 40.0 s for 2.0 s" in page.texts["title"]
    assert legend(page) == ["fault", "recovering"]


def test_bands_whose_numbers_would_touch_share_one() -> None:
    bands = [Band(f"fault {index}", 30 + index / 100, 30 + index / 100) for index in range(12)]
    page = parsed(Timeline(began_s=0, ended_s=60, lanes=[lane()], bands=bands))
    assert "1-12" in page.texts["text"]
    (told,) = (text for text in page.texts["title"] if text.startswith("1:"))
    assert told.endswith("5: fault 4, at 30.0 s for 0 ms; and 7 more")


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


def test_a_shared_row_is_named_by_its_range_and_its_number_of_shards() -> None:
    many = [
        Lane(name=f"s{index}", began_s=0, first_key=index, last_key=index) for index in range(6400)
    ]
    page = parsed(Timeline(began_s=0, ended_s=60, lanes=many))
    assert page.texts["text"][-1].startswith("98.4-100.0 % · 100 shards")
    assert page.texts["figcaption"][0].startswith("6,400 shards. Neighbours share a row")


def test_an_empty_timeline_is_a_picture_too() -> None:
    page = parsed(Timeline(began_s=0, ended_s=0))
    assert page.count("svg") == 1


def test_marks_that_would_touch_are_one() -> None:
    """Each is a shape of its own: one for every third column at most."""
    at = [(60 * index / 10_000, 1) for index in range(10_000)]
    page = parsed(Timeline(began_s=0, ended_s=60, lanes=[lane(FAILED=at)]))
    (shape,) = (
        attrs["d"]
        for _, attrs in page.tags
        if attrs.get("class") == "failed" and attrs["d"].startswith("M1")
    )
    assert shape.count("z") == COLUMNS // 3
