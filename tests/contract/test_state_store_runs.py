"""The contract of the state store, for memory and ZooKeeper alike: the runs of owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.errors import StaleOwnerError
from state.store.ownership import TaskShare
from state.store.runs import FAILED, FULL, SPARK, Hold, Loss, Run, RunEnd, RunLog
from tests.support.state.state_stores import OTHER, OWNER, owned, task_of

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld

RUN = Run(owner=OWNER, kind=SPARK, session_timeout_ms=10_000)
LATER = replace(RUN, owner=OTHER)
END = RunEnd(time_ms=9, kind=FAILED, says="records have expired unread")


def test_a_run_begins_and_ends(store_world: StoreWorld) -> None:
    """Its end outlives its process, and shows in one look."""
    store = owned(store_world)
    assert store.runs.read() == {}
    store.runs.begin(RUN)
    assert store.runs.amend(OWNER, lambda log: log.ended(END))
    store.close()
    ended = RunLog(runs=(replace(RUN, end=END),))
    assert store_world.open().runs.read() == {None: ended}
    assert store_world.open().view.read().runs == {None: ended}


def test_a_run_that_is_not_the_newest_is_not_amended(store_world: StoreWorld) -> None:
    """Nor has that of a killed process an end."""
    first = owned(store_world)
    first.runs.begin(RUN)
    first.close()
    owned(store_world, OTHER).runs.begin(LATER)
    assert not store_world.open().runs.amend(OWNER, lambda log: log.ended(END))
    assert store_world.open().runs.read()[None].runs == (RUN, LATER)


def test_an_owner_that_was_overtaken_adds_nothing_to_its_run(store_world: StoreWorld) -> None:
    """Its run is still the newest one: the run of the new owner is not told, or not yet."""
    overtaken = owned(store_world)
    overtaken.runs.begin(RUN)
    store_world.lose_session(overtaken)
    owned(store_world, OTHER)
    for _ in range(2):
        with pytest.raises(StaleOwnerError):
            overtaken.runs.amend(OWNER, lambda log: log.ended(END))
    assert store_world.open().runs.read() == {None: RunLog(runs=(RUN,))}


def test_another_process_may_end_a_run_and_the_first_error_counts(store_world: StoreWorld) -> None:
    """A Spark driver's main process is not the owner; only the owner begins a run."""
    owned(store_world).runs.begin(RUN)
    store = store_world.open()
    with pytest.raises(StaleOwnerError):
        store.runs.begin(LATER)
    store.runs.amend(OWNER, lambda log: log.ended(END))
    assert store.runs.amend(OWNER, lambda log: log.ended(replace(END, says="later")))
    assert store.runs.read()[None].newest == replace(RUN, end=END)


def test_what_a_run_waits_for_ends_with_it_and_a_loss_stays_known(store_world: StoreWorld) -> None:
    store, loss = owned(store_world), Loss(time_ms=5, says="records may be lost")
    hold = Hold(kind=FULL, since_ms=5)
    store.runs.begin(RUN)
    store.runs.amend(OWNER, lambda log: replace(log, hold=hold, losses=(loss,)))
    assert store.runs.read()[None].hold == hold
    store.runs.begin(replace(RUN, owner=replace(OWNER, since_ms=8)))
    newest = store_world.open().runs.read()[None]
    assert (newest.hold, newest.losses) == (None, (loss,))


def test_an_owner_of_two_tasks_adds_to_the_run_of_each(store_world: StoreWorld) -> None:
    """They may have been opened in one millisecond."""
    tasks = [task_of(store_world, index, 2) for index in range(2)]
    for task in tasks:
        task.runs.begin(RUN)
    assert tasks[1].runs.amend(OWNER, lambda log: log.ended(END))
    assert store_world.open().runs.read() == {
        TaskShare(0, 2): RunLog(runs=(RUN,)),
        TaskShare(1, 2): RunLog(runs=(replace(RUN, end=END),)),
    }


def test_another_number_of_tasks_removes_the_runs_of_the_old_one(store_world: StoreWorld) -> None:
    for index in range(2):
        task = task_of(store_world, index, 2)
        task.runs.begin(RUN)
        task.close()
    task_of(store_world, 0, 3, OTHER).runs.begin(LATER)
    assert store_world.open().runs.read() == {TaskShare(0, 3): RunLog(runs=(LATER,))}


def test_damaged_and_newer_bytes_are_no_runs(store_world: StoreWorld) -> None:
    """Nothing is decided by them, so they stop nobody, and the next run replaces them."""
    for data in (b"", b"\xff", b'{"format":9}'):
        store_world.put("runs/all", data)
        assert store_world.open().runs.read() == {None: RunLog()}
    owned(store_world).runs.begin(RUN)
    assert store_world.open().runs.read() == {None: RunLog(runs=(RUN,))}
