"""Writes of an owner, and the check that a stale owner can do none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from state.errors import StaleOwnerError
from state.process import this_process
from state.store.shard_states import StateChange
from tests.support.state.state_stores import IDENTITY, OWNER, state_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.store.ownership import OwnerInfo, TaskShare
    from state.znodes.topics import StoreTopics


def dead_process() -> OwnerInfo:
    """An owner on this host that ended long ago: no process has so high a pid."""
    return msgspec.structs.replace(this_process(0), pid=2**22 + 1)


def write_one(store: StoreTopics, shard_id: str) -> None:
    """Create a state, as owner."""
    store.shard_states.save([StateChange(None, state_at(1, shard_id))])


def assert_stale(store: StoreTopics, task: TaskShare | None) -> None:
    """Each write of a stale owner is refused, and it does not regain the ownership by itself."""
    writes: list[Callable[[], object]] = [
        lambda: write_one(store, "shard-of-the-stale"),
        lambda: store.shard_list.save(["shard-of-the-stale"]),
        lambda: store.identity.bind(IDENTITY),
        store.shard_list.try_lead,
        lambda: store.ownership.acquire(OWNER, timeout_s=0, task=task),
    ]
    for write in writes:
        with pytest.raises(StaleOwnerError, match="another process has taken over"):
            write()
    assert "shard-of-the-stale" not in store.shard_states.load()
    assert (store.shard_list.read(), store.identity.read()) == (None, None)
