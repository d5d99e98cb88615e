"""The contract of the state store, for memory and ZooKeeper alike: the answer of every write is
lost, so that the write is sent again and refused by what it has done itself. Logs: in their suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.plan import PlanPointer, PlanStatus
from state.report import OnFailure, OutcomePolicy
from state.store.identity import Pause
from state.store.ownership import TaskShare
from state.store.runs import FAILED, SPARK, Run, RunEnd
from state.store.shard_states import StateChange, StoredState
from tests.support.state.state_stores import (
    OTHER,
    OWNER,
    failures,
    log_of,
    owned,
    plan,
    state_at,
)
from tests.support.state.trees import interposed

if TYPE_CHECKING:
    from state.znodes.topics import StoreTopics
    from tests.support.state.state_stores import StoreWorld

FIRST, SECOND = TaskShare(0, 2), TaskShare(1, 2)


@pytest.fixture
def store(store_world: StoreWorld) -> StoreTopics:
    """An owner's store."""
    store, tree = interposed(store_world.open())
    tree.loses_answers = True
    store.ownership.acquire(OWNER, timeout_s=10)
    return store


def test_states_are_saved_moved_and_removed_once(store: StoreTopics) -> None:
    known = store.shard_states.save([StateChange(None, state_at(1))])[0]
    known = store.shard_states.save([StateChange(known, state_at(2))])[0]
    known = store.shard_states.move([StateChange(known, state_at(1))])[0]
    assert known == StoredState(state_at(1), 2)
    assert store.shard_states.load() == {known.state.shard_id: known}
    store.shard_states.remove([known])
    assert store.shard_states.load() == {}


def test_every_step_of_a_plan_and_the_list_is_done_once(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """A plan of more tasks than one transaction takes, too."""
    store.plans.create(plan(1, tasks=700))
    assert store.plans.read("1-aa") == plan(1, tasks=700)
    store_world.open().plans.append_log("1-aa", 3, log_of(3), None)
    store.plans.close("1-aa")
    assert store.plans.read_results("1-aa") == {3: log_of(3).folded()}
    store.plans.mark_settled("1-aa")
    store.shard_list.save(["a"])
    store.plans.create(plan(2))
    store.plans.remove("1-aa")
    assert store.plans.pointer() == PlanPointer("2-aa", PlanStatus.OPEN)
    assert store.plans.known() == ["2-aa"]
    assert store.shard_list.read() == ("a",)
    (listed,) = store._tree.read([store.paths.shard_list])
    assert listed is not None
    assert listed.version == 0


@pytest.mark.parametrize("share", [None, FIRST], ids=str)
@pytest.mark.parametrize("before", [None, FIRST, SECOND, TaskShare(2, 3)], ids=str)
def test_the_ownership_is_acquired_regained_and_released_once(
    store_world: StoreWorld, before: TaskShare | None, share: TaskShare | None
) -> None:
    """Whatever was stored before: the epoch is counted up once, not twice."""
    owned(store_world, OTHER, before).ownership.release()
    origin = store_world.open()
    store, tree = interposed(origin)
    tree.loses_answers = True
    epoch = store.ownership.acquire(OWNER, timeout_s=10, task=share)
    assert epoch == (2 if share in (None, before) else 1)
    if share is None:
        assert store_world.children("epoch") == []
    else:
        assert store_world.get(f"epoch/{share}") == b"%d" % epoch
        assert store_world.get("epoch") == (b"1" if before in (FIRST, SECOND) else b"2")
    store_world.lose_session(origin)
    store.shard_states.save([StateChange(None, state_at(1))])
    assert store.ownership.holders() == {share: OWNER}
    assert store.shard_list.try_lead()
    store.shard_list.save(["a"])
    store.ownership.release()
    assert store.ownership.holders() == {}


def test_a_pause_a_run_and_a_mark_are_written_and_removed_once(store: StoreTopics) -> None:
    pause, run = Pause(by="ann"), Run(owner=OWNER, kind=SPARK, session_timeout_ms=10_000)
    assert store.pause.begin(pause) == pause
    assert store.pause.end() == pause
    assert store.pause.read() is None
    store.runs.begin(run)
    end = RunEnd(time_ms=9, kind=FAILED, says="records have expired unread")
    assert store.runs.amend(OWNER, lambda log: log.ended(end))
    assert store.runs.read()[None].runs == (replace(run, end=end),)
    store.reports.mark_tracked(OutcomePolicy(on_failure=OnFailure.BLOCK_KEY))
    store.reports.mark_tracked(OutcomePolicy())
    assert store.reports.read_policy() == OutcomePolicy()
    store.reports.clear_policy()
    assert store.reports.read_policy() is None


def test_a_report_is_resolved_by_its_token(store: StoreTopics) -> None:
    """The answers to opening, to each part, and to finishing."""
    store.plans.create(plan(1))
    first = store.reports.open("1-aa", "first")
    assert (first.version, first.reopened) == (0, False)
    second = store.reports.open("1-aa", "second")
    assert (second.version, second.reopened) == (1, True)
    store.reports.finish(second, failures(10_000))
    assert store.reports.read("1-aa") == failures(10_000)


def test_a_count_of_openings_is_stored_once(store_world: StoreWorld) -> None:
    store, tree = interposed(store_world.open())
    store.ownership.acquire(OWNER, timeout_s=10, task=TaskShare(0, 1))
    tree.loses_answers = True
    for number in (1, 2, 0):
        store.ownership.save_unclean_starts(number)
        assert store.ownership.read_unclean_starts() == number
