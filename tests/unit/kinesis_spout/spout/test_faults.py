"""Faults around a spout, and how it reacts: the steps of its threads are run one by one."""

from __future__ import annotations

import pytest

from kinesis_spout.testing import ManualClock
from tests.support.spout.spout_world import APPLICATION, STREAM, SpoutUnderTest, drain
from tests.support.state.breaking_tree import breaking_store


def test_an_idle_shard_is_not_written_at_every_commit() -> None:
    """A later time at the tip is stored at long intervals only. With many shards it would be most
    of all writes.
    """
    under_test = SpoutUnderTest(shards=3)
    under_test.put(3)
    store, tree = breaking_store(under_test.backend, application=APPLICATION, stream=STREAM)
    with under_test.fresh(store=store) as spout:
        for emission in drain(spout, under_test.loops):
            emission.ack()
        under_test.loops.take(
            "commit", "coordinate", "fetch", "fetch", "fetch", "commit", "coordinate"
        )
        tree.written.clear()
        for _ in range(10):
            under_test.clock.advance(1)
            under_test.loops.take("fetch", "fetch", "fetch", "commit", "coordinate")
        assert tree.written == []
        under_test.clock.advance(3600)
        under_test.loops.take("fetch", "fetch", "fetch", "commit", "coordinate")
        assert tree.written != []


def restarted_with_failures(under_test: SpoutUnderTest, *, failed: int) -> list[str]:
    """Close a spout whose records have all failed. Returns their sequence numbers."""
    under_test.put(failed)
    with under_test.fresh() as spout:
        came = drain(spout, under_test.loops)
        assert all(emission.fail("no") for emission in came)
    under_test.clock.advance(100)
    return [emission.sequence_number for emission in came]


def test_payloads_read_again_after_a_restart_are_bounded_by_the_room_for_retries() -> None:
    """The rest is read as records are resolved, until all have come."""
    under_test = SpoutUnderTest()
    failed = restarted_with_failures(under_test, failed=50)
    with under_test.fresh(prefetch_bytes=30) as spout:
        came = []
        for _ in range(len(failed)):
            for _ in range(3):
                under_test.loops.take("fetch", "retries")
                under_test.clock.advance(2)
            held = [
                assigned.shard.held.held_bytes
                for assigned in spout._open_session().scheduler.assigned.values()
            ]
            assert sum(held) <= 30
            while (emission := spout.next_tuple()) is not None:
                came.append((emission.sequence_number, emission.attempt))
                emission.ack()
    assert came == [(number, 2) for number in failed]


def test_thousands_of_records_are_read_again_in_one_step() -> None:
    under_test = SpoutUnderTest()
    failed = restarted_with_failures(under_test, failed=2_000)
    with under_test.fresh() as spout:
        under_test.loops.take("retries")
        assert [emission.sequence_number for emission in drain(spout, under_test.loops)] == failed


class SetClock(ManualClock):
    """A clock whose time of day is changed while the spout runs."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_retries_that_are_read_again_are_due_by_the_spouts_time_not_the_time_of_day(
    ahead_ms: int,
) -> None:
    under_test = SpoutUnderTest()
    restarted_with_failures(under_test, failed=1)
    clock = SetClock()
    clock.advance(under_test.clock.monotonic_s())
    with under_test.fresh(clock=clock) as spout:
        clock.ahead_ms = ahead_ms
        under_test.loops.take("retries", "retries")
        assert [emission.attempt for emission in drain(spout, under_test.loops)] == [2]
