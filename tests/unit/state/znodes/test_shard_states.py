"""Shard states as znodes: how many transactions they take."""

from __future__ import annotations

from state.memory_store import MemoryBackend
from state.position import TRIM_HORIZON
from state.shard_state import ShardState
from state.state_store import StateChange, StoredState
from tests.support.state.breaking_tree import breaking_store
from tests.support.state.state_stores import OWNER


def test_states_are_written_so_many_at_a_time_and_remembered_with_their_versions() -> None:
    store, tree = breaking_store(MemoryBackend())
    store.acquire(OWNER, timeout_s=1)
    tree.written.clear()
    changes = [
        StateChange(
            before=None, after=ShardState(shard_id=f"shardId-{n}", read_position=TRIM_HORIZON)
        )
        for n in range(7)
    ]
    states: dict[str, StoredState] = {}
    store.save_states(changes, cache=states, max_per_write=3)
    assert [len(paths) for paths in tree.written] == [6, 6, 2]  # each with its folder
    assert states == store.load_states()
    store.save_states([], cache=states, max_per_write=3)
    assert len(tree.written) == 3


def test_a_transaction_holds_500_states_whatever_is_asked_for() -> None:
    store, tree = breaking_store(MemoryBackend())
    store.acquire(OWNER, timeout_s=1)
    tree.written.clear()
    changes = [
        StateChange(
            before=None, after=ShardState(shard_id=f"shardId-{n}", read_position=TRIM_HORIZON)
        )
        for n in range(1_001)
    ]
    stored = store.save_states(changes, max_per_write=10_000)
    assert [len(paths) // 2 for paths in tree.written] == [500, 500, 1]
    tree.written.clear()
    store.remove_states(stored)
    assert [len(paths) // 2 for paths in tree.written] == [500, 500, 1]
    store.remove_states([])
    assert len(tree.written) == 3
