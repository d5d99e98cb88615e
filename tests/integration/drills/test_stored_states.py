"""What a drill does to the state in a real ZooKeeper: nodes are removed, older data restored."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.world.zookeeper import StoredStates, ZookeeperServer
from state.position import TRIM_HORIZON
from state.process import this_process
from state.shard_state import ShardState
from state.store.shard_states import StateChange
from state.zookeeper.store import ZookeeperStateStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARDS = ["shardId-000000000000", "shardId-000000000001"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZookeeperServer]:
    server = ZookeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.end()


@pytest.fixture
def stored(server: ZookeeperServer) -> Iterator[StoredStates]:
    stored = StoredStates(server.connect_string, application="drill", stream="drill")
    yield stored
    stored.close()


def save(server: ZookeeperServer, *shards: str) -> None:
    store = ZookeeperStateStore(server.connect_string, application="drill", stream="drill")
    store.ownership.acquire(this_process(0), timeout_s=10)
    states = [ShardState(shard_id=shard, read_position=TRIM_HORIZON) for shard in shards]
    store.shard_states.save([StateChange(before=None, after=state) for state in states])
    store.close()


def test_nodes_are_removed_with_all_below_them(
    server: ZookeeperServer, stored: StoredStates
) -> None:
    save(server, *SHARDS)
    assert set(SHARDS) < set(stored.names())
    stored.remove(f"{SHARDS[0]}/state")
    assert stored.names(SHARDS[0]) == []
    assert list(stored.read() or {}) == SHARDS[1:]
    stored.remove()
    assert stored.names() == []
    assert stored.read() == {}


def test_what_a_node_holds_is_seen_from_outside(
    server: ZookeeperServer, stored: StoredStates
) -> None:
    """A drill sees by it that nobody has written there."""
    save(server, SHARDS[0])
    before = stored.data(f"{SHARDS[0]}/state")
    assert before
    save(server, SHARDS[1])
    assert stored.data(f"{SHARDS[0]}/state") == before
    stored.remove(f"{SHARDS[0]}/state")
    assert stored.data(f"{SHARDS[0]}/state") is None


def test_older_data_are_seen_with_new_connections(
    server: ZookeeperServer, stored: StoredStates, tmp_path: Path
) -> None:
    (data,) = server.data
    save(server, SHARDS[0])
    server.restart(lambda: shutil.copytree(data, tmp_path / "copy"))
    save(server, SHARDS[1])
    assert set(stored.read() or {}) == set(SHARDS)

    def restore() -> None:
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)

    server.restart(restore)
    stored.connect_again()
    assert set(stored.read() or {}) == {SHARDS[0]}
