"""`kinesis-spout status` and `explain` as users run them, on a FakeKinesis and a real ZooKeeper."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kinesis_spout.clock import SystemClock
from state.position import TRIM_HORIZON, Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.identity import StartPin
from state.store.shard_states import StateChange
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import serve
from tests.support.shell.consuming import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

    from tests.support.kinesis.services import ServedFake

IDLE, BUSY = "shardId-000000000000", "shardId-000000000001"
MINUTE_MS = 60_000


class At(NamedTuple):
    """Where the application is."""

    fake: ServedFake
    zookeeper: str


def words(command: str, at: At, *more: str) -> list[str]:
    place = ("--application", "etl", "--stream", "orders", "--zookeeper", at.zookeeper)
    return [command, *more, *place]


def run_on(at: At, command: str, *more: str) -> CompletedProcess[str]:
    return run(at.fake, *words(command, at, *more))


@pytest.fixture
def at(fake_kinesis: ServedFake, zookeeper_chroot: str) -> At:
    return At(fake_kinesis, zookeeper_chroot)


@pytest.fixture
def store(zookeeper_chroot: str) -> Iterator[ZookeeperStateStore]:
    """The store of the application's owner."""
    with closing(ZookeeperStateStore(zookeeper_chroot, application="etl", stream="orders")) as made:
        made.ownership.acquire(this_process(SystemClock().now_ms()), timeout_s=10)
        made.identity.pin_start(
            StartPin(time_ms=0, requested="TRIM_HORIZON", position=TRIM_HORIZON, shards=())
        )
        yield made


def save(store: ZookeeperStateStore, *states: ShardState) -> None:
    store.shard_states.save([StateChange(None, one) for one in states])


class LateClock(SystemClock):
    """The machine's clock, minus `late_ms`."""

    late_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() - self.late_ms


@pytest.fixture
def fake_kinesis() -> Iterator[ServedFake]:
    """Its stream is two minutes old, and so are the first shards."""
    clock = LateClock()
    with serve(clock=clock) as fake:
        clock.late_ms = 2 * MINUTE_MS
        yield fake


def behind_by_a_minute(fake: ServedFake, store: ZookeeperStateStore) -> None:
    """An idle shard, and one whose record of a minute ago nobody reads."""
    clock = fake.model.clock
    assert isinstance(clock, LateClock)
    fake.model.create("orders", shards=2)
    clock.late_ms = MINUTE_MS
    put_ms = clock.now_ms()
    where = [fake.model.put("orders", str(key), b"x") for key in range(9)]
    clock.late_ms = 0
    last = max(int(one.partition(":")[2]) for one in where if one.startswith(IDLE))
    save(
        store,
        ShardState(
            shard_id=IDLE,
            read_position=Position.after(SequenceNumber(last)),
            verified_until_ms=put_ms,
        ),
        ShardState(shard_id=BUSY, read_position=TRIM_HORIZON, verified_until_ms=put_ms - 1),
    )


def test_a_position_that_stands_still_while_the_stream_moves_is_stalled(
    at: At, store: ZookeeperStateStore
) -> None:
    """And an idle shard is ok. The owner keeps its ownership, and can write afterwards."""
    behind_by_a_minute(at.fake, store)
    ended = run_on(at, "status", "--json", "--window", "1s")
    assert (ended.returncode, ended.stderr) == (1, "")
    found = json.loads(ended.stdout)
    assert found["verdict"] == "stalled"
    assert [(one["shardId"], one["health"]) for one in found["shards"]] == [
        (BUSY, "stalled"),
        (IDLE, "ok"),
    ]
    busy = found["shards"][0]
    assert busy["lagMeasured"]
    assert busy["lagMs"] >= MINUTE_MS - 1_000
    assert busy["expiresInMs"] <= 24 * 60 * MINUTE_MS
    assert found["owners"][0]["process"] == os.getpid()
    save(store, ShardState(shard_id="shardId-000000000009", read_position=TRIM_HORIZON))


def test_the_same_as_a_screen_and_explained(at: At, store: ZookeeperStateStore) -> None:
    behind_by_a_minute(at.fake, store)
    ended = run_on(at, "status", "--window", "1s")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "stalled: the job runs, but nothing stored says what it waits for" in " ".join(
        ended.stdout.split()
    )
    explained = run_on(at, "explain", "1", "--window", "1s")
    assert (explained.returncode, explained.stderr) == (0, "")
    assert "shard 1  stalled" in explained.stdout
    words = " ".join(explained.stdout.split())
    assert re.search(r"So: shard 1 has unread records. The oldest arrived \d+ \w+ ago.", words)
    assert "-> Fix: wait a moment and look again." in words
    as_json = run_on(at, "explain", "1", "--json", "--window", "1s")
    (stalled,) = json.loads(as_json.stdout)
    assert [one["kind"] for one in stalled["causes"]] == ["not visible", "unread"]
    assert stalled["actions"][0]["kind"] == "wait"
    assert (stalled["shards"], stalled["health"]) == ([BUSY], "stalled")
    unknown = run_on(at, "explain", "99", "--window", "0s")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "does not list shardId-000000000099" in unknown.stderr.replace("\n", " ")


def test_names_that_nobody_knows_are_told_by_the_exit_code(at: At) -> None:
    """1: no state. 2: a wrong stream, a wrong option."""
    assert run_on(at, "status").returncode == 2  # there is no such stream
    at.fake.model.create("orders")
    status = run_on(at, "status")
    assert status.returncode == 1
    assert "unknown: application etl does not exist on stream orders" in status.stdout
    explained = run_on(at, "explain")
    assert explained.returncode == 0
    assert "Unknown: application etl does not exist on stream orders." in explained.stdout
    assert run_on(at, "explain", "shardId-000000000000").returncode == 0
    assert run_on(at, "status", "--window", "soon").returncode == 2
    assert run_on(at, "status", "--watch", "--json").returncode == 2
