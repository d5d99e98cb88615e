"""The contract of the state store, for memory and ZooKeeper alike: the history of the positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import ConflictError, StaleOwnerError
from state.position import TRIM_HORIZON, Position
from state.store.history import HistoryEntry, HistoryIndex
from state.store.shard_states import StateChange
from state.znodes.history import MAX_SHARDS_PER_PART, mark_of, node_names
from tests.support.state.state_stores import OTHER, owned, sequence, state_at

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld


def entry_at(number: int, *, shards: int = 1, full: bool = True) -> HistoryEntry:
    """The entry of that time, in seconds, with so many shards."""
    return HistoryEntry(
        time_ms=number * 1_000,
        positions={
            f"shardId-{shard:012}": Position.after(sequence(number)) for shard in range(shards)
        },
        full=full,
    )


def test_the_history_is_what_was_written_in_its_order(store_world: StoreWorld) -> None:
    """Needs no ownership to be read, and is not taken for a shard."""
    store = owned(store_world)
    assert store.history.index() == HistoryIndex()
    store.shard_states.save([StateChange(None, state_at(1))])
    moved = HistoryEntry(
        time_ms=5_000, positions={"shardId-1": TRIM_HORIZON}, full=True, cause="rewind"
    )
    written = [entry_at(3), entry_at(4, full=False), moved]
    index = store.history.index()
    for entry in written:
        index = store.history.write(index, entry)
    looking = store_world.open()
    assert looking.history.index() == index
    assert index.next == 3
    assert looking.history.read(index.marks) == written
    assert [mark.moved for mark in index.marks] == [False, False, True]
    assert list(looking.shard_states.load()) == ["shardId-000000000000"]


def test_one_write_adds_an_entry_and_removes_others(store_world: StoreWorld) -> None:
    """One that was removed meanwhile is missing."""
    store = owned(store_world)
    index = store.history.index()
    for number in range(4):
        index = store.history.write(index, entry_at(number))
    index = store.history.write(index, entry_at(9), remove=index.marks[1:3])
    looking = store_world.open()
    assert looking.history.index() == index
    assert looking.history.read(index.marks) == [entry_at(0), entry_at(3), entry_at(9)]
    store.history.write(index, entry_at(10), remove=index.marks[:1])
    assert looking.history.read(index.marks[:2]) == [None, entry_at(3)]


def test_an_entry_of_many_shards_is_in_several_nodes(store_world: StoreWorld) -> None:
    """What a writer has left that was stopped between them is no entry, and the next write removes
    it.
    """
    store = owned(store_world)
    large = entry_at(1, shards=2 * MAX_SHARDS_PER_PART + 1)
    index = store.history.write(store.history.index(), large)
    assert store.history.read(index.marks) == [large]
    half, whole = node_names(mark_of(1, large))[0], store_world.children("history")
    store_world.put(f"history/{half}", b"half an entry")
    index = store.history.index()
    assert (len(index.marks), index.leftovers) == (1, (half,))
    store.history.write(index, entry_at(2))
    assert len(store_world.children("history")) == len(whole) + 1
    assert len(whole) == 3


def test_only_the_owner_writes_and_only_what_it_has_seen(store_world: StoreWorld) -> None:
    store = owned(store_world)
    first = store.history.index()
    index = store.history.write(first, entry_at(1))
    for outdated in (first, HistoryIndex(index.marks, index.next, 7)):
        with pytest.raises(ConflictError, match="history was"):
            store.history.write(outdated, entry_at(2), remove=index.marks)
    with pytest.raises(StaleOwnerError):
        store_world.open().history.write(index, entry_at(2))
    assert store.history.index() == index
    store.ownership.release()
    later = owned(store_world, OTHER)
    with pytest.raises(StaleOwnerError):
        store.history.write(index, entry_at(2))
    assert later.history.index() == index
