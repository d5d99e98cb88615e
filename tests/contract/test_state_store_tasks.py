"""The contract of the state store, for memory and ZooKeeper alike: several tasks that own one
application together, and changes from one owner to tasks, back, and to another total.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from state.errors import OwnedByAnotherError, StaleOwnerError, StoredDataError
from state.process import process_start, this_process
from state.store.ownership import TaskShare
from state.store.shard_states import StateChange
from tests.support.state.state_stores import (
    OTHER,
    OWNER,
    assert_stale,
    dead_process,
    owned,
    state_at,
    task_of,
    write_one,
)
from tests.support.state.trees import interposed

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld

FIRST, SECOND = TaskShare(0, 2), TaskShare(1, 2)
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux identifies processes reliably"
)


def test_tasks_own_an_application_together(store_world: StoreWorld) -> None:
    """Each task has a node of its own, below a node with the number of tasks."""
    _, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2, OTHER)
    assert msgspec.json.decode(store_world.get("owner")) == {"totalTasks": 2, "format": 1}
    assert store_world.children("owner") == ["0-of-2", "1-of-2"]
    holders = store_world.open().ownership.holders()
    assert list(holders.items()) == [(TaskShare(0, 2), OWNER), (TaskShare(1, 2), OTHER)]
    assert second.ownership.acquire(OTHER, timeout_s=0, task=TaskShare(1, 2)) == 1
    assert store_world.get("epoch") == b"1"


@pytest.mark.parametrize("share", [None, FIRST, SECOND], ids=str)
def test_an_overtaken_owner_writes_nothing_at_all(
    store_world: StoreWorld, share: TaskShare | None
) -> None:
    """Another process has taken over the whole, or its share, whether it was the first task or one
    that joined. The other shares are not affected. The state that it has read is outdated, so it
    must release before it acquires again.
    """
    shares = [None] if share is None else [FIRST, SECOND]
    stores = {each: owned(store_world, OWNER, each) for each in shares}
    old = stores.pop(share)
    store_world.lose_session(old)
    new = owned(store_world, OTHER, share)
    assert_stale(old, share)
    for neighbour in stores.values():
        write_one(neighbour, "a")
    write_one(new, "b")
    new.ownership.release()
    old.ownership.release()
    assert old.ownership.acquire(OWNER, timeout_s=5, task=share) == 3


@pytest.mark.parametrize("removed", ["epoch", "owner"])
def test_an_owner_whose_state_was_removed_says_so(store_world: StoreWorld, removed: str) -> None:
    """As with a ZooKeeper that has lost its data: no other process has taken over. It writes
    nothing more, and may acquire the application again.
    """
    store = owned(store_world, OWNER, FIRST)
    store_world.remove(removed)
    for _ in range(2):
        with pytest.raises(
            StaleOwnerError,
            match=r"^the state of application .* was removed from ZooKeeper.*; rest",
        ):
            write_one(store, "a")
    assert store.shard_states.load() == {}
    store.ownership.release()
    store.ownership.acquire(OWNER, timeout_s=0, task=FIRST)
    write_one(store, "a")


@pytest.mark.parametrize("share", [None, TaskShare(0, 2)], ids=str)
def test_the_release_of_a_stale_owner_does_not_affect_its_successor(
    store_world: StoreWorld, share: TaskShare | None
) -> None:
    """No third process can acquire it, and the successor continues to write."""
    old = owned(store_world, OWNER, share)
    store_world.lose_session(old)
    new = owned(store_world, OTHER, share)
    old.ownership.release()
    assert new.ownership.holders() == {share: OTHER}
    write_one(new, "a")


@pytest.mark.parametrize("share", [None, FIRST], ids=str)
def test_a_lost_session_is_regained_by_the_next_write(
    store_world: StoreWorld, share: TaskShare | None
) -> None:
    """No other process has taken over, so the owner keeps its epoch, others see it as
    the owner again, and other tasks are not affected.
    """
    store = owned(store_world, OWNER, share)
    others = {} if share is None else {SECOND: OTHER}
    known = store.shard_states.save([StateChange(None, state_at(1))])[0]
    neighbours = [owned(store_world, owner, other) for other, owner in others.items()]
    store_world.lose_session(store)
    assert store_world.open().ownership.holders() == others
    again = store.shard_states.save([StateChange(known, state_at(2))])[0]
    assert again.version == known.version + 1
    for neighbour in neighbours:
        write_one(neighbour, "b")
    assert store.ownership.acquire(OWNER, timeout_s=0, task=share) == 1
    assert store_world.open().ownership.holders() == {share: OWNER} | others


def test_a_store_owns_one_share_at_a_time(store_world: StoreWorld) -> None:
    store = task_of(store_world, 0, 2)
    for other in (None, TaskShare(1, 2)):
        with pytest.raises(
            ValueError,
            match=r"this process owns task 0 of 2 of application .*; release the ownership first",
        ):
            store.ownership.acquire(OWNER, timeout_s=0, task=other)
    store.ownership.release()
    assert store.ownership.acquire(OWNER, timeout_s=0) == 2


def test_a_foreign_node_below_owner_is_named_in_an_error(store_world: StoreWorld) -> None:
    """It is neither waited for nor removed."""
    store_world.put("owner/somebody", b"")
    with pytest.raises(
        StoredDataError, match=r"flights/owner/somebody is not named after a task; remove it"
    ):
        store_world.open().ownership.acquire(OWNER, timeout_s=0)


def test_a_damaged_owner_stops_tasks_until_a_reset(store_world: StoreWorld) -> None:
    """The number of tasks is not known."""
    store_world.put("owner", b"{")
    store_world.put("epoch", b"1")
    with pytest.raises(
        StoredDataError, match=r"flights/owner contains .* not a tasks .* reset the application"
    ):
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
    other = owned(store_world, OTHER, between)
    if between is None:
        with pytest.raises(ValueError, match="only a spout task"):
            other.ownership.save_unclean_starts(1)
    else:
        assert other.ownership.read_unclean_starts() == 0
    other.ownership.release()
    assert task_of(store_world, 0, 2).ownership.read_unclean_starts() == 0


@pytest.mark.parametrize(
    ("held", "wanted", "says"),
    [
        (
            TaskShare(2, 3),
            TaskShare(0, 4),
            r"with a total of 3 tasks, not 4 \(task 2 of 3 is process 4242 on .*with a total of 3",
        ),
        (
            TaskShare(1, 3),
            None,
            "by task 1 of 3, process 4242 on host-a.*stop all tasks of the application first",
        ),
        (None, TaskShare(0, 2), "by process 4242 on host-a.*use another application name$"),
        (
            TaskShare(0, 1),
            TaskShare(0, 1),
            r"^application .* by process 4242 on host-a.*stop .*use another application name$",
        ),
        (
            TaskShare(0, 1),
            TaskShare(0, 2),
            "by process 4242 .*stop .*use another application name$",
        ),
        (None, None, "process 4242 on host-a, since 2013-01-01T00:26:40Z; stop the other process"),
        (
            TaskShare(1, 3),
            TaskShare(1, 3),
            (
                r"^task 1 of 3 of application .* is already being run by process 4242 on host-a"
                r".*another task index$"
            ),
        ),
    ],
    ids=str,
)
def test_another_owner_is_refused_while_one_lives(
    store_world: StoreWorld, held: TaskShare | None, wanted: TaskShare | None, says: str
) -> None:
    holder = owned(store_world, OWNER, held)
    with pytest.raises(OwnedByAnotherError, match=says):
        store_world.open().ownership.acquire(OTHER, timeout_s=0.2, task=wanted)
    write_one(holder, "a")


@pytest.mark.parametrize("after", [None, TaskShare(0, 4)], ids=str)
def test_another_division_takes_over_when_the_last_task_has_gone(
    store_world: StoreWorld, after: TaskShare | None
) -> None:
    """A task of the old total can no longer write. The nodes of the old total are removed."""
    old, last = task_of(store_world, 0, 3), task_of(store_world, 1, 3)
    store_world.lose_session(old)
    slow, tree = interposed(store_world.open())
    tree.before_wait(last.ownership.release)
    epoch = slow.ownership.acquire(OTHER, timeout_s=60, task=after)
    assert (epoch, store_world.get("epoch")) == (2 if after is None else 1, b"2")
    assert slow.ownership.holders() == {after: OTHER}
    below = [] if after is None else ["0-of-4"]
    assert store_world.children("owner") == store_world.children("epoch") == below
    assert_stale(old, TaskShare(0, 3))
    slow.ownership.release()
    assert slow.ownership.holders() == {}


@pytest.mark.parametrize("between", [None, TaskShare(0, 4)], ids=str)
def test_a_task_from_before_a_change_stays_stale_when_it_is_changed_back(
    store_world: StoreWorld, between: TaskShare | None
) -> None:
    """Although the share has an owner and an epoch with the same number again."""
    old = [task_of(store_world, index, 2) for index in range(2)]
    for store in old:
        store_world.lose_session(store)
    owned(store_world, OTHER, between).ownership.release()
    for index in range(2):
        task_of(store_world, index, 2, OTHER)
        assert store_world.get(f"epoch/{index}-of-2") == b"1"
    for index, store in enumerate(old):
        assert_stale(store, TaskShare(index, 2))


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
def test_a_dead_holder_is_not_waited_for(
    store_world: StoreWorld, before: TaskShare | None, after: TaskShare | None
) -> None:
    """Whatever it held, and whatever its successor acquires. A late write of it is refused."""
    dead, store = store_world.open(), store_world.open()
    dead.ownership.acquire(dead_process(), timeout_s=0, task=before)
    assert store.ownership.acquire(OWNER, timeout_s=0, task=after) > 0
    assert store.ownership.holders() == {after: OWNER}
    assert_stale(dead, before)


def test_a_reset_is_refused_while_a_task_lives_and_removes_everything_after(
    store_world: StoreWorld,
) -> None:
    """Only `epoch` stays, and an earlier task writes nothing."""
    stale, task = task_of(store_world, 0, 2), task_of(store_world, 1, 2)
    write_one(task, "a")
    assert task.shard_list.try_lead()
    task.shard_list.save(["a"])
    store_world.lose_session(stale)
    with pytest.raises(OwnedByAnotherError, match="task 1 of 2"):
        store_world.open().identity.reset(OTHER, timeout_s=0)
    assert list(task.shard_states.load()) == ["a"]
    task.ownership.release()
    fresh = store_world.open()
    assert fresh.identity.reset(OTHER, timeout_s=10) == 1
    assert (fresh.shard_states.load(), fresh.shard_list.read()) == ({}, None)
    assert fresh.ownership.holders() == {}
    assert store_world.children("epoch") == []
    assert_stale(stale, TaskShare(0, 2))


# other processes act in between ---------------------------------------------------------------
def test_a_task_that_joins_in_between_is_not_overridden(store_world: StoreWorld) -> None:
    """The owner of the whole saw no task, but one exists when it writes: it must look again."""
    owned(store_world, OWNER, FIRST).ownership.release()
    late = store_world.open()
    store, tree = interposed(store_world.open())

    def join_and_go_later() -> None:
        late.ownership.acquire(OTHER, timeout_s=10, task=SECOND)
        tree.before_wait(late.ownership.release)

    tree.before_write("/owner", join_and_go_later)
    assert store.ownership.acquire(OWNER, timeout_s=10) == 2
    assert store_world.children("epoch") == []


def test_tasks_that_change_their_number_at_once_do_not_refuse_each_other(
    store_world: StoreWorld,
) -> None:
    """The first changes the number after the second has read the old one. The second joins the
    first, and does not wait for its end.
    """
    task_of(store_world, 0, 2).ownership.release()
    first = store_world.open()
    second, tree = interposed(store_world.open())
    tree.before_list(
        "owner", lambda: first.ownership.acquire(OWNER, timeout_s=0, task=TaskShare(0, 3))
    )
    second.ownership.acquire(OTHER, timeout_s=0, task=TaskShare(1, 3))
    assert second.ownership.holders() == {TaskShare(0, 3): OWNER, TaskShare(1, 3): OTHER}


def test_a_session_of_a_task_that_is_regained_in_between_is_not_overridden(
    store_world: StoreWorld,
) -> None:
    """A task with another total saw no holder, but the task is back before it writes."""
    old = owned(store_world, OTHER, FIRST)
    store_world.lose_session(old)
    store, tree = interposed(store_world.open())

    def come_back() -> None:
        old.shard_states.save([StateChange(None, state_at(1))])
        tree.before_wait(lambda: store_world.lose_session(old))

    tree.before_write("0-of-3", come_back)
    assert store.ownership.acquire(OWNER, timeout_s=10, task=TaskShare(0, 3)) == 1
    with pytest.raises(StaleOwnerError):
        old.shard_list.save(["a"])


@linux_only
def test_the_successor_of_a_dead_task_is_not_overridden(store_world: StoreWorld) -> None:
    """A claim on the whole saw the dead task, but the node is the successor's when it writes."""
    owned(store_world, dead_process(), FIRST)
    successor = store_world.open()
    store, tree = interposed(store_world.open())
    waited: list[int] = []

    def succeed() -> None:
        successor.ownership.acquire(OTHER, timeout_s=10, task=FIRST)
        tree.before_wait(go)

    def go() -> None:
        waited.append(1)
        successor.ownership.release()

    tree.before_write("/owner", succeed)
    assert store.ownership.acquire(OWNER, timeout_s=10) == 2
    assert waited == [1]


@linux_only
def test_a_successor_that_waits_sees_that_the_holder_has_died(store_world: StoreWorld) -> None:
    """On the same machine it does not wait for the session, which lives on here."""
    killed = store_world.open()
    store, tree = interposed(store_world.open())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = process_start(process.pid) or ""
        holder = replace(this_process(0), pid=process.pid, process_start=start)
        killed.ownership.acquire(holder, timeout_s=10, task=FIRST)
        tree.before_wait(process.kill)
        assert store.ownership.acquire(OWNER, timeout_s=30, task=FIRST) == 2
    with pytest.raises(StaleOwnerError):
        killed.shard_list.save(["a"])


@linux_only
def test_the_second_reader_of_a_spark_session_is_not_told_to_stop_the_first_ones_process(
    store_world: StoreWorld,
) -> None:
    """As of a self-join: both are processes that one driver has started."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = process_start(process.pid) or ""
        holder = replace(this_process(0), pid=process.pid, process_start=start)
        store_world.open().ownership.acquire(holder, timeout_s=0)
        with pytest.raises(
            OwnedByAnotherError, match=r"read in this Spark session by .*as in a self-join"
        ):
            store_world.open().ownership.acquire(OTHER, timeout_s=0)
        process.kill()


def test_of_two_tasks_that_try_to_lead_at_once_one_leads(store_world: StoreWorld) -> None:
    fast = owned(store_world, OTHER, FIRST)
    slow, tree = interposed(store_world.open())
    slow.ownership.acquire(OWNER, timeout_s=10, task=SECOND)
    tree.before_write("/epoch/lister", fast.shard_list.try_lead)
    assert not slow.shard_list.try_lead()
    assert fast.shard_list.try_lead()
