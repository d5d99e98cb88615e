"""Acquiring the ownership when answers are lost, and when other processes act in between."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec.structs import replace

from state.errors import StaleOwnerError
from state.memory_store import MemoryBackend, MemoryStateStore
from state.owner.ownership import process_start, this_process
from state.state_store import StateChange, TaskShare
from tests.support.state.interposed_tree import interposed
from tests.support.state.stale_owners import dead_process
from tests.support.state.state_stores import OTHER, OWNER, state_at

BASE = "/kinesis-spout/app/stream"
FIRST, SECOND = TaskShare(0, 2), TaskShare(1, 2)


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


def node(backend: MemoryBackend, path: str) -> bytes | None:
    found = backend.read([f"{BASE}/{path}"])[0]
    return None if found is None else found.data


@pytest.mark.parametrize("before", [None, FIRST, SECOND, TaskShare(2, 3)], ids=str)
def test_a_share_whose_answer_was_lost_is_held_once(
    backend: MemoryBackend, before: TaskShare | None
) -> None:
    """Whatever was stored before, the epoch is counted up once, not twice."""
    earlier = MemoryStateStore(backend)
    earlier.acquire(OTHER, timeout_s=0, task=before)
    earlier.release()
    store, tree = interposed(MemoryStateStore(backend))
    tree.loses_answers = True
    epoch = store.acquire(OWNER, timeout_s=0, task=FIRST)
    assert epoch == (2 if before == FIRST else 1)
    assert node(backend, f"epoch/{FIRST}") == b"%d" % epoch
    assert node(backend, "epoch") == (b"1" if before in {FIRST, SECOND} else b"2")
    store.save_states([StateChange(None, state_at(1))])
    assert store.try_lead()
    store.save_shard_list(["a"])
    store.release()
    assert store.read_tasks() == {}


def test_the_whole_is_held_once_when_its_answer_was_lost_after_tasks(
    backend: MemoryBackend,
) -> None:
    """The node of the tasks is gone, and so are their epochs."""
    earlier = MemoryStateStore(backend)
    earlier.acquire(OTHER, timeout_s=0, task=FIRST)
    earlier.release()
    store, tree = interposed(MemoryStateStore(backend))
    tree.loses_answers = True
    assert store.acquire(OWNER, timeout_s=0) == 2
    assert backend.children([f"{BASE}/epoch"]) == [[]]


def test_a_task_that_joins_in_between_is_not_overridden(backend: MemoryBackend) -> None:
    """The owner of the whole saw no task, but one exists when it writes: it must look again."""
    earlier, late = MemoryStateStore(backend), MemoryStateStore(backend)
    earlier.acquire(OWNER, timeout_s=0, task=FIRST)
    earlier.release()
    store, tree = interposed(MemoryStateStore(backend))

    def join_and_go_later() -> None:
        late.acquire(OTHER, timeout_s=0, task=SECOND)
        tree.before_wait(late.release)

    tree.before_write("/owner", join_and_go_later)
    assert store.acquire(OWNER, timeout_s=10) == 2
    assert backend.children([f"{BASE}/epoch"]) == [[]]


def test_a_session_of_a_task_that_is_regained_in_between_is_not_overridden(
    backend: MemoryBackend,
) -> None:
    """A task with another total saw no holder, but the task is back before it writes."""
    old = MemoryStateStore(backend)
    old.acquire(OTHER, timeout_s=0, task=FIRST)
    old.lose_session()
    store, tree = interposed(MemoryStateStore(backend))

    def come_back() -> None:
        old.save_states([StateChange(None, state_at(1))])
        tree.before_wait(old.lose_session)

    tree.before_write("0-of-3", come_back)
    assert store.acquire(OWNER, timeout_s=10, task=TaskShare(0, 3)) == 1
    with pytest.raises(StaleOwnerError):
        old.save_shard_list(["a"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes reliably")
def test_the_successor_of_a_dead_task_is_not_overridden(backend: MemoryBackend) -> None:
    """A claim on the whole saw the dead task, but the node is the successor's when it writes."""
    dead, successor = MemoryStateStore(backend), MemoryStateStore(backend)
    dead.acquire(dead_process(), timeout_s=0, task=FIRST)
    store, tree = interposed(MemoryStateStore(backend))
    waited: list[int] = []

    def succeed() -> None:
        successor.acquire(OTHER, timeout_s=0, task=FIRST)
        tree.before_wait(go)

    def go() -> None:
        waited.append(1)
        successor.release()

    tree.before_write("/owner", succeed)
    assert store.acquire(OWNER, timeout_s=10) == 2
    assert waited == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes reliably")
def test_a_successor_that_waits_sees_that_the_holder_has_died(backend: MemoryBackend) -> None:
    """On the same machine it does not wait for the session, which lives on here."""
    killed = MemoryStateStore(backend)
    store, tree = interposed(MemoryStateStore(backend))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = process_start(process.pid) or ""
        holder = replace(this_process(0), pid=process.pid, process_start=start)
        killed.acquire(holder, timeout_s=0, task=FIRST)
        tree.before_wait(process.kill)
        assert store.acquire(OWNER, timeout_s=30, task=FIRST) == 2
    with pytest.raises(StaleOwnerError):
        killed.save_shard_list(["a"])


def test_a_regained_share_whose_answer_was_lost_is_regained_once(backend: MemoryBackend) -> None:
    """The write that needed the ownership succeeds."""
    store = MemoryStateStore(backend)
    store.acquire(OWNER, timeout_s=0, task=FIRST)
    store.lose_session()
    backend.lose_next_answers(2)
    store.save_states([StateChange(None, state_at(1))])
    assert store.read_tasks() == {FIRST: OWNER}


def test_of_two_tasks_that_try_to_lead_at_once_one_leads(backend: MemoryBackend) -> None:
    """The slower task's write is refused, and `try_lead` returns False."""
    fast = MemoryStateStore(backend)
    fast.acquire(OTHER, timeout_s=0, task=FIRST)
    slow, tree = interposed(MemoryStateStore(backend))
    slow.acquire(OWNER, timeout_s=0, task=SECOND)
    tree.before_write("/epoch/lister", fast.try_lead)
    assert not slow.try_lead()
    assert fast.try_lead()
