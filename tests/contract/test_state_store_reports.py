"""The contract of the state store, for memory and ZooKeeper alike: reports of tracked batches, and
the mark of tracking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import ConflictError, InvalidStoreSettingError, PlanClosedError
from state.report import OpenReport, PlanReport
from state.znodes.tree import Set
from tests.support.state import state_values
from tests.support.state.interposed_tree import interposed
from tests.support.state.state_stores import OTHER, failures, log_of, owned, plan

if TYPE_CHECKING:
    from state.znodes.store import ZnodeStateStore
    from tests.support.state.state_stores import StoreWorld

REPORT = "batches/1-aa/report"
SMALL = PlanReport(failed=1, done_ms=9)


@pytest.fixture(scope="session")
def many_reports() -> list[PlanReport]:
    return state_values.sample(state_values.plan_reports, 20)


@pytest.fixture
def store(store_world: StoreWorld) -> ZnodeStateStore:
    """An owner's store with the open plan `1-aa`."""
    store = owned(store_world)
    store.create_plan(plan(1))
    return store


def test_reports_come_back_as_they_were_written(
    store_world: StoreWorld, many_reports: list[PlanReport]
) -> None:
    """Every field survives. The plan and its results are read as before."""
    for report in many_reports:
        store_world.renew()
        store = owned(store_world)
        store.create_plan(plan(1))
        store.append_log("1-aa", 0, log_of(3), None)
        batch = store_world.open()
        batch.finish_report(batch.open_report("1-aa", "token"), report)
        store.close_plan("1-aa")
        assert store_world.open().read_report("1-aa") == report
        assert store.read_plan("1-aa") == plan(1)
        assert store.read_ends("1-aa") == {0: log_of(3).folded()}


def test_a_report_counts_when_it_is_done_and_not_while_it_is_open(store: ZnodeStateStore) -> None:
    """Neither the first time nor when the batch runs again: only its new outcomes count.
    `reopened` says that it is not the first.
    """
    opened = store.open_report("1-aa", "first")
    assert opened == OpenReport(plan_id="1-aa", token="first", version=0, openings=0)
    assert store.read_report("1-aa") is None
    store.finish_report(opened, failures(3))
    assert store.read_report("1-aa") == failures(3)
    again = store.open_report("1-aa", "second")
    assert again.reopened
    assert store.read_report("1-aa") is None
    store.finish_report(again, SMALL)
    assert store.read_report("1-aa") == SMALL


@pytest.mark.parametrize("token", ["old", "new"])
def test_a_zombies_late_report_is_refused(
    store: ZnodeStateStore, store_world: StoreWorld, token: str
) -> None:
    """Before its successor is done and after it, also if both have the same token. It leaves
    nothing behind.
    """
    zombie = store_world.open()
    old = zombie.open_report("1-aa", token)
    new = store.open_report("1-aa", "new")
    for report in (SMALL, failures(10_000)):
        with pytest.raises(
            ConflictError, match="report of plan 1-aa was opened by another process"
        ):
            zombie.finish_report(old, report)
    store.finish_report(new, failures(2))
    with pytest.raises(ConflictError):
        zombie.finish_report(old, SMALL)
    assert store.read_report("1-aa") == failures(2)
    assert store_world.children(REPORT) == []


def test_openings_that_never_answered_are_counted(store: ZnodeStateStore) -> None:
    """A batch that fails in a live process has answered, and so has one whose report is done."""
    openings = [store.open_report("1-aa", f"t{n}").openings for n in range(3)]
    assert openings == [0, 1, 2]
    failing = store.open_report("1-aa", "failing")
    store.answer_report(failing)
    store.answer_report(failing)
    assert store.read_report("1-aa") is None
    done = store.open_report("1-aa", "done")
    assert (failing.openings, done.openings) == (3, 3)
    store.finish_report(done, failures(10_000))
    again = store.open_report("1-aa", "again")
    assert (again.openings, store.open_report("1-aa", "last").openings) == (3, 4)


def test_a_batch_that_has_failed_can_neither_finish_nor_change_what_came_after_it(
    store: ZnodeStateStore,
) -> None:
    """Its answer is too late once the report was opened again or is done, or the plan is closed."""
    failed = store.open_report("1-aa", "failed")
    store.answer_report(failed)
    with pytest.raises(ConflictError):
        store.finish_report(failed, SMALL)
    old, new = store.open_report("1-aa", "old"), store.open_report("1-aa", "new")
    store.answer_report(old)
    store.finish_report(new, SMALL)
    store.answer_report(new)
    store.answer_report(old)
    assert store.read_report("1-aa") == SMALL
    last = store.open_report("1-aa", "last")
    store.close_plan("1-aa")
    store.answer_report(last)
    assert last.openings == 1


def test_an_open_report_of_an_earlier_version_says_nothing_of_openings(
    store: ZnodeStateStore,
) -> None:
    """Its format did not count them, so the count starts at the next one."""
    store.open_report("1-aa", "old")
    tree, path = store._tree, store._paths.report("1-aa")
    tree.commit([Set(path, b'{"token":"old","status":"open"}', 0)])
    assert [store.open_report("1-aa", f"t{n}").openings for n in range(2)] == [0, 1]


def test_a_batch_of_a_closed_plan_cannot_report(
    store: ZnodeStateStore, store_world: StoreWorld
) -> None:
    """It can neither open nor finish a report. A report that was done in time stays."""
    opened = store.open_report("1-aa", "token")
    store.close_plan("1-aa")
    batch = store_world.open()
    with pytest.raises(PlanClosedError, match="plan 1-aa is closed or removed"):
        batch.open_report("1-aa", "late")
    for report in (SMALL, failures(10_000)):
        with pytest.raises(PlanClosedError):
            batch.finish_report(opened, report)
    assert store.read_report("1-aa") is None
    assert store_world.children(REPORT) == []


def test_a_batch_of_an_earlier_or_unknown_plan_cannot_report(
    store: ZnodeStateStore, store_world: StoreWorld
) -> None:
    """A plan is closed by a later one. For a plan that is gone, no node is created."""
    opened = store.open_report("1-aa", "token")
    store.create_plan(plan(2))
    with pytest.raises(PlanClosedError):
        store.finish_report(opened, SMALL)
    store.remove_plan("1-aa")
    with pytest.raises(PlanClosedError):
        store.finish_report(opened, SMALL)
    for plan_id in ("1-aa", "2-bb", "7-aa"):
        with pytest.raises(PlanClosedError):
            store.open_report(plan_id, "token")
        assert store.read_report(plan_id) is None
    assert store_world.children("batches") == ["2-aa"]


def test_a_report_is_fenced_by_its_plan_and_not_by_the_epoch(
    store: ZnodeStateStore, store_world: StoreWorld
) -> None:
    """The batch in the driver does not own the application. The next owner settles its report."""
    opened = store_world.open().open_report("1-aa", "token")
    store_world.lose_session(store)
    new = owned(store_world, OTHER)
    store_world.open().finish_report(opened, SMALL)
    new.close_plan("1-aa")
    assert new.read_report("1-aa") == SMALL


def test_finishing_again_changes_nothing(store: ZnodeStateStore) -> None:
    """A batch whose answer was lost may finish again, also if the plan is closed by then."""
    opened = store.open_report("1-aa", "token")
    store.finish_report(opened, SMALL)
    store.finish_report(opened, SMALL)
    store.close_plan("1-aa")
    store.finish_report(opened, SMALL)
    assert store.read_report("1-aa") == SMALL


def test_a_lost_answer_does_not_hide_that_another_process_has_opened_it(
    store: ZnodeStateStore,
) -> None:
    """The node does not hold this batch's own opening."""
    batch, tree = interposed(store)
    opened = batch.open_report("1-aa", "mine")
    tree.before_write(REPORT, lambda: store.open_report("1-aa", "other"))
    with pytest.raises(ConflictError):
        batch.finish_report(opened, SMALL)
    assert store.read_report("1-aa") is None


def test_a_token_that_is_not_a_valid_name_never_becomes_a_path(store: ZnodeStateStore) -> None:
    """It is part of the names of the parts."""
    for token in ("", "a/b", "..", "\x00", "x" * 300):
        with pytest.raises(InvalidStoreSettingError, match="report token"):
            store.open_report("1-aa", token)
    assert store.read_report("1-aa") is None
