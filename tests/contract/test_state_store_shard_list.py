"""The contract of the state store, for memory and ZooKeeper alike: the shard list, its leader and
its watches.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest

from state.errors import NotListerError, StaleOwnerError
from state.store.ownership import TaskShare
from state.store.shard_states import StateChange
from tests.support.state.state_stores import (
    OTHER,
    OWNER,
    Bell,
    dead_process,
    owned,
    state_at,
    task_of,
)
from tests.support.state.trees import interposed

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld


# list
# ----
def test_the_list_has_the_kinesis_storm_spouts_form_and_is_written_when_it_has_changed(
    store_world: StoreWorld,
) -> None:
    """It keeps the writer's order. The same list again is no change, and fires no watch."""
    store, tree = interposed(store_world.open())
    store.ownership.acquire(OWNER, timeout_s=10)
    assert store.shard_list.read() is None
    written: list[str] = []
    for ids in (["b"], ["b", "a"], ["b", "a"]):
        tree.before_write("shardList", partial(written.append, "".join(ids)))
        store.shard_list.save(ids)
    assert written == ["b", "ba"]
    assert msgspec.json.decode(store_world.get("shardList")) == {"shardList": ["b", "a"]}
    assert store_world.open().shard_list.read() == ("b", "a")


def test_a_list_that_is_removed_is_none(store_world: StoreWorld) -> None:
    """Once or twice; another one can be written then. A process that does not own the application
    removes nothing.
    """
    store = owned(store_world)
    store.shard_list.save(["a"])
    with pytest.raises(StaleOwnerError):
        store_world.open().shard_list.remove()
    assert store.shard_list.read() == ("a",)
    for _ in range(2):
        store.shard_list.remove()
        assert store.shard_list.read() is None
    store.shard_list.save(["a", "b"])
    assert store.shard_list.read() == ("a", "b")


# leader -------------------------------------------------------------------------------------------
def test_the_first_task_that_tries_leads_and_writes_the_list(store_world: StoreWorld) -> None:
    """Other tasks are refused, also with the same list. Trying again changes nothing."""
    first, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2)
    with pytest.raises(NotListerError, match="this task wrote no list"):
        first.shard_list.save(["a"])
    assert (
        second.shard_list.try_lead(),
        first.shard_list.try_lead(),
        second.shard_list.try_lead(),
    ) == (True, False, True)
    second.shard_list.save(["a"])
    second.shard_list.save(["a", "b"])
    for ids in (["c"], ["a", "b"]):
        with pytest.raises(NotListerError):
            first.shard_list.save(ids)
    assert first.shard_list.read() == ("a", "b")


def test_the_role_is_taken_over_when_its_task_has_lost_its_session(store_world: StoreWorld) -> None:
    """The earlier leader keeps its share, but it can no longer write the list, whatever it still
    believes.
    """
    first, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2)
    assert first.shard_list.try_lead()
    store_world.lose_session(first)
    assert second.shard_list.try_lead()
    first.shard_states.save([StateChange(None, state_at(1))])
    with pytest.raises(NotListerError):
        first.shard_list.save(["of the first"])
    assert not first.shard_list.try_lead()
    second.shard_list.save(["of the second"])
    assert first.shard_list.read() == ("of the second",)


def test_the_role_is_free_when_its_task_is_released(store_world: StoreWorld) -> None:
    """A new process of the same task does not lead by itself, nor does the same store."""
    first, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2)
    assert first.shard_list.try_lead()
    first.ownership.release()
    for again in (task_of(store_world, 0, 2, OTHER), first):
        again.ownership.acquire(OTHER, timeout_s=10, task=TaskShare(0, 2))
        with pytest.raises(NotListerError):
            again.shard_list.save(["a"])
        again.ownership.release()
    assert second.shard_list.try_lead()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux identifies processes reliably")
def test_the_role_of_a_dead_process_is_taken_at_once(store_world: StoreWorld) -> None:
    dead = task_of(store_world, 0, 2, dead_process())
    assert dead.shard_list.try_lead()
    assert task_of(store_world, 1, 2).shard_list.try_lead()
    with pytest.raises(NotListerError):
        dead.shard_list.save(["a"])


def test_the_owner_of_the_whole_always_leads(store_world: StoreWorld) -> None:
    """It writes the list without trying first. A store that owns nothing may not write it."""
    store = owned(store_world)
    assert store.shard_list.try_lead()
    store.shard_list.save(["a"])
    assert store_world.children("epoch") == []
    with pytest.raises(StaleOwnerError, match="acquire the ownership of"):
        store_world.open().shard_list.try_lead()
    with pytest.raises(StaleOwnerError, match="acquire the ownership of"):
        store_world.open().shard_list.save(["b"])


# watches ------------------------------------------------------------------------------------------
def test_a_watch_fires_for_each_change_of_the_list(store_world: StoreWorld) -> None:
    """When the list is created, changed, removed and created again, and for nothing else. It needs
    no ownership.
    """
    watcher, writer, bell = store_world.open(), owned(store_world), Bell()
    watcher.shard_list.watch(bell.ring)
    writer.shard_states.save([StateChange(None, state_at(1))])
    assert not bell.heard(timeout_s=0)
    for ids in (("a",), ("a", "b"), ("b",)):
        bell.silence()
        writer.shard_list.save(ids)
        assert bell.heard()
        assert watcher.shard_list.read() == ids
    bell.silence()
    store_world.remove("shardList")
    assert bell.heard()
    bell.silence()
    writer.shard_list.save(["c"])
    assert bell.heard()


def test_a_watch_outlives_its_session(store_world: StoreWorld) -> None:
    """It fires for the lost session, as a change may have been missed, and for every change after
    it.
    """
    watcher, writer, bell = store_world.open(), owned(store_world), Bell()
    watcher.shard_list.watch(bell.ring)
    for count in range(1, 3):
        bell.silence()
        store_world.lose_session(watcher)
        assert bell.heard()
        bell.silence()
        writer.shard_list.save(["a"] * count)
        assert bell.heard()


def test_a_watch_ends_with_the_close_of_its_store(store_world: StoreWorld) -> None:
    """Also when the store is used again."""
    closed, writer, bell, witness = store_world.open(), owned(store_world), Bell(), Bell()
    closed.shard_list.watch(bell.ring)
    closed.close()
    assert closed.shard_list.read() is None
    store_world.open().shard_list.watch(witness.ring)
    bell.silence()
    writer.shard_list.save(["a"])
    assert witness.heard()
    assert not bell.heard(timeout_s=0)
