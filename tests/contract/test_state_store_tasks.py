"""The contract of the state store, for memory and ZooKeeper alike: several tasks that own one
application together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from state.errors import StaleOwnerError, StoredDataError
from state.store.ownership import TaskShare
from tests.support.state.state_stores import OTHER, OWNER, assert_stale, task_of, write_one

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld


def test_tasks_own_an_application_together(store_world: StoreWorld) -> None:
    """Each task has a node of its own, below a node with the number of tasks."""
    _, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2, OTHER)
    assert msgspec.json.decode(store_world.get("owner")) == {"totalTasks": 2, "format": 1}
    assert store_world.children("owner") == ["0-of-2", "1-of-2"]
    holders = store_world.open().ownership.holders()
    assert list(holders.items()) == [(TaskShare(0, 2), OWNER), (TaskShare(1, 2), OTHER)]
    assert second.ownership.acquire(OTHER, timeout_s=0, task=TaskShare(1, 2)) == 1
    assert store_world.get("epoch") == b"1"


@pytest.mark.parametrize("index", [0, 1])
def test_a_stale_task_writes_nothing_at_all(store_world: StoreWorld, index: int) -> None:
    """Another process has taken over its share, whether it was the first task or one that joined.
    The other shares are not affected.
    """
    tasks = [task_of(store_world, each, 2) for each in range(2)]
    old, neighbour, share = tasks[index], tasks[1 - index], TaskShare(index, 2)
    store_world.lose_session(old)
    new = task_of(store_world, index, 2, OTHER)
    assert_stale(old, share)
    write_one(neighbour, "a")
    write_one(new, "b")
    new.ownership.release()
    old.ownership.release()
    assert old.ownership.acquire(OWNER, timeout_s=5, task=share) == 3


@pytest.mark.parametrize("share", [None, TaskShare(0, 2)], ids=str)
def test_the_release_of_a_stale_owner_does_not_affect_its_successor(
    store_world: StoreWorld, share: TaskShare | None
) -> None:
    """No third process can acquire it, and the successor goes on writing."""
    old, new = store_world.open(), store_world.open()
    old.ownership.acquire(OWNER, timeout_s=10, task=share)
    store_world.lose_session(old)
    new.ownership.acquire(OTHER, timeout_s=10, task=share)
    old.ownership.release()
    assert new.ownership.holders() == {share: OTHER}
    write_one(new, "a")


def test_a_task_regains_its_lost_session_with_the_next_write(store_world: StoreWorld) -> None:
    """Under the same epoch, and without an effect on other tasks."""
    store, neighbour = task_of(store_world, 0, 2), task_of(store_world, 1, 2, OTHER)
    store_world.lose_session(store)
    assert neighbour.ownership.holders() == {TaskShare(1, 2): OTHER}
    write_one(store, "a")
    write_one(neighbour, "b")
    assert store.ownership.acquire(OWNER, timeout_s=0, task=TaskShare(0, 2)) == 1
    assert neighbour.ownership.holders() == {TaskShare(0, 2): OWNER, TaskShare(1, 2): OTHER}


def test_a_store_owns_one_share_at_a_time(store_world: StoreWorld) -> None:
    """The error says what it owns."""
    store = task_of(store_world, 0, 2)
    for other in (None, TaskShare(1, 2)):
        with pytest.raises(
            ValueError,
            match=r"this store owns task 0 of 2 of application .*; release the ownership first",
        ):
            store.ownership.acquire(OWNER, timeout_s=0, task=other)
    store.ownership.release()
    assert store.ownership.acquire(OWNER, timeout_s=0) == 2


def test_a_foreign_node_below_owner_is_named_in_an_error(store_world: StoreWorld) -> None:
    """It is neither waited for nor removed."""
    store_world.put("owner/somebody", b"")
    with pytest.raises(
        StoredDataError, match=r"flights/owner/somebody is not the node of a task; remove it"
    ):
        store_world.open().ownership.acquire(OWNER, timeout_s=0)


def test_a_damaged_owner_stops_tasks_until_a_reset(store_world: StoreWorld) -> None:
    """The number of tasks is not known."""
    store_world.put("owner", b"{")
    store_world.put("epoch", b"1")
    with pytest.raises(StoredDataError, match=r"flights/owner contains .* reset the application"):
        task_of(store_world, 0, 2)
    store_world.open().identity.reset(OWNER, timeout_s=10)
    task_of(store_world, 0, 2)


# openings -----------------------------------------------------------------------------------------
def test_a_task_counts_its_openings_without_an_orderly_end(store_world: StoreWorld) -> None:
    """The number outlives the task's process, and belongs to its share alone. A stale task counts
    none.
    """
    first, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2, OTHER)
    assert (first.ownership.read_unclean_starts(), second.ownership.read_unclean_starts()) == (0, 0)
    for number in (1, 2):
        first.ownership.save_unclean_starts(number)
    second.ownership.save_unclean_starts(7)
    store_world.lose_session(first)
    again = task_of(store_world, 0, 2)
    for act in (
        lambda: first.ownership.save_unclean_starts(9),
        store_world.open().ownership.read_unclean_starts,
    ):
        with pytest.raises(StaleOwnerError):
            act()
    assert (again.ownership.read_unclean_starts(), second.ownership.read_unclean_starts()) == (2, 7)
    assert "unclosed-0-of-2" in store_world.children("epoch")


@pytest.mark.parametrize("between", [None, TaskShare(0, 3)], ids=str)
def test_counts_of_openings_end_with_the_number_of_tasks(
    store_world: StoreWorld, between: TaskShare | None
) -> None:
    """An owner of the whole application, such as a Spark job, counts none."""
    store = task_of(store_world, 0, 2)
    store.ownership.save_unclean_starts(3)
    store.ownership.release()
    other = store_world.open()
    other.ownership.acquire(OTHER, timeout_s=10, task=between)
    if between is None:
        with pytest.raises(ValueError, match="only a task"):
            other.ownership.save_unclean_starts(1)
    else:
        assert other.ownership.read_unclean_starts() == 0
    other.ownership.release()
    assert task_of(store_world, 0, 2).ownership.read_unclean_starts() == 0
