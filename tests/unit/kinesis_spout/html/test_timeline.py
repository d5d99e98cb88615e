"""Lanes become rows of a bounded number of columns, neighbours next to each other."""

from __future__ import annotations

from kinesis_spout.html.timeline import (
    COLUMNS,
    MAX_ROWS,
    SHARED_ROWS,
    Joint,
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


def test_a_parent_is_between_its_children_and_a_child_between_its_parents() -> None:
    """That is the order of the middles of their ranges."""
    parent = Lane(name="parent", began_s=0, ended_s=4, first_key=0, last_key=99)
    low = Lane(name="low", began_s=4, ended_s=8, first_key=0, last_key=49, parents=("parent",))
    high = Lane(name="high", began_s=4, ended_s=8, first_key=50, last_key=99, parents=("parent",))
    merged = Lane(name="merged", began_s=8, first_key=0, last_key=99, parents=("low", "high"))
    drawn = picture(Timeline(began_s=0, ended_s=10, lanes=[merged, high, parent, low]))
    assert [row.lanes[0].name for row in drawn.rows] == ["low", "parent", "merged", "high"]
    at_4, at_8 = COLUMNS * 4 // 10, COLUMNS * 8 // 10
    assert sorted(drawn.joints) == [
        Joint(0, at_8, 2, at_8),
        Joint(1, at_4, 0, at_4),
        Joint(1, at_4, 3, at_4),
        Joint(3, at_8, 2, at_8),
    ]
    assert [row.last for row in drawn.rows] == [at_8, at_4, None, at_8]


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
