"""The contract of the state store, for memory and ZooKeeper alike: the runs of owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.errors import StaleOwnerError
from state.owner.run_log import FAILED, FULL, SPARK, SPOUT, Hold, Run, RunEnd, RunLog
from state.state_store import TaskShare
from tests.support.state.state_stores import OTHER, OWNER, owned, task_of

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld

RUN = Run(owner=OWNER, kind=SPARK, session_timeout_ms=10_000)
LATER = replace(RUN, owner=OTHER)
END = RunEnd(time_ms=9, kind=FAILED, says="records have expired unread")


def test_a_run_begins_and_ends(store_world: StoreWorld) -> None:
    """Its end outlives its process, and shows in one look."""
    store = owned(store_world)
    assert store.read_runs() == {}
    store.begin_run(RUN)
    assert store.amend_run(OWNER, lambda log: log.ended(END))
    store.close()
    ended = RunLog(runs=(replace(RUN, end=END),))
    assert store_world.open().read_runs() == {None: ended}
    assert store_world.open().read_application().runs == {None: ended}


def test_a_run_that_is_not_the_newest_is_not_amended(store_world: StoreWorld) -> None:
    """Nor has that of a killed process an end."""
    first = owned(store_world)
    first.begin_run(RUN)
    first.close()
    owned(store_world, OTHER).begin_run(LATER)
    assert not store_world.open().amend_run(OWNER, lambda log: log.ended(END))
    assert store_world.open().read_runs()[None].runs == (RUN, LATER)


def test_an_owner_that_was_overtaken_adds_nothing_to_its_run(store_world: StoreWorld) -> None:
    """Its run is still the newest one: the run of the new owner is not told, or not yet."""
    overtaken = owned(store_world)
    overtaken.begin_run(RUN)
    store_world.lose_session(overtaken)
    owned(store_world, OTHER)
    for _ in range(2):
        with pytest.raises(StaleOwnerError):
            overtaken.amend_run(OWNER, lambda log: log.ended(END))
    assert store_world.open().read_runs() == {None: RunLog(runs=(RUN,))}


def test_another_process_may_end_a_run_and_the_first_error_counts(store_world: StoreWorld) -> None:
    """A Spark driver's main process is not the owner; only the owner begins a run."""
    owned(store_world).begin_run(RUN)
    store = store_world.open()
    with pytest.raises(StaleOwnerError):
        store.begin_run(LATER)
    store.amend_run(OWNER, lambda log: log.ended(END))
    assert store.amend_run(OWNER, lambda log: log.ended(replace(END, says="later")))
    assert store.read_runs()[None].newest == replace(RUN, end=END)


def test_what_it_waits_for_is_of_the_newest_run_alone(store_world: StoreWorld) -> None:
    store = owned(store_world)
    store.begin_run(RUN)
    store.amend_run(OWNER, lambda log: replace(log, hold=Hold(kind=FULL, since_ms=5)))
    assert store.read_runs()[None].hold == Hold(kind=FULL, since_ms=5)
    store.begin_run(replace(RUN, owner=replace(OWNER, since_ms=8)))
    assert store.read_runs()[None].hold is None


def test_tasks_have_runs_of_their_own(store_world: StoreWorld) -> None:
    first, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2, OTHER)
    first.begin_run(replace(RUN, kind=SPOUT))
    second.begin_run(replace(LATER, kind=SPOUT))
    assert second.amend_run(OTHER, lambda log: log.ended(END))
    runs = store_world.open().read_runs()
    assert runs[TaskShare(0, 2)].newest == replace(RUN, kind=SPOUT)
    assert runs[TaskShare(1, 2)].newest == replace(LATER, kind=SPOUT, end=END)


def test_an_owner_of_two_tasks_adds_to_the_run_of_each(store_world: StoreWorld) -> None:
    """They may have been opened in one millisecond."""
    tasks = [task_of(store_world, index, 2) for index in range(2)]
    for task in tasks:
        task.begin_run(RUN)
    assert tasks[1].amend_run(OWNER, lambda log: log.ended(END))
    assert store_world.open().read_runs() == {
        TaskShare(0, 2): RunLog(runs=(RUN,)),
        TaskShare(1, 2): RunLog(runs=(replace(RUN, end=END),)),
    }


def test_another_number_of_tasks_removes_the_runs_of_the_old_one(store_world: StoreWorld) -> None:
    for index in range(2):
        task = task_of(store_world, index, 2)
        task.begin_run(RUN)
        task.close()
    task_of(store_world, 0, 3, OTHER).begin_run(LATER)
    assert store_world.open().read_runs() == {TaskShare(0, 3): RunLog(runs=(LATER,))}


def test_damaged_and_newer_bytes_are_no_runs(store_world: StoreWorld) -> None:
    """Nothing is decided by them, so they stop nobody, and the next run replaces them."""
    for data in (b"", b"\xff", b'{"format":9}'):
        store_world.put("runs/all", data)
        assert store_world.open().read_runs() == {None: RunLog()}
    owned(store_world).begin_run(RUN)
    assert store_world.open().read_runs() == {None: RunLog(runs=(RUN,))}
