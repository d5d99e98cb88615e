"""The contract of the state store, for memory and ZooKeeper alike: several tasks that own one application together."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import pytest

from state.errors import ConflictError, OwnedByAnotherError, StaleOwnerError, StoredDataError
from state.ownership import this_process
from state.state_store import StateChange
from state.task_share import TaskShare
from tests.support.interposed_tree import interposed
from tests.support.state_stores import IDENTITY, OTHER, OWNER, owned, state_at, task_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.state_store import OwnerInfo
    from state.znode_state_store import ZnodeStateStore
    from tests.support.state_stores import StoreWorld

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells enough about processes")


def dead_process() -> OwnerInfo:
    """An owner on this host that ended long ago: no pid is as high."""
    return msgspec.structs.replace(this_process(0), pid=2**22 + 1)


def write_one(store: ZnodeStateStore, shard_id: str) -> None:
    """Create a state, as owner."""
    store.save_states([StateChange(None, state_at(1, shard_id))])


def assert_stale(store: ZnodeStateStore, task: TaskShare | None) -> None:
    """None of an owner's writes is done, and none acquires by itself what has passed on."""
    writes: list[Callable[[], object]] = [
        lambda: write_one(store, "shard-of-the-stale"),
        lambda: store.save_shard_list(["shard-of-the-stale"]),
        lambda: store.bind_stream(IDENTITY),
        store.try_lead,
        lambda: store.acquire(OWNER, timeout_s=0, task=task),
    ]
    for write in writes:
        with pytest.raises(StaleOwnerError, match="another process has taken over"):
            write()
    assert "shard-of-the-stale" not in store.load_states()
    assert (store.read_shard_list(), store.read_stream()) == (None, None)


def test_tasks_own_an_application_together(store_world: StoreWorld) -> None:
    """Each has a node of its own below one that says how many they are."""
    first, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2, OTHER)
    assert msgspec.json.decode(store_world.get("owner")) == {"totalTasks": 2, "format": 1}
    assert store_world.children("owner") == ["0-of-2", "1-of-2"]
    assert store_world.open().read_tasks() == {TaskShare(0, 2): OWNER, TaskShare(1, 2): OTHER}
    assert first.read_owner() == OWNER
    assert second.acquire(OTHER, timeout_s=0, task=TaskShare(1, 2)) == 1
    assert store_world.get("epoch") == b"1"


def test_each_new_owner_of_a_share_counts_its_epoch_up(store_world: StoreWorld) -> None:
    """That of the application and of the other shares stay as they are."""
    task_of(store_world, 1, 2)
    epochs = []
    for _ in range(3):
        store = store_world.open()
        epochs.append(store.acquire(OWNER, timeout_s=5, task=TaskShare(0, 2)))
        store.release()
    assert epochs == [1, 2, 3]
    assert (store_world.get("epoch"), store_world.get("epoch/1-of-2")) == (b"1", b"1")


def test_tasks_write_states_of_different_shards_at_the_same_time(store_world: StoreWorld) -> None:
    """No write of the one is in the way of one of the other."""

    def write(index: int) -> int:
        store = task_of(store_world, index, 2)
        known = store.save_states([StateChange(None, state_at(0, f"shard-{index}"))])[0]
        for number in range(1, 30):
            known = store.save_states([StateChange(known, state_at(number, f"shard-{index}"))])[0]
        return known.version

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, range(2))) == [29, 29]
    assert {shard: stored.version for shard, stored in store_world.open().load_states().items()} == {"shard-0": 29, "shard-1": 29}


def test_a_state_is_written_over_its_own_version_only_by_tasks_too(store_world: StoreWorld) -> None:
    """Two tasks that both take a shard for theirs do not overwrite each other."""
    first, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2)
    known = first.save_states([StateChange(None, state_at(1))])[0]
    second.save_states([StateChange(known, state_at(2))])
    with pytest.raises(ConflictError, match="was changed by somebody else"):
        first.save_states([StateChange(known, state_at(3))])


def test_one_share_has_one_owner(store_world: StoreWorld) -> None:
    """The second is told who has it; the first goes on undisturbed."""
    first = task_of(store_world, 1, 3)
    with pytest.raises(
        OwnedByAnotherError,
        match=r"^task 1 of 3 of application .* is running already: process 4242 on host-a.*another task index$",
    ):
        store_world.open().acquire(OTHER, timeout_s=0.2, task=TaskShare(1, 3))
    write_one(first, "a")


def test_who_waits_for_a_share_gets_it_when_it_is_released(store_world: StoreWorld) -> None:
    """Long before its time is up."""
    first = task_of(store_world, 1, 3)
    second, tree = interposed(store_world.open())
    released: list[threading.Thread] = []

    def release_soon() -> None:
        released.append(threading.Thread(target=first.release))
        released[0].start()

    tree.before_wait(release_soon)
    assert second.acquire(OTHER, timeout_s=60, task=TaskShare(1, 3)) == 2
    released[0].join(30)
    assert second.read_tasks() == {TaskShare(1, 3): OTHER}


def test_a_stale_task_writes_nothing_at_all(store_world: StoreWorld) -> None:
    """After another has taken its share over; the other shares go on."""
    old, neighbour = task_of(store_world, 0, 2), task_of(store_world, 1, 2)
    store_world.lose_session(old)
    new = task_of(store_world, 0, 2, OTHER)
    assert_stale(old, TaskShare(0, 2))
    write_one(neighbour, "a")
    write_one(new, "b")
    new.release()
    old.release()
    assert old.acquire(OWNER, timeout_s=5, task=TaskShare(0, 2)) == 3


def test_a_task_regains_its_lost_session_with_the_next_write(store_world: StoreWorld) -> None:
    """Under the same epoch, while its neighbours see nothing of it."""
    store, neighbour = task_of(store_world, 0, 2), task_of(store_world, 1, 2, OTHER)
    store_world.lose_session(store)
    assert neighbour.read_tasks() == {TaskShare(1, 2): OTHER}
    write_one(store, "a")
    write_one(neighbour, "b")
    assert store.acquire(OWNER, timeout_s=0, task=TaskShare(0, 2)) == 1
    assert neighbour.read_tasks() == {TaskShare(0, 2): OWNER, TaskShare(1, 2): OTHER}


def test_another_total_at_the_same_time_is_refused(store_world: StoreWorld) -> None:
    """With both numbers and what to do. Those who are there go on."""
    first = task_of(store_world, 2, 3)
    with pytest.raises(
        OwnedByAnotherError,
        match=r"by 3 tasks in total, not 4 \(task 2 of 3 is process 4242 on .*; stop the others .* use the same total of 3$",
    ):
        store_world.open().acquire(OTHER, timeout_s=0.2, task=TaskShare(0, 4))
    write_one(first, "a")
    assert msgspec.json.decode(store_world.get("owner"))["totalTasks"] == 3


def test_another_total_takes_over_when_the_last_task_has_gone(store_world: StoreWorld) -> None:
    """A task of the old total writes nothing any more, also not when its number comes back; what was of it is removed."""
    old, last = task_of(store_world, 0, 3), task_of(store_world, 1, 3)
    store_world.lose_session(old)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(task_of, store_world, 0, 4, OTHER)
        last.release()
        new = waiting.result(timeout=30)
    assert (store_world.children("owner"), store_world.children("epoch")) == (["0-of-4"], ["0-of-4"])
    assert store_world.get("epoch") == b"2"
    assert_stale(old, TaskShare(0, 3))
    new.release()
    task_of(store_world, 0, 3, OTHER)
    assert_stale(old, TaskShare(0, 3))


def test_a_task_waits_for_the_owner_of_the_whole(store_world: StoreWorld) -> None:
    """And is told who that is when its time is up."""
    driver = owned(store_world)
    with pytest.raises(OwnedByAnotherError, match=r"being consumed by process 4242 on host-a.*use another application name$"):
        store_world.open().acquire(OTHER, timeout_s=0.2, task=TaskShare(0, 2))
    write_one(driver, "a")


def test_a_task_joins_those_that_were_faster_when_the_owner_of_the_whole_goes(store_world: StoreWorld) -> None:
    """The node that it waits for has gone, although there is one of that name again when it looks."""
    driver = owned(store_world)
    slow, tree = interposed(store_world.open())

    def be_faster() -> None:
        driver.release()
        task_of(store_world, 0, 2)

    tree.before_wait(be_faster)
    assert slow.acquire(OTHER, timeout_s=60, task=TaskShare(1, 2)) == 1
    assert store_world.get("epoch") == b"2"
    assert slow.read_tasks() == {TaskShare(0, 2): OWNER, TaskShare(1, 2): OTHER}


def test_who_waits_is_told_of_who_was_faster(store_world: StoreWorld) -> None:
    """The error names who has it now, not who had it at first."""
    first = owned(store_world)
    slow, tree = interposed(store_world.open())

    def be_faster() -> None:
        first.release()
        task_of(store_world, 1, 3, OTHER)

    tree.before_wait(be_faster)
    with pytest.raises(OwnedByAnotherError, match="by task 1 of 3, process 4343 on host-b"):
        slow.acquire(OWNER, timeout_s=0.5)


def test_the_owner_of_the_whole_writes_nothing_once_tasks_have_taken_over(store_world: StoreWorld) -> None:
    """Its session was lost, and it does not get it back."""
    driver = owned(store_world)
    store_world.lose_session(driver)
    task = task_of(store_world, 0, 2, OTHER)
    assert_stale(driver, None)
    write_one(task, "a")


def test_the_whole_is_refused_while_a_task_lives(store_world: StoreWorld) -> None:
    """The error names a task."""
    task = task_of(store_world, 1, 3)
    with pytest.raises(
        OwnedByAnotherError, match=r"being consumed by task 1 of 3, process 4242 on host-a, since .*; stop all its tasks first"
    ):
        store_world.open().acquire(OTHER, timeout_s=0.2)
    write_one(task, "a")


def test_the_whole_is_taken_when_the_last_task_has_gone(store_world: StoreWorld) -> None:
    """`owner` goes with its session again. A task from before writes nothing, also not when there are tasks again."""
    old, last = task_of(store_world, 0, 2), task_of(store_world, 1, 2)
    store_world.lose_session(old)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(owned, store_world, OTHER)
        last.release()
        driver = waiting.result(timeout=30)
    assert (driver.read_owner(), driver.read_tasks()) == (OTHER, {})
    assert store_world.children("epoch") == []
    assert_stale(old, TaskShare(0, 2))
    driver.release()
    assert driver.read_owner() is None
    task_of(store_world, 0, 2, OTHER)
    assert_stale(old, TaskShare(0, 2))


@linux_only
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, TaskShare(0, 2)),
        (TaskShare(0, 2), None),
        (TaskShare(0, 2), TaskShare(0, 2)),
        (TaskShare(0, 2), TaskShare(2, 3)),
    ],
    ids=str,
)
def test_a_dead_holder_is_not_waited_for(store_world: StoreWorld, before: TaskShare | None, after: TaskShare | None) -> None:
    """Whatever it held, and whatever its successor wants; what it would still write is not done."""
    dead, store = store_world.open(), store_world.open()
    dead.acquire(dead_process(), timeout_s=0, task=before)
    assert store.acquire(OWNER, timeout_s=0, task=after) > 0
    assert store.read_owner() == OWNER
    assert list(store.read_tasks()) == ([] if after is None else [after])
    assert_stale(dead, before)


def test_a_store_holds_one_thing_at_a_time(store_world: StoreWorld) -> None:
    """It says what it holds."""
    store = task_of(store_world, 0, 2)
    for other in (None, TaskShare(1, 2)):
        with pytest.raises(ValueError, match=r"this store holds task 0 of 2 of application .*; release that first"):
            store.acquire(OWNER, timeout_s=0, task=other)
    store.release()
    assert store.acquire(OWNER, timeout_s=0) == 2


def test_tasks_bind_the_stream_together(store_world: StoreWorld) -> None:
    """Each compares, one writes."""
    for index in range(3):
        task_of(store_world, index, 3).bind_stream(IDENTITY)
    assert store_world.open().read_stream() == IDENTITY


def test_a_reset_is_refused_while_a_task_lives_and_removes_everything_after(store_world: StoreWorld) -> None:
    """Only `epoch` stays; a task from before writes nothing."""
    stale, task = task_of(store_world, 0, 2), task_of(store_world, 1, 2)
    write_one(task, "a")
    assert task.try_lead()
    task.save_shard_list(["a"])
    store_world.lose_session(stale)
    with pytest.raises(OwnedByAnotherError, match="task 1 of 2"):
        store_world.open().reset(OTHER, timeout_s=0)
    assert list(task.load_states()) == ["a"]
    task.release()
    fresh = store_world.open()
    assert fresh.reset(OTHER, timeout_s=10) == 1
    assert (fresh.load_states(), fresh.read_shard_list(), fresh.read_owner()) == ({}, None, None)
    assert store_world.children("epoch") == []
    assert_stale(stale, TaskShare(0, 2))


def test_what_is_not_ours_below_owner_is_named(store_world: StoreWorld) -> None:
    """Neither waited for nor removed."""
    store_world.put("owner/somebody", b"")
    with pytest.raises(StoredDataError, match=r"flights/owner/somebody is not a task's; remove it"):
        store_world.open().acquire(OWNER, timeout_s=0)


def test_a_damaged_owner_stops_tasks_until_a_reset(store_world: StoreWorld) -> None:
    """Nobody knows how many tasks it was."""
    store_world.put("owner", b"{")
    store_world.put("epoch", b"1")
    with pytest.raises(StoredDataError, match=r"flights/owner holds .* reset the application"):
        task_of(store_world, 0, 2)
    store_world.open().reset(OWNER, timeout_s=10)
    task_of(store_world, 0, 2)
