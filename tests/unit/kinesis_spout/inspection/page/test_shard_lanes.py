"""Shards over time: when they were there, how far they were read, what is drawn without times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.html.timeline import Tone
from kinesis_spout.inspection.page.shard_lanes import lanes_of
from kinesis_spout.inspection.page.throughput import Sample, sample_of
from kinesis_spout.inspection.page.view import View, Wish
from state.position import SHARD_END
from state.task_log import TaskLog
from tests.support.inspection.looks import (
    BEGAN_MS,
    NOW_MS,
    behind,
    listed,
    look,
    plan,
    read_of,
    shard,
    slice_of,
    snapshot,
    state,
    task,
)
from tests.support.inspection.streams import read_to, timed

if TYPE_CHECKING:
    from kinesis_spout.html.timeline import Lane
    from kinesis_spout.inspection.health import Look

MINUTE_MS = 60_000


def lanes(seen: Look, span: str = "") -> dict[str, Lane]:
    found = lanes_of(View(look=seen, wish=Wish(span=span))).timeline
    assert found.is_now
    return {one.name: one for one in found.lanes}


def ago_s(seen: Look, at_s: float | None, span: str = "") -> float:
    assert at_s is not None
    return lanes_of(View(look=seen, wish=Wish(span=span))).timeline.ended_s - at_s


def test_a_split_is_where_the_numbers_say_that_it_was() -> None:
    split_ms = NOW_MS - 30 * MINUTE_MS
    seen = look(
        timed(0, closed_ms=split_ms),
        timed(1, 0, created_ms=split_ms),
        state(0, SHARD_END),
        read_to(1, NOW_MS - MINUTE_MS, 0),
        tips={1: behind(MINUTE_MS)},
    )
    found = lanes(seen)
    parent, child = found[shard(0)], found[shard(1)]
    assert ago_s(seen, parent.ended_s) == ago_s(seen, child.began_s) == pytest.approx(1800)
    assert child.parents == (shard(0),)
    assert parent.was_read
    assert child.reach is not None
    assert ago_s(seen, child.reach.read_s) == pytest.approx(60)
    assert child.tone is Tone.BAD


# throughput ---------------------------------------------------------------------------------------
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
