"""Pictures and texts of pages have bounds, count right, and hide nothing."""

from __future__ import annotations

import sys
import unicodedata

from kinesis_spout.html.text import cut, visible
from kinesis_spout.html.timeline import MAX_ROWS, SHARED_ROWS, Lane, Series, Timeline, picture

Events = list[tuple[float, int]]


def timeline(*lanes: Lane) -> Timeline:
    return Timeline(began_s=0, ended_s=10, lanes=list(lanes))


def lane(index: int = 0, **events: Events) -> Lane:
    """Of equal ranges of hash keys."""
    return Lane(
        name=f"shard {index}",
        began_s=0,
        first_key=index * 10,
        last_key=index * 10 + 9,
        events={Series[series]: what for series, what in events.items()},
    )


def test_above_a_limit_neighbours_share_rows_and_nothing_is_left_out() -> None:
    """Rows have as many lanes each, but for one."""
    many = [lane(index, PUT=[(5.0, 1)]) for index in range(MAX_ROWS + 1)]
    assert len(picture(timeline(*many[1:])).rows) == MAX_ROWS
    drawn = picture(timeline(*many))
    assert len(drawn.rows) == SHARED_ROWS
    assert {len(row.lanes) for row in drawn.rows} == {3, 4}
    assert sum(row.total(Series.PUT) for row in drawn.rows) == MAX_ROWS + 1
    assert [one for row in drawn.rows for one in row.lanes] == many


def test_no_character_is_unseen_and_what_is_seen_stays() -> None:
    """Controls, formats, surrogates and separators of lines get an escape, all that Unicode has."""
    hidden = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and visible(char) == char
    ]
    assert hidden == []
    seen = "Zürich 東京 שלום नमस्ते e\u0301 & <b> \"' 😀 → ✓"
    assert visible(seen) == seen


def test_a_cut_text_says_how_much_is_missing() -> None:
    assert cut("x" * 100) == "x" * 100
    assert cut("x" * 10_000, 3) == "xxx… (9,997 more characters)"
