"""The contract of the state store, for memory and ZooKeeper alike: the pause of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import StateError
from state.state_store import Pause
from tests.support.state.bell import Bell
from tests.support.state.state_stores import owned

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld

FIRST = Pause(by="ann on host-a", since_ms=5, reason="deploy")
SECOND = Pause(by="bob", since_ms=6)


def test_the_first_pause_counts_until_it_ends(store_world: StoreWorld) -> None:
    """Any process may begin and end it, also beside an owner."""
    owned(store_world)
    ann, bob = store_world.open(), store_world.open()
    assert ann.read_pause() is None
    assert ann.pause(FIRST) == FIRST
    ann.close()
    assert bob.pause(SECOND) == FIRST
    assert ann.read_pause() == FIRST
    assert bob.resume() == FIRST
    assert ann.resume() is None
    assert bob.pause(SECOND) == SECOND


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
    assert store.read_pause() == Pause()
    assert store.pause(FIRST) == Pause()
    assert store.resume() == Pause()
    assert store.read_pause() is None


def test_a_pause_that_cannot_be_removed_is_an_error(store_world: StoreWorld) -> None:
    store_world.put("paused/below", b"")
    with pytest.raises(StateError, match="nodes below it"):
        store_world.open().resume()


def test_a_watch_fires_when_a_pause_begins_and_when_it_ends(store_world: StoreWorld) -> None:
    """And for a lost session, as a change may have been missed."""
    watcher, operator, bell = store_world.open(), store_world.open(), Bell()
    watcher.watch_pause(bell.ring)
    operator.pause(FIRST)
    assert bell.heard()
    bell.silence()
    store_world.lose_session(watcher)
    assert bell.heard()
    bell.silence()
    operator.resume()
    assert bell.heard()
