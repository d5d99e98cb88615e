"""The contract of the state store, for memory and ZooKeeper alike: all of it, as somebody sees it
who only looks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from state.plan import PlanStatus
from state.position import TRIM_HORIZON, Position
from state.report import OnFailure, OutcomePolicy, ReportStatus
from state.sequence_number import SequenceNumber
from state.store.history import HistoryEntry, OperatorMove
from state.store.identity import Pause
from state.store.shard_states import StateChange
from state.store.view import StoredApplication
from tests.support.state.state_stores import (
    IDENTITY,
    OWNER,
    log_of,
    owned,
    plan,
    state_at,
)
from tests.support.state.trees import interposed

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld

SHARD = "shardId-000000000000"
PAUSE = Pause(by="ann", since_ms=5, reason="deploy")


def test_an_application_without_state_is_empty_and_stays_so(store_world: StoreWorld) -> None:
    for _ in range(2):
        seen = store_world.open().view.read()
        assert replace(seen, of_the_stream=()) == StoredApplication()


def test_everything_of_a_spark_job_comes_in_one_look(store_world: StoreWorld) -> None:
    """Needs no ownership, and leaves the owner's."""
    store = owned(store_world)
    store.identity.bind(IDENTITY)
    store.plans.create(plan(1))
    store.plans.close("1-aa")
    store.plans.mark_settled("1-aa")
    store.shard_states.save([StateChange(None, state_at(7))])
    policy = OutcomePolicy(on_failure=OnFailure.BLOCK_KEY)
    store.reports.mark_tracked(policy)
    store.plans.create(plan(2))
    store.plans.append_log("2-aa", 0, log_of(3, sealed=False), None)
    store.reports.open("2-aa", "token")
    store.pause.begin(PAUSE)
    seen = store_world.open().view.read()
    assert (seen.identity, seen.policy) == (IDENTITY, policy)
    assert (seen.pause, seen.paused) == (PAUSE, True)
    assert dict(seen.states) == {SHARD: state_at(7)}
    assert [(one.task, one.info) for one in seen.owners] == [(None, OWNER)]
    assert seen.total_tasks is None
    assert seen.plan is not None
    assert (seen.plan.plan_id, seen.plan.status) == ("2-aa", PlanStatus.OPEN)
    assert (seen.plan.created_ms, seen.plan.previous_ms) == (5, 5)
    assert [one.plan for one in seen.plan.tasks] == list(plan(2).tasks)
    assert [one.log for one in seen.plan.tasks] == [log_of(3, sealed=False), None]
    assert (seen.plan.report, seen.plan.openings) == (ReportStatus.OPEN, 1)


def test_a_plan_that_is_settled_while_it_is_looked_at_is_read_with_its_states(
    store_world: StoreWorld,
) -> None:
    """The states are read again, so that they are not those from before the plan."""
    owner = owned(store_world)
    (before,) = owner.shard_states.save([StateChange(None, state_at(1))])
    owner.plans.create(plan(1))

    def settle() -> None:
        owner.plans.close("1-aa")
        owner.shard_states.save([StateChange(before, state_at(2))])
        owner.plans.mark_settled("1-aa")

    looking, tree = interposed(store_world.open())
    tree.before_read("batches/1-aa", settle)
    seen = looking.view.read()
    assert seen.plan is not None
    assert seen.plan.status is PlanStatus.SETTLED
    assert seen.states[SHARD] == state_at(2)


def test_the_newest_move_of_an_operator_is_shown(store_world: StoreWorld) -> None:
    store = owned(store_world)
    store.shard_states.save([StateChange(None, state_at(7))])
    index = store.history.index()
    before = HistoryEntry(
        time_ms=5, positions={SHARD: Position.after(SequenceNumber(7))}, full=True
    )
    moved = HistoryEntry(time_ms=9, positions={SHARD: TRIM_HORIZON}, full=True, cause="rewind")
    for entry in (before, moved):
        index = store.history.write(index, entry)
    seen = store_world.open().view.read()
    assert seen.move == OperatorMove(cause="rewind", time_ms=9, back=frozenset({SHARD}))
    assert dict(seen.held_since_ms) == {}


def test_of_an_application_without_state_the_others_are_shown(store_world: StoreWorld) -> None:
    """Those that have state of the stream, and its other streams."""
    before = set(store_world.open().view.read().of_the_stream)
    store_world.open().identity.bind(IDENTITY)
    assert store_world.open().view.read().of_the_stream == ()
    store_world.renew()
    seen = store_world.open().view.read()
    assert len(set(seen.of_the_stream) - before) == 1
    assert (seen.identity, seen.of_the_application) == (None, ())
