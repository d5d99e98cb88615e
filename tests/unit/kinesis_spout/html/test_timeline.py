"""Lanes become rows of a bounded number of columns, neighbours next to each other."""

from __future__ import annotations

from kinesis_spout.html.timeline import (
    MAX_ROWS,
    SHARED_ROWS,
    Lane,
    Series,
    Timeline,
    picture,
)


def lanes(number: int) -> list[Lane]:
    """Of equal ranges of hash keys, each with one record put."""
    return [
        Lane(
            name=f"shard {index}",
            began_s=0,
            first_key=index * 10,
            last_key=index * 10 + 9,
            events={Series.PUT: [(5.0, 1)]},
        )
        for index in range(number)
    ]


def test_events_are_counted_by_column() -> None:
    """Those outside are counted at the edge, so that no total is wrong."""
    events = [(-5.0, 1), (0.0, 2), (9.999, 3), (10.0, 4), (99.0, 5)]
    lane = Lane(name="a", began_s=0, events={Series.READ: events})
    (row,) = picture(Timeline(began_s=0, ended_s=10, lanes=[lane])).rows
    assert row.counts[Series.READ][0] == 3
    assert row.counts[Series.READ][-1] == 12
    assert row.total(Series.READ) == 15
    assert row.running(Series.READ)[-1] == 15


def test_above_it_neighbours_share_rows_and_nothing_is_left_out() -> None:
    """Rows have as many lanes each, but for one."""
    drawn = picture(Timeline(began_s=0, ended_s=10, lanes=lanes(MAX_ROWS + 1)))
    assert len(drawn.rows) == SHARED_ROWS
    assert {len(row.lanes) for row in drawn.rows} == {3, 4}
    assert sum(row.total(Series.PUT) for row in drawn.rows) == MAX_ROWS + 1
    names = [lane.name for row in drawn.rows for lane in row.lanes]
    assert names == [f"shard {index}" for index in range(MAX_ROWS + 1)]
