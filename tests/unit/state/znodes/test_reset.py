"""A reset that is killed in the middle, and what its application is then."""

from __future__ import annotations

from contextlib import suppress

import pytest

from state.memory_store import MemoryBackend, MemoryStateStore, MemoryTree
from state.position import TRIM_HORIZON
from state.store.history import HistoryEntry
from state.store.identity import StartPin
from state.store.shard_states import StateChange
from state.znodes.topics import StoreTopics
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.state.state_stores import IDENTITY, OWNER, state_at
from tests.support.state.trees import DyingTree

START = StartPin(time_ms=1, requested="TRIM_HORIZON", position=TRIM_HORIZON, shards=())


def application(backend: MemoryBackend) -> MemoryStateStore:
    """One that has read, and has a history."""
    store = MemoryStateStore(backend)
    store.ownership.acquire(OWNER, timeout_s=0)
    store.identity.bind(IDENTITY)
    store.identity.pin_start(START)
    shards = [f"shardId-{n}" for n in range(3)]
    store.shard_states.save([StateChange(None, state_at(1, shard)) for shard in shards])
    store.shard_list.save(shards)
    entry = HistoryEntry(time_ms=1, positions={"shardId-0": TRIM_HORIZON}, full=True)
    store.history.write(store.history.index(), entry)
    store.ownership.release()
    return store


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("writes", range(12))
def test_what_a_killed_reset_leaves_still_belongs_to_its_stream(
    writes: int,
    after: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    """A stream that was created again has shards of the same names and other records: neither
    states nor history of the former one may become its own. And as long as anything is left, the
    application has a start, so the command that is given again finds something to remove.
    """
    backend = MemoryBackend()
    store = application(backend)
    tree = DyingTree(MemoryTree(backend), writes, after=after)
    with suppress(Crash):
        StoreTopics(tree, store.paths, reset_command="").identity.reset(OWNER, timeout_s=0)
    tree.close()
    left = MemoryStateStore(backend)
    if left.shard_states.load() or left.history.index().marks or left.shard_list.read():
        assert left.identity.read() == IDENTITY
        assert left.identity.read_start() == START
    if left.identity.read_start() is not None:
        assert left.identity.read() == IDENTITY
    left.identity.reset(OWNER, timeout_s=0)
    assert left.identity.read() is None
    assert not left.history.index().marks
