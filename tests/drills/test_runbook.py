"""docs/runbook.md, symptom by symptom: a world that has it, and the page's commands in order."""

from __future__ import annotations

import re
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.testing import FakeKinesisSettings
from state.zookeeper.embedded import ensure_running, stop
from state.zookeeper.store import ZookeeperStateStore
from tests.integration.commands.test_status import LateClock
from tests.support.kinesis.services import ServedFake, serve
from tests.support.shell.pages import ROOT
from tests.support.shell.runbook import PAGE, RunbookPlayer
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from state.shard_state import ShardState

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SLOW = "time.sleep(0.05)"
FAILS_7 = "if record['data'] == 'order 7': done = {'ok': False, 'reason': 'no rates'}"


def states(zookeeper: str, stream: str = "orders") -> Mapping[str, ShardState]:
    with closing(ZookeeperStateStore(zookeeper, application="etl", stream=stream)) as store:
        return {shard: stored.state for shard, stored in store.shard_states.load().items()}


class World:
    """A service whose clock the test sets, with streams of two shards."""

    def __init__(self, fake: ServedFake, clock: LateClock) -> None:
        self.fake = fake
        self._clock = clock

    def ago(self, ms: int) -> None:
        """The service's time is this long ago."""
        self._clock.late_ms = ms

    def put(self, first: int, after: int, stream: str = "orders") -> None:
        for number in range(first, after):
            self.fake.model.put(stream, str(number), f"order {number}".encode())


@contextmanager
def world_with(account_id: str) -> Iterator[World]:
    clock = LateClock()
    with serve(settings=FakeKinesisSettings(account_id=account_id), clock=clock) as fake:
        yield World(fake, clock)


@pytest.fixture
def world() -> Iterator[World]:
    with world_with("111122223333") as made:
        yield made


def all_acked(
    zookeeper: str, world: World, stream: str = "orders", *, but: str | None = None
) -> bool:
    """Each shard's checkpoint is its last record. `but`: a shard that need not be read."""
    found = states(zookeeper, stream)
    last = {
        shard.shard_id: [str(one.sequence) for one in records[-1:]]
        for shard in world.fake.model.shards(stream)
        if (records := world.fake.model.records(stream, shard.shard_id)) and shard.shard_id != but
    }
    return all(
        shard in found and [str(found[shard].checkpoint)] == number and not found[shard].unresolved
        for shard, number in last.items()
    )


def attempts(zookeeper: str) -> int:
    """Of the record that failed most often."""
    failed = [record for one in states(zookeeper).values() for record in one.unresolved]
    return max((record.attempts for record in failed), default=0)


def first_unresolved(zookeeper: str) -> str:
    return next(
        str(record.first) for one in states(zookeeper).values() for record in one.unresolved
    )


def test_the_lag_grows(world: World, zookeeper_chroot: str, tmp_path: Path) -> None:
    play = RunbookPlayer("The lag grows", tmp_path, world.fake, zookeeper_chroot)
    world.ago(HOUR_MS)
    world.fake.model.create("orders", shards=2)
    for number in range(3_000):
        world.ago(30 * MINUTE_MS - number * 10)
        world.put(number, number + 1)
    world.ago(0)
    play.does(SLOW)
    with play.job():
        wait_until(lambda: any(one.checkpoint for one in states(zookeeper_chroot).values()))
        play.run(2)
        play.does("")
        wait_until(lambda: all_acked(zookeeper_chroot, world), 60)
        play.run()
    play.end()


def test_a_shard_is_stuck(world: World, zookeeper_chroot: str, tmp_path: Path) -> None:
    """One of two processes has ended. Each has a shard."""
    play = RunbookPlayer("A shard is stuck", tmp_path, world.fake, zookeeper_chroot)
    world.ago(10 * MINUTE_MS)
    world.fake.model.create("orders", shards=2)
    world.put(0, 20)
    tasks = [("orders", "--total-tasks", "2", "--task-index", index) for index in "01"]
    with play.job(*tasks[0]):
        with play.job(*tasks[1]):
            wait_until(lambda: all_acked(zookeeper_chroot, world))
        world.ago(5 * MINUTE_MS)
        world.put(20, 40)
        world.ago(0)
        # A shard that is read during the window of status has a speed.
        wait_until(lambda: all_acked(zookeeper_chroot, world, but="shardId-000000000001"))
        play.run(code=1)
        play.run()
        with play.job(*tasks[1]):
            wait_until(lambda: all_acked(zookeeper_chroot, world))
            play.run()
    play.end()


def test_records_expire(world: World, zookeeper_chroot: str, tmp_path: Path) -> None:
    play = RunbookPlayer("Records expire", tmp_path, world.fake, zookeeper_chroot)
    for stream in ("orders", "clicks"):
        world.ago(48 * HOUR_MS)
        world.fake.model.create(stream, shards=1)
    world.ago(24 * HOUR_MS - 40 * MINUTE_MS)
    world.put(0, 10)
    with play.job():
        wait_until(lambda: all_acked(zookeeper_chroot, world))
    world.ago(24 * HOUR_MS - 20 * MINUTE_MS)
    world.put(10, 30)
    world.ago(0)
    play.run(code=1)
    play.run(2)
    with play.job():
        wait_until(lambda: all_acked(zookeeper_chroot, world))
        play.run()
    too_late(world, zookeeper_chroot, play)
    play.end()


def too_late(world: World, zookeeper: str, play: RunbookPlayer) -> None:
    """Of another stream: one part has expired, and the rest has not."""
    world.ago(26 * HOUR_MS)
    world.put(0, 3, "clicks")
    with play.job("clicks"):
        wait_until(lambda: all_acked(zookeeper, world, "clicks"))
    world.ago(25 * HOUR_MS)
    world.put(3, 6, "clicks")
    world.ago(HOUR_MS)
    world.put(6, 9, "clicks")
    world.ago(0)
    play.run(code=1)
    play.run()
    play.run(code=1)
    play.run(3)


def test_a_poison_record(world: World, zookeeper_chroot: str, tmp_path: Path) -> None:
    play = RunbookPlayer("A poison record", tmp_path, world.fake, zookeeper_chroot)
    world.ago(5 * MINUTE_MS)
    world.fake.model.create("orders", shards=2)
    world.put(0, 20)
    world.ago(0)
    play.does(FAILS_7)
    with play.job():
        wait_until(lambda: attempts(zookeeper_chroot) >= 5)
        play.sequence = first_unresolved(zookeeper_chroot)
        play.run(3)
    play.run()
    play.does("")
    with play.job():
        play.run()
        wait_until(lambda: all_acked(zookeeper_chroot, world))
        play.run()
    play.end()


def test_a_wrong_version_was_deployed(world: World, zookeeper_chroot: str, tmp_path: Path) -> None:
    """The service's clock says a quarter past two."""
    play = RunbookPlayer(
        "A wrong version was deployed at 14:00", tmp_path, world.fake, zookeeper_chroot
    )
    now = datetime.now(UTC)
    now_ms = (now.hour * 60 + now.minute - (14 * 60 + 15)) * MINUTE_MS  # ago
    world.ago(now_ms + 20 * MINUTE_MS)
    world.fake.model.create("orders", shards=2)
    world.put(0, 20)
    with play.job():
        wait_until(lambda: all_acked(zookeeper_chroot, world))
    world.ago(now_ms + 10 * MINUTE_MS)
    world.put(20, 50)
    with play.job():
        wait_until(lambda: all_acked(zookeeper_chroot, world))
    world.ago(now_ms)
    play.run(3)
    with play.job():
        wait_until(lambda: all_acked(zookeeper_chroot, world))
        play.run()
    play.end()


def test_zookeeper_is_lost(world: World, zookeeper_chroot: str, tmp_path: Path) -> None:
    """It comes back; or it does not, and the last export goes to another one."""
    directory = tmp_path / "zookeeper"
    lost = ensure_running(directory)
    try:
        play = RunbookPlayer(
            "ZooKeeper is lost", tmp_path, world.fake, lost, zk9_2181=zookeeper_chroot
        )
        world.fake.model.create("orders", shards=2)
        world.put(0, 20)
        with play.job():
            wait_until(lambda: all_acked(lost, world))
            play.run()
            stop(directory)
            play.run(code=3)
            play.run()
            assert ensure_running(directory) == lost
            world.put(20, 30)
            wait_until(lambda: all_acked(lost, world), 60)
            play.run()
    finally:
        stop(directory)
    play.run(3)
    play.end()


def test_a_second_owner(world: World, zookeeper_chroot: str, tmp_path: Path) -> None:
    play = RunbookPlayer("A second owner", tmp_path, world.fake, zookeeper_chroot)
    world.fake.model.create("orders", shards=2)
    world.put(0, 20)
    with play.job():
        wait_until(lambda: all_acked(zookeeper_chroot, world))
        play.run(code=4)
        play.run()
    play.run()
    play.end()


def test_the_stream_moved_to_another_account(
    world: World, zookeeper_chroot: str, tmp_path: Path
) -> None:
    play = RunbookPlayer(
        "The stream moved to another account", tmp_path, world.fake, zookeeper_chroot
    )
    world.fake.model.create("orders", shards=1)
    world.put(0, 3)
    with play.job():
        wait_until(lambda: all_acked(zookeeper_chroot, world))
    with world_with("444455556666") as moved:
        moved.ago(5 * MINUTE_MS)
        moved.fake.model.create("orders", shards=1)
        moved.put(3, 5)
        moved.ago(0)
        play.fake = moved.fake
        play.run(2, code=1)
        play.run(5)
    play.end()


def test_each_alert_of_the_page_is_one_of_the_rules() -> None:
    rules = (ROOT / "docs" / "monitoring" / "kinesis-spout.rules.yml").read_text("utf-8")
    named = set(re.findall(r"`(KinesisSpout\w+)`", PAGE.read_text("utf-8")))
    assert named
    assert named <= set(re.findall(r"alert: (\w+)", rules))
