"""The contract of the state store, for memory and ZooKeeper alike: reports of tracked batches,
also those that are large, damaged, or removed by an operator; and the mark of an application that
tracks its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from state.codec.values import MAX_VALUE_BYTES
from state.errors import (
    ConflictError,
    InvalidStoreSettingError,
    PlanClosedError,
    StaleOwnerError,
    StoredDataError,
)
from state.report import OnFailure, OpenReport, OutcomePolicy, PlanReport
from state.retry_policy import RetryPolicy
from tests.support.state.state_stores import OTHER, failures, owned, plan
from tests.support.state.trees import interposed

if TYPE_CHECKING:
    from state.znodes.topics import StoreTopics
    from tests.support.state.state_stores import StoreWorld

REPORT = "batches/1-aa/report"
SMALL = PlanReport(failed=1, done_ms=9)


@pytest.fixture
def store(store_world: StoreWorld) -> StoreTopics:
    """An owner's store with the open plan `1-aa`."""
    store = owned(store_world)
    store.plans.create(plan(1))
    return store


def test_a_report_counts_when_it_is_done_and_not_while_it_is_open(store: StoreTopics) -> None:
    """Neither the first time nor when the batch runs again: only its new outcomes count.
    `reopened` says that it is not the first.
    """
    opened = store.reports.open("1-aa", "first")
    assert opened == OpenReport(plan_id="1-aa", token="first", version=0, openings=0)
    assert store.reports.read("1-aa") is None
    store.reports.finish(opened, failures(3))
    assert store.reports.read("1-aa") == failures(3)
    again = store.reports.open("1-aa", "second")
    assert again.reopened
    assert store.reports.read("1-aa") is None
    store.reports.finish(again, SMALL)
    assert store.reports.read("1-aa") == SMALL


@pytest.mark.parametrize("token", ["old", "new"])
def test_a_zombies_late_report_is_refused(
    store: StoreTopics, store_world: StoreWorld, token: str
) -> None:
    """Before its successor is done and after it, also if both have the same token. It leaves
    nothing behind.
    """
    zombie = store_world.open()
    old = zombie.reports.open("1-aa", token)
    new = store.reports.open("1-aa", "new")
    for report in (SMALL, failures(10_000)):
        with pytest.raises(
            ConflictError, match="another process opened or removed the report of batch 1-aa"
        ):
            zombie.reports.finish(old, report)
    store.reports.finish(new, failures(2))
    with pytest.raises(ConflictError):
        zombie.reports.finish(old, SMALL)
    assert store.reports.read("1-aa") == failures(2)
    assert store_world.children(REPORT) == []


def test_openings_that_never_answered_are_counted(store: StoreTopics) -> None:
    """A batch that fails in a live process has answered, and so has one whose report is done."""
    openings = [store.reports.open("1-aa", f"t{n}").openings for n in range(3)]
    assert openings == [0, 1, 2]
    failing = store.reports.open("1-aa", "failing")
    store.reports.answer(failing)
    store.reports.answer(failing)
    assert store.reports.read("1-aa") is None
    done = store.reports.open("1-aa", "done")
    assert (failing.openings, done.openings) == (3, 3)
    store.reports.finish(done, failures(10_000))
    again = store.reports.open("1-aa", "again")
    assert (again.openings, store.reports.open("1-aa", "last").openings) == (3, 4)


def test_a_batch_that_has_failed_can_neither_finish_nor_change_what_came_after_it(
    store: StoreTopics,
) -> None:
    """Its answer is too late once the report was opened again or is done, or the plan is closed."""
    failed = store.reports.open("1-aa", "failed")
    store.reports.answer(failed)
    with pytest.raises(ConflictError):
        store.reports.finish(failed, SMALL)
    old, new = store.reports.open("1-aa", "old"), store.reports.open("1-aa", "new")
    store.reports.answer(old)
    store.reports.finish(new, SMALL)
    store.reports.answer(new)
    store.reports.answer(old)
    assert store.reports.read("1-aa") == SMALL
    last = store.reports.open("1-aa", "last")
    store.plans.close("1-aa")
    store.reports.answer(last)
    assert last.openings == 1


def test_a_batch_of_a_closed_removed_or_unknown_plan_cannot_report(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """It can neither open nor finish a report, and where the plan is gone no node is created."""
    opened = store.reports.open("1-aa", "token")
    store.plans.close("1-aa")
    batch = store_world.open()
    with pytest.raises(PlanClosedError, match="batch 1-aa is closed or removed"):
        batch.reports.open("1-aa", "late")
    for report in (SMALL, failures(10_000)):
        with pytest.raises(PlanClosedError):
            batch.reports.finish(opened, report)
    assert store.reports.read("1-aa") is None
    assert store_world.children(REPORT) == []
    store.plans.create(plan(2))
    store.plans.remove("1-aa")
    with pytest.raises(PlanClosedError):
        store.reports.finish(opened, SMALL)
    for plan_id in ("1-aa", "2-bb", "7-aa"):
        with pytest.raises(PlanClosedError):
            store.reports.open(plan_id, "token")
        assert store.reports.read(plan_id) is None
    assert store_world.children("batches") == ["2-aa"]


def test_finishing_again_changes_nothing(store: StoreTopics) -> None:
    """A batch whose answer was lost may finish again, also if the plan is closed by then."""
    opened = store.reports.open("1-aa", "token")
    store.reports.finish(opened, SMALL)
    store.reports.finish(opened, SMALL)
    store.plans.close("1-aa")
    store.reports.finish(opened, SMALL)
    assert store.reports.read("1-aa") == SMALL


def test_a_lost_answer_does_not_hide_that_another_process_has_opened_it(
    store: StoreTopics,
) -> None:
    """The node does not hold this batch's own opening."""
    batch, tree = interposed(store)
    opened = batch.reports.open("1-aa", "mine")
    tree.before_write(REPORT, lambda: store.reports.open("1-aa", "other"))
    with pytest.raises(ConflictError):
        batch.reports.finish(opened, SMALL)
    assert store.reports.read("1-aa") is None


def test_a_token_that_is_not_a_valid_name_never_becomes_a_path(store: StoreTopics) -> None:
    """It is part of the names of the parts."""
    for token in ("", "a/b", "..", "\x00", "x" * 300):
        with pytest.raises(InvalidStoreSettingError, match="report token"):
            store.reports.open("1-aa", token)
    assert store.reports.read("1-aa") is None


# parts, damage, removal --------------------------------------------------------------------------
def test_a_large_report_is_stored_in_parts(store: StoreTopics, store_world: StoreWorld) -> None:
    """10,000 failures in each of three shards. No value is above the limit, and all values are
    removed with the plan.
    """
    report = failures(10_000, shards=3)
    store.reports.finish(store.reports.open("1-aa", "token"), report)
    parts = store_world.children(REPORT)
    assert len(parts) > 3
    assert max(len(store_world.get(f"{REPORT}/{part}")) for part in parts) <= MAX_VALUE_BYTES
    store.plans.close("1-aa")
    assert store_world.open().reports.read("1-aa") == report
    store.plans.mark_settled("1-aa")
    store.plans.create(plan(2))
    store.plans.remove("1-aa")
    assert store_world.children("batches") == ["2-aa"]


def test_parts_of_a_process_that_died_are_not_part_of_the_next_report(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """They do not count, whether the next report is large or small. They are removed with the
    plan.
    """
    died, tree = interposed(store)
    first = died.reports.open("1-aa", "first")
    tree.before_write(REPORT, lambda: store.reports.open("1-aa", "second"))
    with pytest.raises(ConflictError):
        died.reports.finish(first, failures(10_000, reason="old"))
    assert store_world.children(REPORT)
    opened = store.reports.open("1-aa", "third")
    store.reports.finish(opened, failures(9_000))
    assert store.reports.read("1-aa") == failures(9_000)
    store.reports.finish(store.reports.open("1-aa", "fourth"), SMALL)
    assert store.reports.read("1-aa") == SMALL
    store.plans.create(plan(2))
    store.plans.remove("1-aa")
    assert store_world.children("batches") == ["2-aa"]


@pytest.mark.parametrize("close", [True, False], ids=["closed", "opened"])
def test_a_batch_that_is_overtaken_between_two_parts_stops_there(
    store: StoreTopics, store_world: StoreWorld, *, close: bool
) -> None:
    """The plan was closed, or the report was opened again. The remaining parts are not written."""
    batch, tree = interposed(store)
    opened = batch.reports.open("1-aa", "token")

    def overtake() -> None:
        if close:
            store.plans.close("1-aa")
        else:
            store.reports.open("1-aa", "other")

    tree.before_write("-1", overtake)
    with pytest.raises(PlanClosedError if close else ConflictError):
        batch.reports.finish(opened, failures(10_000))
    assert len(store_world.children(REPORT)) == 1
    assert store.reports.read("1-aa") is None


def test_a_reason_that_is_too_large_for_a_value_is_dropped(store: StoreTopics) -> None:
    """The record is delivered again all the same."""
    report = failures(2)
    failed, other = report.unresolved["shardId-000000000000"]
    huge = msgspec.structs.replace(failed, reason="x" * 2 * MAX_VALUE_BYTES)
    with_huge = msgspec.structs.replace(report, unresolved={"s": (huge, other)})
    store.reports.finish(store.reports.open("1-aa", "token"), with_huge)
    read = store.reports.read("1-aa")
    assert read is not None
    assert read.unresolved == {"s": (msgspec.structs.replace(failed, reason=None), other)}


def test_a_report_that_an_operator_removed_does_not_count(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """Its records are delivered again. A batch that had it open cannot finish it, and the next
    opening counts as the first.
    """
    store.reports.finish(store.reports.open("1-aa", "first"), failures(10_000))
    store_world.remove(REPORT)
    assert store.reports.read("1-aa") is None
    opened = store.reports.open("1-aa", "second")
    store_world.remove(REPORT)
    with pytest.raises(ConflictError, match="or removed"):
        store.reports.finish(opened, SMALL)
    assert not store.reports.open("1-aa", "third").reopened


def test_a_damaged_part_is_an_error(store: StoreTopics, store_world: StoreWorld) -> None:
    """A part is missing, cut, or replaced, also if each part by itself can be read."""
    store.reports.finish(store.reports.open("1-aa", "token"), failures(10_000))
    whole = {part: store_world.get(f"{REPORT}/{part}") for part in store_world.children(REPORT)}
    last = max(whole)
    for damage in (b"", whole[last][:-1], b'{"shards":[]}', whole[min(whole)]):
        store_world.put(f"{REPORT}/{last}", damage)
        with pytest.raises(
            StoredDataError,
            match="parts that were changed since they were written; restore the znode",
        ):
            store.reports.read("1-aa")
    store_world.remove(f"{REPORT}/{last}")
    with pytest.raises(StoredDataError, match="of which 1 are missing; restore the znode"):
        store.reports.read("1-aa")


# the policy ---------------------------------------------------------------------------------------
BLOCKING = OutcomePolicy(
    retry=RetryPolicy(retry_limit=7, max_age_ms=5_000, jitter=0.25), on_failure=OnFailure.BLOCK_KEY
)


def test_only_the_owner_takes_the_mark_off(store_world: StoreWorld) -> None:
    """Neither a process that never owned the application nor one that was overtaken, or else failed
    records would be acked. Also when there is no mark.
    """
    store = owned(store_world)
    store.reports.mark_tracked(BLOCKING)
    with pytest.raises(StaleOwnerError, match="acquire the ownership of"):
        store_world.open().reports.clear_policy()
    store_world.lose_session(store)
    new = owned(store_world, OTHER)
    with pytest.raises(StaleOwnerError, match="taken over"):
        store.reports.clear_policy()
    assert new.reports.read_policy() == BLOCKING
    for _ in range(2):
        new.reports.clear_policy()
        assert new.reports.read_policy() is None
    with pytest.raises(StaleOwnerError):
        store.reports.clear_policy()
    new.reports.mark_tracked(BLOCKING)
    assert new.reports.read_policy() == BLOCKING
