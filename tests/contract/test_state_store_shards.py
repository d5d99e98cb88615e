"""The contract of the state store, for memory and ZooKeeper alike: shard states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from state.errors import (
    CheckpointRegressionError,
    ConflictError,
    InvalidStoreSettingError,
    StaleOwnerError,
)
from state.position import SHARD_END, TRIM_HORIZON
from state.shard_state import ShardState
from state.store.identity import StartPin
from state.store.shard_states import StateChange, StoredState
from state.znodes.shard_states import MAX_STATES_PER_WRITE
from tests.support.state.state_stores import OWNER, failures, owned, sequence, state_at

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld


def changes_of(count: int) -> list[StateChange]:
    """First states of that many shards, in the order of their ids."""
    return [StateChange(None, state_at(1, f"shardId-{number:012}")) for number in range(count)]


def test_a_state_is_written_over_its_own_version_only(store_world: StoreWorld) -> None:
    """Compare-and-set: a state that was changed since is not overwritten, and the rest of the
    transaction is not written either.
    """
    store = owned(store_world)
    first, other = store.shard_states.save(
        [StateChange(None, state_at(1)), StateChange(None, state_at(1, "shardId-000000000001"))]
    )
    second = store.shard_states.save([StateChange(first, state_at(2))])[0]
    with pytest.raises(
        ConflictError, match="shardId-000000000000/state was changed by another process"
    ):
        store.shard_states.save(
            [
                StateChange(other, state_at(3, "shardId-000000000001")),
                StateChange(first, state_at(3)),
            ]
        )
    with pytest.raises(ConflictError, match="was created by another process"):
        store.shard_states.save([StateChange(None, state_at(4))])
    assert store.shard_states.load() == {
        "shardId-000000000000": second,
        "shardId-000000000001": other,
    }


def test_a_checkpoint_never_moves_back(store_world: StoreWorld) -> None:
    store = owned(store_world)
    known = store.shard_states.save([StateChange(None, state_at(10))])[0]
    shard_id = known.state.shard_id
    for worse in (state_at(9), ShardState(shard_id=shard_id, read_position=TRIM_HORIZON)):
        with pytest.raises(
            CheckpointRegressionError, match=r"shardId-000000000000 would move back from 10 to"
        ):
            store.shard_states.save([StateChange(known, worse)])
    finished = msgspec.structs.replace(known.state, read_position=SHARD_END)
    known = store.shard_states.save([StateChange(known, finished)])[0]
    with pytest.raises(CheckpointRegressionError, match="SHARD_END"):
        store.shard_states.save([StateChange(known, state_at(11))])
    assert store.shard_states.load() == {shard_id: known}


def test_a_checkpoint_of_the_kinesis_storm_spout_is_read(store_world: StoreWorld) -> None:
    """`{"checkpoint": "<seq>"}` means that records up to it are acked, and that reading continues
    after it. It can be overwritten.
    """
    store_world.put("shardId-000000000003/state", b'{"checkpoint":"4955"}')
    store_world.put("shardList", b'{"shardList":["shardId-000000000003"]}')
    store = owned(store_world)
    known = store.shard_states.load()["shardId-000000000003"]
    assert known.state == state_at(4955, "shardId-000000000003")
    assert store.shard_list.read() == ("shardId-000000000003",)
    store.shard_states.save([StateChange(known, state_at(5000, "shardId-000000000003"))])
    assert store.shard_states.load()["shardId-000000000003"].state.checkpoint == sequence(5000)


def test_a_large_state_takes_a_transaction_of_its_own(store_world: StoreWorld) -> None:
    """Two that together are larger than a transaction are written all the same."""
    store = owned(store_world)
    records = failures(5_000).unresolved["shardId-000000000000"]
    changes = [
        StateChange(None, msgspec.structs.replace(state_at(1, f"s-{index}"), unresolved=records))
        for index in range(4)
    ]
    saved = store.shard_states.save(changes)
    assert {each.state.shard_id: each for each in saved} == store.shard_states.load()


def test_a_conflict_leaves_the_transactions_before_it_written(store_world: StoreWorld) -> None:
    """And nothing of its own or a later one; the cache tells which."""
    store = owned(store_world)
    changes = changes_of(2 * MAX_STATES_PER_WRITE + 1)
    other = store.shard_states.save([changes[MAX_STATES_PER_WRITE + 1]])[0]
    cache: dict[str, StoredState] = {}
    with pytest.raises(ConflictError, match=f"{other.state.shard_id}/state was created by another"):
        store.shard_states.save(changes, cache=cache)
    assert [*cache] == [change.after.shard_id for change in changes[:MAX_STATES_PER_WRITE]]
    assert store.shard_states.load() == cache | {other.state.shard_id: other}


def test_what_is_wrong_with_one_change_is_found_before_any_is_written(
    store_world: StoreWorld,
) -> None:
    """Though it would be in a later transaction."""
    store = owned(store_world)
    known = store.shard_states.save([StateChange(None, state_at(10))])[0]
    others = changes_of(MAX_STATES_PER_WRITE + 1)[1:]
    for last, error in (
        (StateChange(known, state_at(9)), CheckpointRegressionError),
        (others[0], ValueError),
    ):
        with pytest.raises(error):
            store.shard_states.save([*others, last])
        assert store.shard_states.load() == {known.state.shard_id: known}


def test_a_shard_twice_in_one_write_is_refused(store_world: StoreWorld) -> None:
    """Two changes of one shard cannot both be based on what is stored."""
    store = owned(store_world)
    with pytest.raises(ValueError, match=r"contains a shard .* twice"):
        store.shard_states.save([StateChange(None, state_at(1)), StateChange(None, state_at(2))])
    known = store.shard_states.save([StateChange(None, state_at(1))])[0]
    with pytest.raises(ValueError, match="that it replaces belongs to shard"):
        store.shard_states.save([StateChange(known, state_at(2, "shardId-000000000009"))])


def test_a_shard_cannot_hide_another_node(store_world: StoreWorld) -> None:
    """Shard ids that are reserved for other nodes, or are not valid names, are refused."""
    store = owned(store_world)
    for name in ("plan", "epoch", "a/b", "..", ""):
        with pytest.raises(InvalidStoreSettingError):
            store.shard_states.save([StateChange(None, state_at(1, name))])


def test_states_are_removed_in_the_version_that_was_read(store_world: StoreWorld) -> None:
    """Their folders are removed as well. If one state has changed since, none is removed."""
    store = owned(store_world)
    first, other = store.shard_states.save(
        [StateChange(None, state_at(1, name)) for name in ("a", "b")]
    )
    newer = store.shard_states.save([StateChange(other, state_at(2, "b"))])[0]
    with pytest.raises(ConflictError, match="b/state was changed by another process"):
        store.shard_states.remove([first, other])
    assert store.shard_states.load() == {"a": first, "b": newer}
    store.shard_states.remove([])
    store.shard_states.remove([first])
    assert store.shard_states.load() == {"b": newer}
    assert store.identity.reset(OWNER, timeout_s=10) == 1  # shards that had anything left


def test_other_nodes_below_a_shard_stay_when_its_state_is_removed(
    store_world: StoreWorld,
) -> None:
    """They belong to another program."""
    store = owned(store_world)
    store_world.put("a/notes", b"mine")
    stored = store.shard_states.save([StateChange(None, state_at(1, "a"))])
    store.shard_states.remove(stored)
    assert store.shard_states.load() == {}
    assert store_world.children("a") == ["notes"]


def test_more_states_than_one_transaction_takes_are_written_and_removed_in_several(
    store_world: StoreWorld,
) -> None:
    """A conflict leaves those before it removed; the cache is what is left."""
    store = owned(store_world)
    cache: dict[str, StoredState] = {}
    stored = store.shard_states.save(changes_of(502), cache=cache)
    assert cache == {each.state.shard_id: each for each in stored} == store.shard_states.load()
    newer = store.shard_states.save(
        [StateChange(stored[501], state_at(2, "shardId-000000000501"))]
    )[0]
    with pytest.raises(ConflictError, match="shardId-000000000501/state was changed by another"):
        store.shard_states.remove(stored, cache=cache)
    assert [*cache] == ["shardId-000000000500", "shardId-000000000501"]
    store.shard_states.remove([stored[500], newer], cache=cache)
    assert cache == store.shard_states.load() == {}


def test_an_operator_may_move_a_checkpoint_back_and_replace_the_start(
    store_world: StoreWorld,
) -> None:
    """To a lower number, to none, and from SHARD_END to a number. Compare-and-set as ever, by the
    owner alone, and a later write of the owner may not go back again.
    """
    store = owned(store_world)
    known = store.shard_states.save([StateChange(None, state_at(10))])[0]
    shard_id = known.state.shard_id
    finished = msgspec.structs.replace(known.state, read_position=SHARD_END)
    unread = ShardState(shard_id=shard_id, read_position=TRIM_HORIZON)
    for state in (state_at(9), unread, finished, state_at(3)):
        before, known = known, store.shard_states.move([StateChange(known, state)])[0]
        assert (known.state, known.version) == (state, before.version + 1)
        assert store.shard_states.load() == {shard_id: known}
    with pytest.raises(ConflictError, match="was changed by another process"):
        store.shard_states.move([StateChange(before, state_at(4))])
    with pytest.raises(CheckpointRegressionError):
        store.shard_states.save([StateChange(known, state_at(2))])
    pin = StartPin(time_ms=1, requested="LATEST", position=TRIM_HORIZON, shards=("a",))
    other = store_world.open()
    with pytest.raises(StaleOwnerError):
        other.shard_states.move([StateChange(known, state_at(9))])
    with pytest.raises(StaleOwnerError):
        other.identity.replace_start(pin)
    assert (other.shard_states.load(), other.identity.read_start()) == ({shard_id: known}, None)
    for again in (pin, msgspec.structs.replace(pin, time_ms=2)):
        store.identity.replace_start(again)
        assert other.identity.read_start() == again
