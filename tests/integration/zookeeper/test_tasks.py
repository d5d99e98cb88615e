"""Facts about tasks that only a real ZooKeeper shows: killed processes, and a server that is killed
under a watch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from state.errors import OwnedByAnotherError
from state.process import this_process
from state.store.ownership import TaskShare
from state.zookeeper.store import ZookeeperStateStore

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
