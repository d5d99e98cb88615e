"""`kinesis-spout status` and `explain` as users run them, on a FakeKinesis and a real ZooKeeper."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.clock import SystemClock
from kinesis_spout.testing import slow
from state.position import TRIM_HORIZON, Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.identity import StartPin
from state.store.shard_states import StateChange
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import serve
from tests.support.shell.consuming import run, running
from tests.support.shell.operators_shell import Shell
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.support.kinesis.services import ServedFake

IDLE, BUSY = "shardId-000000000000", "shardId-000000000001"
MINUTE_MS = 60_000


def look(shell: Shell, command: str, *more: str) -> CompletedProcess[str]:
    return shell.operate(command, *more, *shell.endpoint)


@pytest.fixture
def shell(fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path) -> Shell:
    """Its stream is made by the test."""
    return Shell(fake_kinesis, zookeeper_chroot, tmp_path)


@pytest.fixture
def store(shell: Shell) -> Iterator[ZookeeperStateStore]:
    """The store of the application's owner."""
    with closing(shell.store()) as made:
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
    shell: Shell, store: ZookeeperStateStore
) -> None:
    """And an idle shard is ok. The owner keeps its ownership, and can write afterwards. The screens
    are in the runbook.
    """
    behind_by_a_minute(shell.fake, store)
    ended = look(shell, "status", "--json", "--window", "1s")
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
    as_json = look(shell, "explain", "1", "--json", "--window", "1s")
    (stalled,) = json.loads(as_json.stdout)
    assert [one["kind"] for one in stalled["causes"]] == ["not visible", "unread"]
    assert stalled["actions"][0]["kind"] == "wait"
    assert (stalled["shards"], stalled["health"]) == ([BUSY], "stalled")
    save(store, ShardState(shard_id="shardId-000000000009", read_position=TRIM_HORIZON))
    unknown = look(shell, "explain", "99", "--window", "0s")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "does not list shard shardId-000000000099" in unknown.stderr.replace("\n", " ")


def test_ctrl_c_ends_a_watch_while_a_shard_does_not_answer(
    shell: Shell, store: ZookeeperStateStore
) -> None:
    """It waits for no answer."""
    behind_by_a_minute(shell.fake, store)
    shell.fake.model.faults.add(slow(25.0), operation="GetRecords", times=None)
    place = ("--application", "etl", "--stream", "orders", "--zookeeper", shell.zookeeper)
    with running(shell.fake, "status", "--watch", *place) as process:
        wait_until(lambda: bool(shell.fake.model.faults.struck), timeout_s=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 130


def test_without_an_application_all_of_them_are_shown_the_worst_first(
    shell: Shell, store: ZookeeperStateStore
) -> None:
    """Of each stream. One whose stream is gone is a line, and does not hide the others."""
    behind_by_a_minute(shell.fake, store)
    shell.fake.model.create("clicks", shards=1)
    for stream in ("clicks", "deleted"):
        with closing(
            ZookeeperStateStore(shell.zookeeper, application="web", stream=stream)
        ) as other:
            other.ownership.acquire(this_process(SystemClock().now_ms()), timeout_s=10)
            save(other, ShardState(shard_id=IDLE, read_position=TRIM_HORIZON))
    asked = ("status", "--zookeeper", shell.zookeeper, "--window", "1s")
    ended = run(shell.fake, *asked, "--json")
    assert (ended.returncode, ended.stderr) == (1, "")
    found = json.loads(ended.stdout)
    assert [(one["application"], one["stream"], one["verdict"]) for one in found] == [
        ("etl", "orders", "stalled"),
        ("web", "clicks", "not running"),
        ("web", "deleted", "unknown"),
    ]
    stalled, _, deleted = found
    assert stalled["lagMs"] >= MINUTE_MS - 1_000
    assert stalled["owners"][0]["process"] == os.getpid()
    assert "was deleted" in deleted["why"]
    shown = run(shell.fake, *asked)
    assert shown.returncode == 1
    assert re.search(
        rf"^etl +orders +stalled +\d+ \w+ +pid {os.getpid()} on", shown.stdout, re.MULTILINE
    )
    assert "note: application web on stream deleted" in shown.stderr
    one_stream = run(shell.fake, *asked, "--stream", "clicks")
    assert (one_stream.returncode, one_stream.stdout.count("\n")) == (0, 2)
    assert run(shell.fake, *asked, "--application", "etl").returncode == 2  # of which stream?
    nothing = run(shell.fake, *asked, "--zookeeper-root", "elsewhere")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no application has stored state under elsewhere" in nothing.stderr


def test_names_that_nobody_knows_are_told_by_the_exit_code(shell: Shell) -> None:
    """1: no state. 2: a wrong stream, a wrong option."""
    assert look(shell, "status").returncode == 2  # there is no such stream
    shell.fake.model.create("orders")
    status = look(shell, "status")
    assert status.returncode == 1
    assert "unknown: application etl does not exist on stream orders" in status.stdout
    explained = look(shell, "explain")
    assert explained.returncode == 0
    assert "Unknown: application etl does not exist on stream orders." in explained.stdout
    assert look(shell, "explain", "shardId-000000000000").returncode == 0
    assert look(shell, "status", "--window", "soon").returncode == 2
    assert look(shell, "status", "--watch", "--json").returncode == 2
