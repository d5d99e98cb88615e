"""Faults around a spout, and how it reacts: the steps of its threads are run one by one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.testing import ManualClock, early_end
from scheme.record import KPL_MAGIC
from tests.support.spout.spout_world import APPLICATION, STREAM, SpoutUnderTest, drain
from tests.support.state.breaking_tree import breaking_store

if TYPE_CHECKING:
    from kinesis_spout.spout.kinesis_spout import KinesisSpout

MESSAGE = b"\x0a\x00"
AGGREGATE = KPL_MAGIC + MESSAGE + hashlib.md5(MESSAGE, usedforsecurity=False).digest()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("skip", range(5))
def test_an_end_that_is_named_too_early_loses_no_record(*, skip: int, times: int) -> None:
    """Neither of an open shard nor of a closed one that holds more records."""
    world = SpoutUnderTest(shards=2)
    came: list[str] = []

    def go_on(spout: KinesisSpout) -> None:
        for _ in range(40):
            world.loops.take()
            for emission in drain(spout, world.loops, rounds=2):
                came.append(f"{emission.shard_id}:{emission.number}")
                emission.ack()
            world.clock.advance(0.25)

    wanted = world.put(10)
    world.fake.faults.add(early_end(), operation="GetRecords", skip=skip, times=times)
    with world.fresh(prefetch_records=4) as spout:
        for _ in range(2):
            go_on(spout)
            wanted += world.put(10)
        parent = world.fake.shards(STREAM)[0].shard_id
        world.fake.split(STREAM, parent)
        wanted += world.put(10)
        go_on(spout)
    assert sorted(came) == sorted(wanted)
    assert [name for name, state in world.states().items() if state.finished] == [parent]


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
    failed = restarted_with_failures(under_test, failed=5000)
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
