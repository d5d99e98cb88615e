"""Shard states as znodes: how many transactions they take."""

from __future__ import annotations

from state.memory_store import MemoryBackend
from state.state_store import StateChange
from tests.support.state.breaking_tree import breaking_store
from tests.support.state.state_stores import OWNER, state_at


def test_a_transaction_holds_500_states_whatever_is_asked_for() -> None:
    """Each with its folder. Fewer, where so many are asked for."""
    store, tree = breaking_store(MemoryBackend())
    store.acquire(OWNER, timeout_s=1)
    changes = [StateChange(None, state_at(1, f"shardId-{n}")) for n in range(1_008)]
    for of, asked, written in ((1_001, 10_000, [500, 500, 1]), (7, 3, [3, 3, 1]), (0, 3, [])):
        tree.written.clear()
        stored = store.save_states(changes[:of], max_per_write=asked)
        assert [len(paths) // 2 for paths in tree.written] == written
        tree.written.clear()
        store.remove_states(stored)
        assert [len(paths) // 2 for paths in tree.written] == (
            [500, 500, 1] if of > 7 else [of] * (of > 0)
        )
