"""A spout that reads by subscription loses nothing and reads nothing twice, whatever ends one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.testing import (
    FakeKinesisSettings,
    error,
)
from kinesis_spout.testing.faults.plan import alter
from kinesis_spout.testing.service import requests
from tests.support.spout.spout_world import STREAM, SpoutUnderTest, pass_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.reading.subscriptions import SubscriptionTotals
    from kinesis_spout.spout.kinesis_spout import KinesisSpout
    from state.store.runs import ReadTrouble

EFO: dict[str, Any] = {"read_mode": "efo", "consumer_name": "reader"}
SHARD = "shardId-000000000000"


class Reading:
    """An open spout, and the `shardId:sequence` of what it has emitted. All of it is acked."""

    def __init__(self, world: SpoutUnderTest, spout: KinesisSpout) -> None:
        self.world = world
        self.spout = spout
        self.came: list[str] = []

    def go_on(self, seconds: float = 1.0) -> list[str]:
        """Let time pass in steps of the spout. Returns what came."""
        emissions = pass_time(self.world, self.spout, seconds, step_s=0.05, acks=True)
        came = [f"{emission.shard_id}:{emission.number}" for emission in emissions]
        self.came += came
        return came

    @property
    def totals(self) -> SubscriptionTotals:
        totals = self.spout.metrics().subscriptions
        assert totals is not None
        return totals


def registered(world: SpoutUnderTest, name: str) -> str:
    """The ARN of a new consumer of somebody else."""
    with world.fake.lock:
        answer = world.fake.register_stream_consumer(
            requests.RegisterStreamConsumer(
                stream_arn=world.fake.stream(STREAM).arn, consumer_name=name
            )
        )
    return answer.consumer.consumer_arn


def not_subscribed(world: SpoutUnderTest) -> ReadTrouble | None:
    """What the spout has told of it by its next commit."""
    world.loops.take("commit")
    return world.run().not_subscribed


@contextmanager
def opened(world: SpoutUnderTest, **options: Any) -> Iterator[Reading]:
    with world.fresh(**(EFO | options)) as spout:
        yield Reading(world, spout)


@pytest.fixture
def reading() -> Iterator[Reading]:
    with opened(SpoutUnderTest()) as found:
        yield found


def test_a_consumer_that_is_named_by_its_arn_is_not_registered() -> None:
    world = SpoutUnderTest()
    given = registered(world, "given")
    wanted = world.put(2)
    with opened(world, consumer_name=None, consumer_arn=given) as reading:
        assert reading.go_on() == wanted
    assert list(world.fake.stream(STREAM).consumers) == ["given"]


def test_a_consumer_that_was_removed_is_registered_again(reading: Reading) -> None:
    """Meanwhile the shard's polling getter looks whether the shard is there."""
    world = reading.world
    reading.go_on(6)
    with world.fake.lock:
        world.fake.deregister_stream_consumer(
            requests.StreamConsumer(
                stream_arn=world.fake.stream(STREAM).arn, consumer_name="reader"
            )
        )
    wanted = world.put(3)
    assert reading.go_on(10) == wanted
    assert list(world.fake.stream(STREAM).consumers) == ["reader"]


def test_without_a_subscription_a_shard_is_polled_until_there_is_one() -> None:
    """It tells so until it is over, and goes back without a record twice."""
    world = SpoutUnderTest(shards=2)
    world.fake.faults.add(error("AccessDeniedException"), operation="SubscribeToShard", times=None)
    wanted = world.put(5)
    with opened(world, efo_fallback_after_s=10.0) as reading:
        assert reading.go_on(9) == []
        assert not_subscribed(world) is not None, "told before it polls: that may be set to be late"
        reading.go_on(4)
        assert sorted(reading.came) == sorted(wanted)
        assert reading.totals.polled_shards == 2
        told = not_subscribed(world)
        assert told is not None
        assert "AccessDeniedException" in (told.says or "")
        world.fake.faults.clear()
        for _ in range(20):
            wanted += world.put(2)
            reading.go_on(1)
        assert sorted(reading.came) == sorted(wanted)
        assert reading.totals.polled_shards == 0
        assert not_subscribed(world) is None
        reads = world.service.reads
        reading.go_on(20)
        assert world.service.reads == reads


def test_one_consumer_too_many_is_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    """The spout reads on by polling. One that is not active yet is waited for."""
    world = SpoutUnderTest(settings=FakeKinesisSettings(consumer_ms=8_000))
    wanted = world.put(2)
    with opened(world) as reading:
        assert reading.go_on(7) == []
        assert reading.go_on(10) == wanted
        assert world.service.reads == 0
    for number in range(19):
        registered(world, f"other-{number}")
        world.clock.advance(10)
    with opened(world, consumer_name="more", efo_fallback_after_s=5.0) as reading:
        wanted = world.put(2)
        assert reading.go_on(8) == wanted
    (said,) = (one for one in caplog.messages if "is read with GetRecords" in one)
    assert "kinesis-spout consumers remove" in said


def test_an_end_without_children_is_not_believed(reading: Reading) -> None:
    """A poll says whether the shard has ended."""
    world = reading.world
    world.fake.faults.add(
        alter(lambda event: msgspec.structs.replace(event, continuation_sequence_number=None)),
        operation="SubscribeToShard",
    )
    wanted = world.put(2)
    reading.go_on(0.5)
    wanted += world.put(2)
    reading.go_on(10)
    assert reading.came == wanted
    assert reading.spout.metrics().shards.keys() == {SHARD}


def test_events_out_of_order_are_a_failure_and_a_fault_of_the_program_is_raised(
    reading: Reading,
) -> None:
    """Nothing of them is handed over. Neither is tried again as it is."""
    world = reading.world
    reading.go_on(7)
    world.fake.faults.add(
        alter(lambda event: msgspec.structs.replace(event, records=event.records[::-1])),
        operation="SubscribeToShard",
    )
    world.service.connections[-1].cut()
    wanted = world.put(3)
    assert reading.go_on(20) == wanted
    assert reading.totals.failed == 4  # a break, this, and two refusals within five seconds
    world.fake.faults.add(alter(lambda _: 1 // 0), operation="SubscribeToShard")
    world.service.connections[-1].cut()
    world.put(1)
    with pytest.raises(ZeroDivisionError):
        reading.go_on(20)
