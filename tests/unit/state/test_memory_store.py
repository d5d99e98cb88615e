"""Faults that only the memory store can produce on purpose: lost answers, and an unavailable
store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import ConflictError, PlanClosedError, StoreUnavailableError
from state.memory_store import MemoryBackend, MemoryStateStore
from state.plan import PlanPointer, PlanStatus
from state.state_store import ShardList, StateChange, StoredState
from tests.support.state.state_stores import OTHER, OWNER, log_of, plan, state_at

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def store(backend: MemoryBackend) -> MemoryStateStore:
    store = MemoryStateStore(backend)
    store.acquire(OWNER, timeout_s=0)
    return store


def test_a_save_whose_answer_was_lost_is_seen_to_have_landed(
    backend: MemoryBackend, store: MemoryStateStore
) -> None:
    """The second attempt is refused by the first one's version, and the node holds this very
    write.
    """
    backend.lose_next_answers(1)
    known = store.save_states([StateChange(None, state_at(1))])[0]
    backend.lose_next_answers(1)
    known = store.save_states([StateChange(known, state_at(2))])[0]
    assert store.load_states() == {known.state.shard_id: known}
    assert known.version == 1


def test_a_lost_answer_does_not_hide_a_conflict(
    backend: MemoryBackend, store: MemoryStateStore
) -> None:
    """A write of another process in the same version is not taken for this store's."""
    known = store.save_states([StateChange(None, state_at(1))])[0]
    backend.put("/kinesis-spout/app/stream/shardId-000000000000/state", b'{"checkpoint":"5"}')
    backend.lose_next_answers(1)
    with pytest.raises(ConflictError):
        store.save_states([StateChange(known, state_at(2))])


def test_plans_survive_lost_answers(backend: MemoryBackend, store: MemoryStateStore) -> None:
    """Every step of a plan's lifecycle, each with its answer lost."""

    def publish() -> None:
        with pytest.raises(ConflictError):
            store.append_log("1-aa", 3, log_of(3), None)
        assert store.read_ends("1-aa") == {3: log_of(3).folded()}

    steps: tuple[Callable[[], object], ...] = (
        lambda: store.create_plan(plan(1, tasks=700)),
        publish,
        lambda: store.close_plan("1-aa"),
        lambda: store.mark_settled("1-aa"),
        lambda: store.save_shard_list(["a"]),
        lambda: store.create_plan(plan(2)),
        lambda: store.remove_plan("1-aa"),
    )
    for step in steps:
        backend.lose_next_answers(1)
        step()
    assert store.read_pointer() == PlanPointer("2-aa", PlanStatus.OPEN)
    assert store.known_plans() == ["2-aa"]
    assert store.read_shard_list() == ShardList(("a",), 0)


def test_an_append_whose_answer_was_lost_is_found_by_reading_the_log(
    backend: MemoryBackend, store: MemoryStateStore
) -> None:
    """It conflicts, as if another attempt had appended. The log has the attempt's own entries, and
    another attempt conflicts with them too.
    """
    store.create_plan(plan(1))
    version = None
    for log in (log_of(3, sealed=False), log_of(3, 4)):
        backend.lose_next_answers(1)
        with pytest.raises(ConflictError):
            store.append_log("1-aa", 0, log, version)
        with pytest.raises(ConflictError):
            MemoryStateStore(backend).append_log("1-aa", 0, log_of(9), version)
        stored = store.read_log("1-aa", 0)
        assert stored.log == log
        version = stored.version
    assert version == 1


def test_a_lost_answer_does_not_hide_that_the_plan_is_closed(
    backend: MemoryBackend, store: MemoryStateStore
) -> None:
    """Nothing was appended, so the attempt must not follow."""
    store.create_plan(plan(1))
    store.close_plan("1-aa")
    backend.lose_next_answers(1)
    with pytest.raises(PlanClosedError):
        store.append_log("1-aa", 0, log_of(3), None)
    assert store.read_ends("1-aa") == {}


def test_an_acquisition_whose_answer_was_lost_is_held(backend: MemoryBackend) -> None:
    """The epoch is counted up once, not twice."""
    store = MemoryStateStore(backend)
    backend.lose_next_answers(1)
    assert store.acquire(OWNER, timeout_s=0) == 1
    store.save_shard_list(["a"])
    backend.lose_next_answers(1)
    store.release()
    assert store.read_owner() is None
    assert MemoryStateStore(backend).acquire(OTHER, timeout_s=0) == 2


def test_a_regained_session_whose_answer_was_lost_is_regained_once(
    backend: MemoryBackend, store: MemoryStateStore
) -> None:
    """The write that needed the ownership succeeds."""
    store.lose_session()
    backend.lose_next_answers(2)
    store.save_states([StateChange(None, state_at(1))])
    assert store.read_owner() == OWNER


def test_an_unavailable_store_raises_and_never_seems_empty(
    backend: MemoryBackend, store: MemoryStateStore
) -> None:
    """Every read and every write raises; afterwards the state is as before."""
    known = store.save_states([StateChange(None, state_at(1))])[0]
    backend.set_unavailable(True)
    for call in (
        store.load_states,
        store.read_pointer,
        store.read_start,
        store.known_plans,
        lambda: store.read_ends("1-aa"),
        lambda: store.read_log("1-aa", 0),
        lambda: store.append_log("1-aa", 0, log_of(3), None),
        lambda: store.save_states([StateChange(known, state_at(2))]),
        lambda: store.create_plan(plan(1)),
    ):
        with pytest.raises(StoreUnavailableError) as away:
            call()
        assert away.value.retryable
    backend.set_unavailable(False)
    assert store.load_states() == {known.state.shard_id: known}


def test_a_refused_transaction_leaves_no_trace(
    backend: MemoryBackend, store: MemoryStateStore
) -> None:
    """All or nothing, also in memory."""
    first = store.save_states([StateChange(None, state_at(1))])[0]
    gone = StoredState(state_at(1, "c"), 4)
    with pytest.raises(ConflictError, match="c/state was removed"):
        store.save_states(
            [
                StateChange(first, state_at(2)),
                StateChange(None, state_at(1, "b")),
                StateChange(gone, state_at(2, "c")),
            ]
        )
    assert store.load_states() == {first.state.shard_id: first}
