"""Writes of an owner, and the check that a stale owner can do none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from state.errors import StaleOwnerError
from state.owner.ownership import this_process
from state.state_store import StateChange
from tests.support.state.state_stores import IDENTITY, OWNER, state_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.owner.owner_info import OwnerInfo
    from state.state_store import TaskShare
    from state.znodes.store import ZnodeStateStore


def dead_process() -> OwnerInfo:
    """An owner on this host that ended long ago: no process has so high a pid."""
    return msgspec.structs.replace(this_process(0), pid=2**22 + 1)


def write_one(store: ZnodeStateStore, shard_id: str) -> None:
    """Create a state, as owner."""
    store.save_states([StateChange(None, state_at(1, shard_id))])


def assert_stale(store: ZnodeStateStore, task: TaskShare | None) -> None:
    """Each write of a stale owner is refused, and it does not regain the ownership by itself."""
    writes: list[Callable[[], object]] = [
        lambda: write_one(store, "shard-of-the-stale"),
        lambda: store.save_shard_list(["shard-of-the-stale"]),
        lambda: store.bind_stream(IDENTITY),
        store.try_lead,
        lambda: store.acquire(OWNER, timeout_s=0, task=task),
    ]
    for write in writes:
        with pytest.raises(StaleOwnerError, match="another process has taken over"):
            write()
    assert "shard-of-the-stale" not in store.load_states()
    assert (store.read_shard_list(), store.read_stream()) == (None, None)
