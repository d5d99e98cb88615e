"""The contract of the state store, for memory and ZooKeeper alike: the pause of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import StateError
from state.store.identity import Pause
from tests.support.state.state_stores import Bell, owned

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld

FIRST = Pause(by="ann on host-a", since_ms=5, reason="deploy")
SECOND = Pause(by="bob", since_ms=6)


def test_the_first_pause_counts_until_it_ends(store_world: StoreWorld) -> None:
    """Any process may begin and end it, also beside an owner."""
    owned(store_world)
    ann, bob = store_world.open(), store_world.open()
    assert ann.pause.read() is None
    assert ann.pause.begin(FIRST) == FIRST
    ann.close()
    assert bob.pause.begin(SECOND) == FIRST
    assert ann.pause.read() == FIRST
    assert bob.pause.end() == FIRST
    assert ann.pause.end() is None
    assert bob.pause.begin(SECOND) == SECOND


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"by": 5}',
        b'{"format": 99}',
        b'{"sinceMs": 1769860800000000000}',
    ],
)
def test_a_node_that_a_person_created_pauses_too(store_world: StoreWorld, data: bytes) -> None:
    """Whatever it holds: consumers obey its existence."""
    store_world.put("paused", data)
    store = store_world.open()
    assert store.pause.read() == Pause()
    assert store.pause.begin(FIRST) == Pause()
    assert store.pause.end() == Pause()
    assert store.pause.read() is None


def test_a_pause_that_cannot_be_removed_is_an_error(store_world: StoreWorld) -> None:
    store_world.put("paused/below", b"")
    with pytest.raises(StateError, match="child znodes"):
        store_world.open().pause.end()


def test_a_watch_fires_when_a_pause_begins_and_when_it_ends(store_world: StoreWorld) -> None:
    """And for a lost session, as a change may have been missed."""
    watcher, operator, bell = store_world.open(), store_world.open(), Bell()
    watcher.pause.watch(bell.ring)
    operator.pause.begin(FIRST)
    assert bell.heard()
    bell.silence()
    store_world.lose_session(watcher)
    assert bell.heard()
    bell.silence()
    operator.pause.end()
    assert bell.heard()
