"""What a spout tells of its run, for somebody who only looks."""

from __future__ import annotations

from contextlib import suppress

import pytest

from kinesis_spout.application.run_recorder import TROUBLE_EVERY_S
from kinesis_spout.testing import throttle
from state.retry_policy import RetryPolicy
from state.store.runs import DEACTIVATED, FAILED, FULL, NOT_TAKEN, SPOUT, STOPPED, Hold
from tests.support.spout.spout_world import SpoutUnderTest


def hold(under_test: SpoutUnderTest) -> Hold | None:
    """After two commits, a second apart."""
    for _ in range(2):
        under_test.loops.take("commit")
        under_test.clock.advance(1.0)
    return under_test.run().hold


@pytest.mark.parametrize("error", [None, RuntimeError("no rates")])
def test_a_spout_tells_that_it_began_and_how_it_ended(error: Exception | None) -> None:
    """And its options that matter to who looks: a record is a letter after so many attempts."""
    under_test = SpoutUnderTest()
    retry = RetryPolicy(retry_limit=6, max_age_ms=5_000)
    with suppress(RuntimeError), under_test.fresh(max_pending=7, retry=retry):
        run = under_test.run().newest
        assert run is not None
        assert (run.kind, run.max_pending, run.read_mode, run.end) == (SPOUT, 7, "polling", None)
        assert (run.max_attempts, run.max_age_ms) == (7, 5_000)
        if error is not None:
            raise error
    newest = under_test.run().newest
    assert newest is not None
    assert newest.end is not None
    assert (newest.end.kind, newest.end.says) == (
        (FAILED, "RuntimeError: no rates") if error else (STOPPED, None)
    )


def test_what_holds_a_spout_up_is_told_until_it_is_over() -> None:
    """It is deactivated; its program takes no record, though others are there for it: it may have
    one that it works on, or hangs with; or answers none of those that it has.
    """
    under_test = SpoutUnderTest()
    under_test.put(4)
    with under_test.fresh(max_pending=2, message_timeout_s=None) as spout:
        spout.deactivate()
        seen = hold(under_test)
        assert (seen and seen.kind) == DEACTIVATED
        spout.activate()
        under_test.loops.take()
        first = spout.next_tuple()
        assert first is not None
        since_ms = under_test.clock.now_ms()
        assert hold(under_test) == Hold(kind=NOT_TAKEN, since_ms=since_ms)
        second = spout.next_tuple()
        assert second is not None
        under_test.loops.take("commit")
        seen = hold(under_test)
        assert (seen and seen.kind) == FULL
        first.ack()
        second.ack()
        for _ in range(2):
            emission = spout.next_tuple()
            assert emission is not None
            emission.ack()
        assert spout.next_tuple() is None
        assert hold(under_test) is None


def test_throttled_shards_are_told_once_a_minute() -> None:
    under_test, told_counts = SpoutUnderTest(), []
    with under_test.fresh():
        for _ in range(4):
            under_test.fake.faults.add(throttle(), operation="GetRecords", times=1)
            under_test.loops.take("fetch", "commit")
            told_counts.append([one.count for one in under_test.run().throttled.values()])
            under_test.clock.advance(TROUBLE_EVERY_S / 2)
    assert told_counts == [[1], [1], [3], [3]]
