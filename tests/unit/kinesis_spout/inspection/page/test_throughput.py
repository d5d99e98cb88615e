"""The samples of lag, pace and rows that the page draws."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_spout.inspection.page.throughput import Sample, sample_of
from state.task_log import TaskLog
from tests.support.inspection.looks import (
    BEGAN_MS,
    NOW_MS,
    behind,
    listed,
    look,
    plan,
    read_of,
    slice_of,
    snapshot,
    state,
    task,
)
from tests.support.inspection.streams import read_to, timed


def test_a_sample_has_the_largest_lag_and_the_mean_pace() -> None:
    was = [read_to(0, BEGAN_MS), read_to(1, BEGAN_MS)]
    now = [read_to(0, NOW_MS), read_to(1, BEGAN_MS)]
    seen = look(timed(0), timed(1), *now, before=(*was,), tips={1: behind(30_000)})
    assert sample_of(seen, None) == Sample(NOW_MS, 30_000, 0.5, None)


@pytest.mark.parametrize(("plan_id", "rows_per_s"), [("7-ab", 2.0), ("6-aa", 5.0)])
def test_rows_are_those_that_the_plan_s_tasks_have_published_since(
    plan_id: str, rows_per_s: float
) -> None:
    """Of a new plan, all of them."""

    def planned(rows: int, **fields: Any) -> dict[str, Any]:
        one = state(0)
        log = TaskLog(entries=(read_of(0, rows),))
        return {"plan": plan(task(slice_of(one), log=log), **fields)}

    seen = look(listed(0), state(0), **planned(50))
    before = snapshot(listed(0), state(0), now_ms=BEGAN_MS, **planned(30, plan_id=plan_id))
    assert sample_of(seen, before).rows_per_s == rows_per_s
