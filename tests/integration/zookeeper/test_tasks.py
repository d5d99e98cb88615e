"""Facts about tasks that only a real ZooKeeper shows: killed processes, and a server that is killed
under a watch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from state.errors import OwnedByAnotherError
from state.process import this_process
from state.store.ownership import TaskShare
from state.store.shard_states import StateChange
from state.zookeeper.embedded import ensure_running, stop
from state.zookeeper.store import ZookeeperStateStore
from tests.support.state.state_stores import state_at
from tests.support.state.zookeeper import kill_server

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[3]
HOLDER = """
import sys
from state.process import this_process
from state.store.ownership import TaskShare
from state.zookeeper.store import ZookeeperStateStore
store = ZookeeperStateStore(
    sys.argv[1], application="app", stream="flights", session_timeout_s=60.0
)
store.ownership.acquire(this_process(0), timeout_s=0, task=TaskShare(0, 2))
assert store.shard_list.try_lead()
print("owned", flush=True)
sys.stdin.read()
"""


def open_store(address: str) -> ZookeeperStateStore:
    return ZookeeperStateStore(
        address,
        application="app",
        stream="flights",
        session_timeout_s=10.0,
        operation_timeout_s=60.0,
    )


@pytest.fixture
def holder(zookeeper_chroot: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that is task 0 of 2 and the shard list leader, with a session that would
    outlive it by a minute.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, zookeeper_chroot],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "owned\n"
    with process:
        yield process
        process.kill()


@pytest.fixture
def store(zookeeper_chroot: str) -> Iterator[ZookeeperStateStore]:
    with closing(open_store(zookeeper_chroot)) as store:
        yield store


def test_the_share_and_the_role_of_a_killed_process_are_taken_at_once(
    holder: subprocess.Popen[str], store: ZookeeperStateStore, zookeeper_chroot: str
) -> None:
    """Its session lapses in a minute, but its neighbour and its successor run under the same kernel
    and see that it is dead.
    """
    store.ownership.acquire(this_process(1), timeout_s=0, task=TaskShare(1, 2))
    assert not store.shard_list.try_lead()
    with closing(open_store(zookeeper_chroot)) as successor:
        with pytest.raises(OwnedByAnotherError, match=rf"task 0 of 2 .* \(process {holder.pid} on"):
            successor.ownership.acquire(this_process(1), timeout_s=0.2, task=TaskShare(0, 2))
        holder.kill()
        # Dead, but not reaped: as under a parent that never waits for it.
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        assert store.shard_list.try_lead()
        assert successor.ownership.acquire(this_process(1), timeout_s=0, task=TaskShare(0, 2)) == 2


def test_a_task_and_its_watch_outlive_the_server(tmp_path: Path) -> None:
    """The server is killed during writes of states: every write that returned is there, and
    the watch fires for each change of the list.
    """
    directory = tmp_path / "zookeeper"
    address = ensure_running(directory)
    changed = threading.Event()
    with ExitStack() as stack:
        stack.callback(stop, directory)
        store, neighbour = (stack.enter_context(closing(open_store(address))) for _ in range(2))
        store.ownership.acquire(this_process(0), timeout_s=10, task=TaskShare(0, 2))
        neighbour.ownership.acquire(this_process(0), timeout_s=10, task=TaskShare(1, 2))
        assert neighbour.shard_list.try_lead()
        store.shard_list.watch(changed.set)
        known = store.shard_states.save([StateChange(None, state_at(0))])[0]
        for number in range(1, 51):
            if number == 25:
                kill_server(directory)
            known = store.shard_states.save([StateChange(known, state_at(number))])[0]
        assert changed.wait(60)  # the lost connection fires it
        for name in ("shard-1", "shard-2"):
            changed.clear()
            neighbour.shard_list.save([name])
            assert changed.wait(60)
        assert store.shard_states.load() == {known.state.shard_id: known}
        assert list(store.ownership.tasks()) == [TaskShare(0, 2), TaskShare(1, 2)]
