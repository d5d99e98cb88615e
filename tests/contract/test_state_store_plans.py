"""The contract of the state store, for memory and ZooKeeper alike: plans, and what their tasks
publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import ConflictError, PlanClosedError
from state.plan import PlanPointer, PlanStatus
from state.store.ownership import TaskShare
from tests.support.state.state_stores import OTHER, failures, log_of, owned, plan, task_of
from tests.support.state.trees import interposed

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld


def test_a_plan_goes_from_open_to_closed_to_settled(store_world: StoreWorld) -> None:
    """`/plan` shows each step. Repeating a step changes nothing."""
    store = owned(store_world)
    store.plans.create(plan(1))
    seen = [store.plans.pointer()]
    for step in (*[store.plans.close] * 2, *[store.plans.mark_settled] * 2, store.plans.close):
        step("1-aa")
        seen.append(store.plans.pointer())
    assert [pointer and pointer.status for pointer in seen] == [
        PlanStatus.OPEN,
        *[PlanStatus.CLOSED] * 2,
        *[PlanStatus.SETTLED] * 3,
    ]


def test_only_the_newest_plan_is_closed_and_settled(store_world: StoreWorld) -> None:
    """A plan with the same number and another nonce is a different plan. It is closed first, or
    else a task could still publish.
    """
    store = owned(store_world)
    for act in (store.plans.close, store.plans.mark_settled):
        with pytest.raises(ConflictError, match="no batch exists"):
            act("1-aa")
    store.plans.create(plan(1))
    for act in (store.plans.close, store.plans.mark_settled):
        with pytest.raises(ConflictError, match=r"which is 1-aa \(open\)"):
            act("1-bb")
    with pytest.raises(ConflictError, match=r"close batch .* first"):
        store.plans.mark_settled("1-aa")


def test_plan_numbers_only_go_up(store_world: StoreWorld) -> None:
    """The number of a new plan is above all that the store knows. Ids are listed by number, not as
    texts.
    """
    store = owned(store_world)
    for number in (2, 9, 10):
        store.plans.create(plan(number))
    for number in (1, 9, 10):
        with pytest.raises(ConflictError, match="does not have a higher number than batch 10"):
            store.plans.create(plan(number, "bb"))
    assert store.plans.known() == ["2-aa", "9-aa", "10-aa"]


def test_a_task_of_several_closes_the_plan_of_an_owner_before_it(store_world: StoreWorld) -> None:
    """Any share of the application may. The other tasks find it closed."""
    old = owned(store_world)
    old.plans.create(plan(1))
    old.ownership.release()
    first, second = task_of(store_world, 0, 2), task_of(store_world, 1, 2, OTHER)
    for task in (second, first):
        task.plans.close("1-aa")
        assert task.plans.pointer() == PlanPointer("1-aa", PlanStatus.CLOSED)
    with pytest.raises(PlanClosedError):
        old.plans.append_log("1-aa", 0, log_of(3), None)


def test_a_task_that_closes_a_plan_which_another_is_closing_may_look_again(
    store_world: StoreWorld,
) -> None:
    """It gets a ConflictError, and finds the plan closed."""
    old = owned(store_world)
    old.plans.create(plan(1))
    old.ownership.release()
    first = task_of(store_world, 0, 2)
    second, tree = interposed(store_world.open())
    second.ownership.acquire(OTHER, timeout_s=10, task=TaskShare(1, 2))
    tree.before_write("/plan", lambda: first.plans.close("1-aa"))
    with pytest.raises(ConflictError, match="read the znode again"):
        second.plans.close("1-aa")
    assert second.plans.pointer() == PlanPointer("1-aa", PlanStatus.CLOSED)


def test_a_half_created_plan_is_not_a_plan_but_its_number_is_used(store_world: StoreWorld) -> None:
    """A driver that died between two transactions leaves a header with too few tasks."""
    store_world.put("batches/5-aa", b'{"createdMs":1,"tasks":2}')
    store_world.put("batches/5-aa/0", b'{"shards":[],"maxBytes":1,"fetchTimeMs":1,"fetchCapMs":1}')
    store = owned(store_world)
    assert store.plans.read("5-aa") is None
    assert store.plans.known() == ["5-aa"]
    with pytest.raises(ConflictError):
        store.plans.create(plan(5, "bb"))
    store.plans.create(plan(6))
    store.plans.remove("5-aa")
    assert store.plans.known() == ["6-aa"]


@pytest.mark.parametrize("by_the_next", [False, True])
def test_a_zombie_of_a_closed_plan_publishes_nothing(
    store_world: StoreWorld, *, by_the_next: bool
) -> None:
    """Neither if there is no log, nor if there is one, sealed or not, nor what is in the log
    already: an answer that was lost before the plan was closed stays lost. The next plan closes one
    that was not settled.
    """
    store = owned(store_world)
    zombie = store_world.open()
    store.plans.create(plan(1))
    version = zombie.plans.append_log("1-aa", 0, log_of(3, sealed=False), None)
    if by_the_next:
        store.plans.create(plan(2))
        assert store.plans.pointer() == PlanPointer("2-aa", PlanStatus.OPEN)
    else:
        store.plans.close("1-aa")
    for task, log, read in (
        (1, log_of(3), None),
        (0, log_of(3), None),
        (0, log_of(3, 4), version),
        (0, log_of(3, sealed=False), None),
        (0, log_of(3, sealed=False), 17),
    ):
        with pytest.raises(PlanClosedError, match="batch 1-aa is closed or removed"):
            zombie.plans.append_log("1-aa", task, log, read)
    assert store_world.children("batches/1-aa/1") == []
    assert store.plans.read_results("1-aa") == {0: log_of(3, sealed=False).folded()}


def test_an_unknown_plan_or_task_creates_nothing(store_world: StoreWorld) -> None:
    """Parents are never created. A number used again with another nonce is a different plan."""
    store = owned(store_world)
    store.plans.create(plan(1))
    for plan_id, task in (("1-bb", 0), ("7-aa", 0), ("1-aa", 99)):
        with pytest.raises(PlanClosedError):
            store.plans.append_log(plan_id, task, log_of(3), None)
    assert store_world.children("batches") == ["1-aa"]
    assert store_world.children("batches/1-aa") == ["0", "1"]
    assert (store.plans.read("1-bb"), store.plans.read_results("1-bb")) == (None, {})


def test_logs_and_reports_are_fenced_by_plan_and_not_by_epoch(store_world: StoreWorld) -> None:
    """A task of an open plan can publish after the ownership has passed on, and the batch in the
    driver does not own the application either. The new owner settles the plan.
    """
    old, batch = owned(store_world), store_world.open()
    old.plans.create(plan(1))
    opened = batch.reports.open("1-aa", "token")
    store_world.lose_session(old)
    new = owned(store_world, OTHER)
    store_world.open().plans.append_log("1-aa", 0, log_of(3), None)
    batch.reports.finish(opened, failures(1))
    new.plans.close("1-aa")
    assert new.plans.read_results("1-aa") == {0: log_of(3).folded()}
    assert new.reports.read("1-aa") == failures(1)


def test_a_removed_plan_is_gone_and_the_newest_stays(store_world: StoreWorld) -> None:
    """Removing a plan that is gone changes nothing. The newest plan is refused."""
    store = owned(store_world)
    store.plans.create(plan(1))
    version = store.plans.append_log("1-aa", 0, log_of(3, sealed=False), None)
    store.plans.create(plan(2))
    store.plans.remove("1-aa")
    store.plans.remove("1-aa")
    assert store.plans.read("1-aa") is None
    for read in (None, version):
        with pytest.raises(PlanClosedError):
            store.plans.append_log("1-aa", 0, log_of(3), read)
    assert store_world.children("batches") == ["2-aa"]
    with pytest.raises(ValueError, match="2-aa cannot be removed"):
        store.plans.remove("2-aa")


def test_a_text_that_is_no_plan_id_never_becomes_a_path(store_world: StoreWorld) -> None:
    """Ids are read from Spark's checkpoint, so they are checked."""
    store = store_world.open()
    for text in ("../owner", "", "1", "1-aa/0"):
        for call in (
            store.plans.read,
            lambda plan_id: store.plans.read_log(plan_id, 0),
            lambda plan_id: store.plans.append_log(plan_id, 0, log_of(3), None),
        ):
            with pytest.raises(ValueError, match="not a plan id"):
                call(text)
