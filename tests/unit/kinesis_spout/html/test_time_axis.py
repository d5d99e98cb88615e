"""An axis has round times, and not too many, whatever it spans."""

from __future__ import annotations

import pytest

from kinesis_spout.html.time_axis import MAX_TICKS, ticks


@pytest.mark.parametrize(
    ("span_s", "names"),
    [
        (0, ["0"]),
        (0.3, ["0", "0.05 s", "0.10 s", "0.15 s", "0.20 s", "0.25 s", "0.30 s"]),
        (9, [*"0", "1 s", "2 s", "3 s", "4 s", "5 s", "6 s", "7 s", "8 s", "9 s"]),
        (140, ["0", "15 s", "30 s", "45 s", "1 min", "1:15 min", "1:30 min", "1:45 min"]),
        (3000, ["0", "5 min", "10 min", "15 min", "20 min", "25 min"]),
        (40_000, ["0", "2 h", "4 h", "6 h", "8 h", "10 h"]),
        (17_000, ["0", "30 min", "1 h", "1:30 h", "2 h"]),
        (1_000_000, ["0", "2 d", "4 d", "6 d", "8 d", "10 d"]),
    ],
)
def test_ticks_are_at_round_times(span_s: float, names: list[str]) -> None:
    assert [tick.name for tick in ticks(span_s)][: len(names)] == names


def test_no_span_has_more_ticks_than_fit() -> None:
    for power in range(-7, 12):
        for factor in (1, 1.5, 3, 7, 9.99):
            span_s = factor * 10.0**power
            found = ticks(span_s)
            assert len(found) <= MAX_TICKS + 1
            assert found[-1].at_s <= span_s
            assert len(found) >= 3 or power < -5
