"""Health over a window: each line of the module's table, and what it must not be taken for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.inspection.health import Health, Look, ShardLook, TipAnswer
from state.plan import PlanStatus
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.report import OnFailure, OutcomePolicy
from state.task_log import TaskLog
from tests.support.inspection.looks import (
    AT_TIP,
    BEGAN_MS,
    HOUR_MS,
    NOW_MS,
    WINDOW_MS,
    after,
    behind,
    failed,
    listed,
    look,
    plan,
    read_of,
    run_log,
    shard,
    slice_of,
    state,
    task,
)

if TYPE_CHECKING:
    from state.store.view import PlanView, TaskView

ONE, HERE = listed(1), state(1, after(5))
OLD = 30 * HOUR_MS


def health(seen: Look, index: int = 1) -> Health:
    return seen.of(shard(index)).health


def batch(began_ms_ago: int, previous_took_ms: int, *tasks: TaskView) -> PlanView:
    """An open plan of so long ago, and how long the one before took."""
    created_ms = NOW_MS - began_ms_ago
    return plan(*tasks, created_ms=created_ms, previous_ms=created_ms - previous_took_ms)


def within(before: Look, now: Look) -> Look:
    """A window that begins with one look and ends with another."""
    return Look(before=replace(before.now, now_ms=BEGAN_MS), now=now.now, tips={shard(1): AT_TIP})


USUAL: dict[str, Any] = {"tips": {1: behind(HOUR_MS)}, "plan": batch(HOUR_MS, HOUR_MS)}
TRIGGER = run_log(HOUR_MS, trigger_ms=3_000)
READ, EMPTY = (
    task(slice_of(HERE), log=TaskLog(entries=(read_of(1, count),), sealed=True)) for count in (9, 0)
)
IDLE: dict[str, Any] = {"tips": {1: AT_TIP}}
CLOSED = listed(1, closed=True)


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        # records that arrived within the window may be unread, to the millisecond
        (look(ONE, HERE, tips={1: behind(WINDOW_MS)}), Health.OK),
        (look(ONE, HERE, tips={1: behind(WINDOW_MS + 1)}), Health.STALLED),
        # a batch may take as long as the one before: a job with a long trigger lags between batches
        (look(ONE, HERE, **USUAL), Health.LAGGING),
        (look(ONE, HERE, **USUAL | {"plan": batch(HOUR_MS, 60_000)}), Health.STALLED),
        (look(ONE, HERE, owners=(), **USUAL), Health.STALLED),
        # a trigger that is shorter than the window was due just now, whatever the batch does
        (
            look(ONE, HERE, tips={1: behind(12_000)}, plan=batch(12_000, 3_000), log=TRIGGER),
            Health.LAGGING,
        ),
        (
            look(ONE, HERE, tips={1: behind(55_000)}, plan=batch(55_000, 3_000), log=TRIGGER),
            Health.STALLED,
        ),
        # a batch that was read and hangs is stalled though nothing new comes: its records come
        # again unless it is settled
        (look(ONE, HERE, plan=plan(READ), **IDLE), Health.OK),
        (look(ONE, HERE, plan=batch(HOUR_MS, 60_000, READ), **IDLE), Health.STALLED),
        (look(ONE, HERE, plan=plan(READ), owners=(), **IDLE), Health.STALLED),
        (look(ONE, HERE, plan=plan(EMPTY), owners=(), **IDLE), Health.OK),
        # a shard that is not listed in both looks is lost; a listing may be late once
        (within(look(ONE, HERE), look(HERE)), Health.UNKNOWN),
        (look(HERE), Health.LOSING),
        # the end of a closed shard is something to read: its children wait for it. One that was
        # closed within the window has time
        (look(CLOSED, HERE, **IDLE), Health.STALLED),
        (look(CLOSED, HERE), Health.UNKNOWN),
        (within(look(ONE, HERE), look(CLOSED, HERE)), Health.OK),
    ],
)
def test_a_shard_is_as_well_as_what_happens_within_the_window(seen: Look, found: Health) -> None:
    assert health(seen) is found


def test_nothing_is_known_of_a_shard_that_was_never_read_and_does_not_answer() -> None:
    """When it was first seen bounds no lag: its oldest record may be as old as the stream keeps it.
    A shard that was at its tip has a bound, and so has one that is read from a time on.
    """
    begun = {"verified_until_ms": NOW_MS - 60_000}
    new = look(ONE, state(1, TRIM_HORIZON, **begun)).of(shard(1))
    assert (new.lag_ms, new.expires_in_ms) == (None, None)
    assert look(ONE, state(1, TRIM_HORIZON, at_tip=True, **begun)).of(shard(1)).lag_ms == 60_000
    since = Position.at_timestamp(NOW_MS - HOUR_MS)
    assert look(ONE, state(1, since, **begun)).of(shard(1)).lag_ms == HOUR_MS
    assert look(HERE).of(shard(1)).expires_in_ms == 0
    lapsed = look(ONE, state(1, TRIM_HORIZON, verified_until_ms=NOW_MS - OLD)).of(shard(1))
    assert (lapsed.lag_ms, lapsed.expires_in_ms) == (OLD, 0)


def test_a_record_that_fails_again_holds_its_shard_however_often_batches_come() -> None:
    """Batches of other shards move nothing of this one. A first retry may still cure it, and so may
    one that began within the window.
    """

    def held(**fields: Any) -> Health:
        order = fields.pop("order", OnFailure.BLOCK_SHARD)
        stored: dict[str, Any] = {"plan": plan(status=PlanStatus.SETTLED)}
        stored |= fields.pop("stored", {})
        one = state(1, after(5), unresolved=(failed(3, **({"attempts": 6} | fields)),))
        policy = OutcomePolicy(on_failure=order)
        return health(look(ONE, one, tips={1: behind(90_000)}, policy=policy, **stored))

    assert held() is Health.STALLED
    assert held(attempts=1) is Health.LAGGING
    assert held(first_failure_ms=BEGAN_MS + 1) is Health.LAGGING
    assert held(order=OnFailure.CONTINUE) is Health.LAGGING
    assert held(stored={"paused": True}) is Health.LAGGING
    parent = state(0, SHARD_END, unresolved=(failed(3, attempts=6),))
    family = (listed(0, closed=True), listed(1, 0), parent, state(1, after(5), 0))
    policy = OutcomePolicy(on_failure=OnFailure.BLOCK_SHARD)
    seen = look(*family, tips={1: behind(90_000)}, policy=policy, plan=plan())
    assert health(seen, 0) is health(seen, 1) is Health.STALLED
    assert seen.now.held_up == {shard(0): (shard(1),)}


def moving(*, ms: int, lag_ms: int) -> ShardLook:
    """A position that moved by `ms` of stream time in the window."""
    verified_ms = NOW_MS - lag_ms
    return look(
        ONE,
        state(1, after(9), verified_until_ms=verified_ms),
        before=(state(1, after(5), verified_until_ms=verified_ms - ms),),
        tips={1: behind(lag_ms)},
    ).of(shard(1))


def test_records_are_lost_when_the_horizon_reaches_the_position() -> None:
    """Half as fast as the clock: the gap of 20 h closes in 40. As fast: never. Standing: in 20."""
    assert moving(ms=WINDOW_MS // 2, lag_ms=4 * HOUR_MS).expires_in_ms == 40 * HOUR_MS
    assert moving(ms=WINDOW_MS, lag_ms=4 * HOUR_MS).expires_in_ms is None
    still = look(ONE, HERE, tips={1: behind(4 * HOUR_MS)})
    assert still.of(shard(1)).expires_in_ms == 20 * HOUR_MS
    assert moving(ms=WINDOW_MS // 2, lag_ms=4 * HOUR_MS).speed == 0.5
    earlier = {shard(1): TipAnswer(BEGAN_MS, NOW_MS - 4 * HOUR_MS + 900)}
    assert replace(still, tips_before=earlier).of(shard(1)).speed == 0.0
