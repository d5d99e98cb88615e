"""The contract of the state store, for memory and ZooKeeper alike: the answer of every write is
lost, so that the write is sent again and refused by what it has done itself. Logs: in their suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.owner.run_log import FAILED, SPARK, Run, RunEnd
from state.plan import PlanPointer, PlanStatus
from state.report import OnFailure, OutcomePolicy
from state.state_store import Pause, ShardList, StateChange, StoredState, TaskShare
from tests.support.state.interposed_tree import interposed
from tests.support.state.state_stores import OTHER, OWNER, failures, log_of, plan, state_at

if TYPE_CHECKING:
    from state.znodes.store import ZnodeStateStore
    from tests.support.state.state_stores import StoreWorld

FIRST, SECOND = TaskShare(0, 2), TaskShare(1, 2)


@pytest.fixture
def store(store_world: StoreWorld) -> ZnodeStateStore:
    """An owner's store."""
    store, tree = interposed(store_world.open())
    tree.loses_answers = True
    store.acquire(OWNER, timeout_s=10)
    return store


def test_states_are_saved_moved_and_removed_once(store: ZnodeStateStore) -> None:
    """In the versions that were counted."""
    known = store.save_states([StateChange(None, state_at(1))])[0]
    known = store.save_states([StateChange(known, state_at(2))])[0]
    known = store.move_states([StateChange(known, state_at(1))])[0]
    assert known == StoredState(state_at(1), 2)
    assert store.load_states() == {known.state.shard_id: known}
    store.remove_states([known])
    assert store.load_states() == {}


def test_every_step_of_a_plan_and_the_list_is_done_once(
    store: ZnodeStateStore, store_world: StoreWorld
) -> None:
    """A plan of more tasks than one transaction takes, too."""
    store.create_plan(plan(1, tasks=700))
    assert store.read_plan("1-aa") == plan(1, tasks=700)
    store_world.open().append_log("1-aa", 3, log_of(3), None)
    store.close_plan("1-aa")
    assert store.read_ends("1-aa") == {3: log_of(3).folded()}
    store.mark_settled("1-aa")
    store.save_shard_list(["a"])
    store.create_plan(plan(2))
    store.remove_plan("1-aa")
    assert store.read_pointer() == PlanPointer("2-aa", PlanStatus.OPEN)
    assert store.known_plans() == ["2-aa"]
    assert store.read_shard_list() == ShardList(("a",), 0)


@pytest.mark.parametrize("share", [None, FIRST], ids=str)
@pytest.mark.parametrize("before", [None, FIRST, SECOND, TaskShare(2, 3)], ids=str)
def test_the_ownership_is_acquired_regained_and_released_once(
    store_world: StoreWorld, before: TaskShare | None, share: TaskShare | None
) -> None:
    """Whatever was stored before: the epoch is counted up once, not twice."""
    earlier = store_world.open()
    earlier.acquire(OTHER, timeout_s=10, task=before)
    earlier.release()
    origin = store_world.open()
    store, tree = interposed(origin)
    tree.loses_answers = True
    epoch = store.acquire(OWNER, timeout_s=10, task=share)
    assert epoch == (2 if share in (None, before) else 1)
    if share is None:
        assert store_world.children("epoch") == []
    else:
        assert store_world.get(f"epoch/{share}") == b"%d" % epoch
        assert store_world.get("epoch") == (b"1" if before in (FIRST, SECOND) else b"2")
    store_world.lose_session(origin)
    store.save_states([StateChange(None, state_at(1))])
    assert store.read_owner() == OWNER
    assert store.try_lead()
    store.save_shard_list(["a"])
    store.release()
    assert (store.read_owner(), store.read_tasks()) == (None, {})


def test_a_pause_a_run_and_a_mark_are_written_and_removed_once(store: ZnodeStateStore) -> None:
    pause, run = Pause(by="ann"), Run(owner=OWNER, kind=SPARK, session_timeout_ms=10_000)
    assert store.pause(pause) == pause
    assert store.resume() == pause
    assert store.read_pause() is None
    store.begin_run(run)
    end = RunEnd(time_ms=9, kind=FAILED, says="records have expired unread")
    assert store.amend_run(OWNER, lambda log: log.ended(end))
    assert store.read_runs()[None].runs == (replace(run, end=end),)
    store.mark_tracked(OutcomePolicy(on_failure=OnFailure.BLOCK_KEY))
    store.mark_tracked(OutcomePolicy())
    assert store.read_policy() == OutcomePolicy()
    store.clear_policy()
    assert store.read_policy() is None


def test_a_report_is_resolved_by_its_token(store: ZnodeStateStore) -> None:
    """The answers to opening, to each part, and to finishing."""
    store.create_plan(plan(1))
    first = store.open_report("1-aa", "first")
    assert (first.version, first.reopened) == (0, False)
    second = store.open_report("1-aa", "second")
    assert (second.version, second.reopened) == (1, True)
    store.finish_report(second, failures(10_000))
    assert store.read_report("1-aa") == failures(10_000)


def test_a_count_of_openings_is_stored_once(store_world: StoreWorld) -> None:
    store, tree = interposed(store_world.open())
    store.acquire(OWNER, timeout_s=10, task=TaskShare(0, 1))
    tree.loses_answers = True
    for number in (1, 2, 0):
        store.save_unclosed(number)
        assert store.read_unclosed() == number
