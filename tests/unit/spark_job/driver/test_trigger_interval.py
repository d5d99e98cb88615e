"""The trigger of a query, learned from when Spark asks for a batch."""

from __future__ import annotations

import pytest

from spark_job.driver.query_driver import TriggerInterval

QUARTER_MS = 900_000
T = 2_000_000 * QUARTER_MS


@pytest.mark.parametrize(
    ("calls", "known_ms", "is_known"),
    [
        ((T,), None, False),
        # The first batch comes at once, the others when the trigger is due.
        ((T - 400_000, T + 30, T + QUARTER_MS + 50), QUARTER_MS, True),
        # Batches that take as long as they take are no trigger.
        ((T + 3_300, T + 24_400, T + 44_100, T + 65_900), None, False),
        # Without a trigger, an idle query is asked again at once.
        ((T, T + 12, T + 1_020, T + 1_900), None, True),
        # A batch that takes longer than the interval does not unlearn it.
        ((T, T + QUARTER_MS, T + 2 * QUARTER_MS + 77_000), QUARTER_MS, True),
    ],
)
def test_the_interval_shows_in_the_times_of_the_calls(
    calls: tuple[int, ...], known_ms: int | None, *, is_known: bool
) -> None:
    interval = TriggerInterval()
    for call_ms in calls:
        interval.called(call_ms)
    assert (interval.known_ms, interval.is_known) == (known_ms, is_known)
