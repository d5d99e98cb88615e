"""What a spout tells of its run, for somebody who only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.shards.run_recorder import REFUSED_TOLD_S, THROTTLED_TOLD_S
from kinesis_spout.testing import throttle
from state.retry_policy import RetryPolicy
from state.store.runs import DEACTIVATED, FAILED, FULL, NOT_TAKEN, SPOUT, STOPPED, Hold
from tests.support.spout.spout_world import SpoutUnderTest, drain

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import DeadLetter
    from state.store.runs import RefusedLetters


def hold(under_test: SpoutUnderTest) -> Hold | None:
    """After two commits, a second apart."""
    for _ in range(2):
        under_test.loops.take("commit")
        under_test.clock.advance(1.0)
    return under_test.run().hold


def test_a_spout_tells_that_it_began_and_was_stopped() -> None:
    """And its options that matter to who looks: a record is a letter after so many attempts."""
    under_test = SpoutUnderTest()
    retry = RetryPolicy(retry_limit=6, max_age_ms=5_000)
    with under_test.fresh(max_pending=7, retry=retry):
        run = under_test.run().newest
        assert run is not None
        assert (run.kind, run.max_pending, run.read_mode, run.end) == (SPOUT, 7, "polling", None)
        assert (run.max_attempts, run.max_age_ms) == (7, 5_000)
    newest = under_test.run().newest
    assert newest is not None
    assert newest.end is not None
    assert (newest.end.kind, newest.end.says) == (STOPPED, None)


def test_an_error_that_leaves_the_with_block_is_told() -> None:
    under_test = SpoutUnderTest()
    with pytest.raises(RuntimeError), under_test.fresh():
        raise RuntimeError("no rates")
    newest = under_test.run().newest
    assert newest is not None
    assert newest.end is not None
    assert (newest.end.kind, newest.end.says) == (FAILED, "RuntimeError: no rates")


def test_a_deactivated_spout_is_told_until_it_is_activated() -> None:
    under_test = SpoutUnderTest()
    with under_test.fresh() as spout:
        assert hold(under_test) is None
        spout.deactivate()
        seen = hold(under_test)
        assert seen is not None
        assert seen.kind == DEACTIVATED
        spout.activate()
        assert hold(under_test) is None


def test_a_program_that_answers_no_record_is_told() -> None:
    under_test = SpoutUnderTest()
    under_test.put(4)
    with under_test.fresh(max_pending=2, message_timeout_s=None) as spout:
        under_test.loops.take()
        out = [spout.next_tuple(), spout.next_tuple()]
        assert None not in out
        seen = hold(under_test)
        assert seen is not None
        assert seen.kind == FULL
        for emission in out:
            assert emission is not None
            emission.ack()
        assert [spout.next_tuple() is None for _ in range(2)] == [False, False]
        assert hold(under_test) != seen


def test_a_program_that_takes_no_record_is_told() -> None:
    """It may have one that it works on, or hangs with; others are there for it."""
    under_test = SpoutUnderTest()
    under_test.put(4)
    with under_test.fresh(message_timeout_s=None) as spout:
        under_test.loops.take()
        assert spout.next_tuple() is not None
        since_ms = under_test.clock.now_ms()
        seen = hold(under_test)
        assert seen == Hold(kind=NOT_TAKEN, since_ms=since_ms)
        assert spout.next_tuple() is not None
        under_test.loops.take("commit")
        assert under_test.run().hold is None
        while spout.next_tuple() is not None:
            pass
        assert hold(under_test) is None


def test_throttled_shards_are_told_once_a_minute() -> None:
    under_test = SpoutUnderTest()
    under_test.put(4)
    with under_test.fresh():
        told_counts = []
        for _ in range(4):
            under_test.fake.faults.add(throttle(), operation="GetRecords", times=1)
            under_test.loops.take("fetch")
            under_test.loops.take("commit")
            told_counts.append([one.count for one in under_test.run().throttled.values()])
            under_test.clock.advance(THROTTLED_TOLD_S / 2)
        assert told_counts == [[1], [1], [3], [3]]


class Mount:
    """A sink of letters whose folder is there or not."""

    def __init__(self) -> None:
        self.is_there = False

    def __call__(self, _letter: DeadLetter) -> None:
        if not self.is_there:
            raise FileNotFoundError("zk://ann:pass@letters is not there")


def test_refused_letters_are_told_once_a_minute_until_they_are_written() -> None:
    """With the last error, as one sentence without secrets."""
    under_test, mount = SpoutUnderTest(), Mount()
    with under_test.fresh(dead_letter=mount) as spout:

        def refused_after(count: int) -> RefusedLetters | None:
            under_test.put(count)
            for emission in drain(spout, under_test.loops):
                emission.fail("bad", retry=False)
            under_test.loops.take("letters")
            under_test.loops.take("commit")
            return under_test.run().refused_letters

        first = refused_after(2)
        assert first is not None
        assert first.count == 2
        assert first.says == "FileNotFoundError: zk://***@letters is not there"
        assert refused_after(1) == first, "a minute has not passed"
        under_test.clock.advance(REFUSED_TOLD_S)
        later = refused_after(1)
        assert later is not None
        assert later.count == 4
        mount.is_there = True
        under_test.clock.advance(1)
        for _ in range(5):  # a few at a time go out
            under_test.clock.advance(60)
            under_test.loops.take("letters")
        under_test.loops.take("commit")
        assert under_test.run().refused_letters is None
