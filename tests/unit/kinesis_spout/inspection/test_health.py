"""Health over a window: each line of the module's table, and what it must not be taken for."""

from __future__ import annotations

from typing import Any

from kinesis_spout.inspection.health import Health, Look
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
    snapshot,
    state,
    task,
)

ONE, HERE = listed(1), state(1, after(5))
OLD = 30 * HOUR_MS


def health(seen: Look, index: int = 1) -> Health:
    return seen.health(shard(index))


def test_what_came_within_the_window_may_be_unread() -> None:
    """To the millisecond."""
    assert health(look(ONE, HERE, tips={1: behind(WINDOW_MS)})) is Health.OK
    assert health(look(ONE, HERE, tips={1: behind(WINDOW_MS + 1)})) is Health.STALLED


def test_a_batch_may_take_as_long_as_the_one_before() -> None:
    """A job with a long trigger lags between its batches, and stalls only after that."""
    usual = plan(created_ms=NOW_MS - HOUR_MS, previous_ms=NOW_MS - 2 * HOUR_MS)
    late = plan(created_ms=NOW_MS - HOUR_MS, previous_ms=NOW_MS - HOUR_MS - 60_000)
    assert health(look(ONE, HERE, tips={1: behind(HOUR_MS)}, plan=usual)) is Health.LAGGING
    assert health(look(ONE, HERE, tips={1: behind(HOUR_MS)}, plan=late)) is Health.STALLED
    down = look(ONE, HERE, tips={1: behind(HOUR_MS)}, plan=usual, owners=())
    assert health(down) is Health.STALLED


def test_a_batch_that_outlasts_its_trigger_does_not_wait_for_it() -> None:
    """A trigger that is shorter than the window was due just now, whatever the batch does."""
    for age_ms, found in ((12_000, Health.LAGGING), (55_000, Health.STALLED)):
        late = plan(created_ms=NOW_MS - age_ms, previous_ms=NOW_MS - age_ms - 3_000)
        log = run_log(HOUR_MS, trigger_ms=3_000)
        seen = look(ONE, HERE, tips={1: behind(age_ms)}, plan=late, log=log)
        assert health(seen) is found


def test_a_batch_that_was_read_and_hangs_is_stalled_though_nothing_new_comes() -> None:
    """Its records come again unless it is settled. It may take as long as the one before."""
    log = TaskLog(entries=(read_of(1, 9),), sealed=True)
    usual = plan(task(slice_of(HERE), log=log))
    began_ms = NOW_MS - HOUR_MS
    hangs = plan(task(slice_of(HERE), log=log), created_ms=began_ms, previous_ms=began_ms - 60_000)
    assert health(look(ONE, HERE, plan=usual, tips={1: AT_TIP})) is Health.OK
    assert health(look(ONE, HERE, plan=hangs, tips={1: AT_TIP})) is Health.STALLED
    assert health(look(ONE, HERE, plan=usual, tips={1: AT_TIP}, owners=())) is Health.STALLED
    empty = plan(task(slice_of(HERE), log=TaskLog(entries=(read_of(1, 0),), sealed=True)))
    assert health(look(ONE, HERE, plan=empty, tips={1: AT_TIP}, owners=())) is Health.OK


def test_nothing_is_known_of_a_shard_that_was_never_read_and_does_not_answer() -> None:
    """When it was first seen bounds no lag: its oldest record may be as old as the stream keeps it.
    A shard that was at its tip has a bound, and so has one that is read from a time on.
    """
    begun = {"verified_until_ms": NOW_MS - 60_000}
    new = look(ONE, state(1, TRIM_HORIZON, **begun))
    assert (new.lag_ms(shard(1)), new.expires_in_ms(shard(1))) == (None, None)
    assert look(ONE, state(1, TRIM_HORIZON, at_tip=True, **begun)).lag_ms(shard(1)) == 60_000
    since = Position.at_timestamp(NOW_MS - HOUR_MS)
    assert look(ONE, state(1, since, **begun)).lag_ms(shard(1)) == HOUR_MS
    lapsed = look(ONE, state(1, TRIM_HORIZON, verified_until_ms=NOW_MS - OLD))
    assert (lapsed.lag_ms(shard(1)), lapsed.expires_in_ms(shard(1))) == (OLD, 0)


def test_a_shard_that_is_not_listed_in_both_looks_is_lost() -> None:
    """A listing may be late once."""
    late = Look(before=snapshot(ONE, HERE, now_ms=BEGAN_MS), now=snapshot(HERE))
    assert health(late) is Health.UNKNOWN
    assert health(look(HERE)) is Health.LOSING
    assert look(HERE).expires_in_ms(shard(1)) == 0


def test_the_end_of_a_closed_shard_is_something_to_read() -> None:
    """Its children wait for it. A shard that was closed within the window has time."""
    closed = listed(1, closed=True)
    assert health(look(closed, HERE, tips={1: AT_TIP})) is Health.STALLED
    assert health(look(closed, HERE)) is Health.UNKNOWN
    just = Look(
        before=snapshot(ONE, HERE, now_ms=BEGAN_MS),
        now=snapshot(closed, HERE),
        tips={shard(1): AT_TIP},
    )
    assert health(just) is Health.OK


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


def moving(*, ms: int, lag_ms: int) -> Look:
    """A position that moved by `ms` of stream time in the window."""
    verified_ms = NOW_MS - lag_ms
    return look(
        ONE,
        state(1, after(9), verified_until_ms=verified_ms),
        before=(state(1, after(5), verified_until_ms=verified_ms - ms),),
        tips={1: behind(lag_ms)},
    )


def test_records_are_lost_when_the_horizon_reaches_the_position() -> None:
    """Half as fast as the clock: the gap of 20 h closes in 40. As fast: never. Standing: in 20."""
    assert moving(ms=WINDOW_MS // 2, lag_ms=4 * HOUR_MS).expires_in_ms(shard(1)) == 40 * HOUR_MS
    assert moving(ms=WINDOW_MS, lag_ms=4 * HOUR_MS).expires_in_ms(shard(1)) is None
    still = look(ONE, HERE, tips={1: behind(4 * HOUR_MS)})
    assert still.expires_in_ms(shard(1)) == 20 * HOUR_MS
    assert moving(ms=WINDOW_MS // 2, lag_ms=4 * HOUR_MS).speed(shard(1)) == 0.5
