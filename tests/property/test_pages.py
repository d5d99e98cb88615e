"""Whatever a value holds, a page has the elements of its tree, and the value as text."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kinesis_spout.html.element import element, render
from kinesis_spout.html.shell import document
from kinesis_spout.html.table import Column, table
from kinesis_spout.html.text import visible
from kinesis_spout.html.timeline import Band, Lane, Series, Timeline
from kinesis_spout.html.timeline_picture import timeline_figure
from tests.support.drills.made_up_history import HOSTILE
from tests.support.html.parsed_page import ParsedPage

# Surrogates too: a key that is not UTF-8 may be decoded to them.
CHARACTERS = st.characters(codec=None, categories=None)
MARKUP = st.sampled_from(
    [*HOSTILE, "<", ">", "&", '"', "'", "<!--", "-->", "]]>", "<![CDATA[", "</", "&lt", "&#x3c;"]
)
VALUES = st.one_of(
    st.text(CHARACTERS, max_size=30), st.lists(MARKUP, max_size=4).map("".join), MARKUP
)
SECONDS = st.floats(-1e7, 1e7)
EVENTS = st.lists(st.tuples(SECONDS, st.integers(-3, 1000)), max_size=5)


@given(text=VALUES, name=VALUES)
def test_text_and_attributes_come_back_as_they_were(text: str, name: str) -> None:
    """Read by a parser, but for the characters that are not seen."""
    tree = element("p", {"aria-label": name, "class": "x"}, "[", text, "]")
    page = ParsedPage(render(tree).encode().decode())
    assert page.faults == []
    assert page.tags == [("p", {"aria-label": visible(name), "class": "x"})]
    assert "".join(page.texts["p"]) == f"[{visible(text)}]"


@given(title=VALUES, cell=VALUES)
def test_a_page_has_the_elements_of_its_tree_and_no_more(title: str, cell: str) -> None:
    def tags(title: str, cell: str) -> list[str]:
        text = document(title, table(title, [Column(title), Column("b")], [(cell, title)]))
        page = ParsedPage(text.encode().decode())
        assert page.faults == []
        return [tag for tag, _ in page.tags]

    assert tags(title, cell) == tags("plain", "plain")


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Of any times, also such that contradict each other."""
    lanes = [
        Lane(
            name=draw(VALUES),
            began_s=draw(SECONDS),
            ended_s=draw(st.none() | SECONDS),
            first_key=draw(st.integers(0, 2**128 - 1)),
            last_key=draw(st.integers(0, 2**128 - 1)),
            parents=tuple(draw(st.lists(VALUES, max_size=2))),
            note=draw(VALUES),
            events={series: draw(EVENTS) for series in Series},
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    band = st.builds(Band, VALUES, SECONDS, SECONDS, st.none() | SECONDS)
    return Timeline(
        began_s=draw(SECONDS),
        ended_s=draw(SECONDS),
        lanes=lanes,
        bands=draw(st.lists(band, max_size=4)),
    )


@given(timeline=timelines(), title=VALUES)
@example(
    timeline=Timeline(
        began_s=0.0,
        ended_s=7e-307,
        lanes=[Lane(name="a", began_s=1.0, events={Series.READ: [(0.0, 1), (1.0, 1)]})],
    ),
    title="shorter than a float can scale",
)
def test_any_timeline_has_a_picture(timeline: Timeline, title: str) -> None:
    """Times and counts may be any: a picture is no place to fail."""
    page = ParsedPage(render(timeline_figure(timeline, title)).encode().decode())
    assert page.faults == []
    assert all(float(width) > 0 for width in page.values("rect", "width"))
    read = page.text()
    assert all(visible(lane.name[-20:]) in read for lane in timeline.lanes)
