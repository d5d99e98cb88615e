"""An axis has round times, and not too many, whatever it spans."""

from __future__ import annotations

from kinesis_spout.html.time_axis import MAX_TICKS, ticks


def test_no_span_has_more_ticks_than_fit() -> None:
    for power in range(-7, 12):
        for factor in (1, 1.5, 3, 7, 9.99):
            span_s = factor * 10.0**power
            found = ticks(span_s)
            assert len(found) <= MAX_TICKS + 1
            assert found[-1].at_s <= span_s
            assert len(found) >= 3 or power < -5
