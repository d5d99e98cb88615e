"""Where a timeline's columns are in its picture, in pixels. A page scales the picture."""

from __future__ import annotations

from kinesis_spout.html.timeline import COLUMNS

WIDTH = 1120.0
LEFT, TOP, RIGHT, BOTTOM = 160.0, 40.0, 24.0, 26.0  # the room beside the lanes
_COLUMN = (WIDTH - LEFT - RIGHT) / COLUMNS


def x_of(column: float) -> float:
    """The left edge of a column."""
    return LEFT + column * _COLUMN


def runs(columns: list[bool]) -> list[tuple[int, int]]:
    """The runs of columns that are true: first, and the one after the last."""
    found: list[tuple[int, int]] = []
    for column, is_in in enumerate(columns):
        if not is_in:
            continue
        if found and found[-1][1] == column:
            found[-1] = found[-1][0], column + 1
        else:
            found.append((column, column + 1))
    return found


def number(pixels: float) -> str:
    """With one digit after the point at most."""
    return f"{pixels:.1f}".removesuffix(".0")
