"""The contract of the state store, for memory and ZooKeeper alike: the mark of an application that
tracks its records.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from state.errors import InvalidStoreSettingError, StaleOwnerError, StoredDataError
from state.report import OnFailure, OutcomePolicy
from state.retry_policy import RetryPolicy
from state.state_store import StateChange
from tests.support.state import state_values
from tests.support.state.interposed_tree import interposed
from tests.support.state.state_stores import OTHER, owned, plan, state_at

if TYPE_CHECKING:
    from state.znodes.store import ZnodeStateStore
    from tests.support.state.state_stores import StoreWorld

BLOCKING = OutcomePolicy(
    retry=RetryPolicy(retry_limit=7, max_age_ms=5_000, jitter=0.25), on_failure=OnFailure.BLOCK_KEY
)


@pytest.fixture(scope="session")
def many_policies() -> list[OutcomePolicy]:
    return state_values.sample(state_values.outcome_policies, 10)


@pytest.fixture
def store(store_world: StoreWorld) -> ZnodeStateStore:
    """An owner's store with the open plan `1-aa`."""
    store = owned(store_world)
    store.create_plan(plan(1))
    return store


def test_policies_come_back_as_they_were_written(
    store_world: StoreWorld, many_policies: list[OutcomePolicy]
) -> None:
    """Marking again changes the policy. It needs neither ownership nor earlier state."""
    marking = store_world.open()
    assert marking.read_policy() is None
    for policy in many_policies:
        marking.mark_tracked(policy)
        assert store_world.open().read_policy() == policy


def test_marking_with_the_same_policy_writes_nothing(store: ZnodeStateStore) -> None:
    """Each start of a query marks the application."""
    batch, tree = interposed(store)
    batch.mark_tracked(BLOCKING)

    def written() -> None:
        pytest.fail("the mark was written again")

    tree.before_write("tracked", written)
    batch.mark_tracked(BLOCKING)


def test_the_mark_is_not_taken_for_a_shard(store: ZnodeStateStore) -> None:
    """A shard with its name is refused."""
    store.mark_tracked(BLOCKING)
    assert store.load_states() == {}
    with pytest.raises(InvalidStoreSettingError):
        store.save_states([StateChange(None, state_at(1, "tracked"))])


def test_two_that_mark_at_once_agree_with_one_of_them(store_world: StoreWorld) -> None:
    """No error is raised; the last write holds."""
    policies = [OutcomePolicy(retry=RetryPolicy(retry_limit=limit)) for limit in range(4)]
    stores = [store_world.open() for _ in policies]
    with ThreadPoolExecutor(len(stores)) as pool:
        list(
            pool.map(lambda pair: pair[0].mark_tracked(pair[1]), zip(stores, policies, strict=True))
        )
    assert store_world.open().read_policy() in policies


def test_the_owner_removes_the_mark(store: ZnodeStateStore) -> None:
    """Removing it again changes nothing. Then the application may be marked again."""
    store.mark_tracked(BLOCKING)
    store.clear_policy()
    store.clear_policy()
    assert store.read_policy() is None
    store.mark_tracked(BLOCKING)
    assert store.read_policy() == BLOCKING


def test_only_the_owner_takes_the_mark_off(store: ZnodeStateStore, store_world: StoreWorld) -> None:
    """Neither a process that never owned the application nor one that was overtaken, or else failed
    records would be acked. Also when there is no mark.
    """
    store.mark_tracked(BLOCKING)
    with pytest.raises(StaleOwnerError, match="acquire it first"):
        store_world.open().clear_policy()
    store_world.lose_session(store)
    new = owned(store_world, OTHER)
    with pytest.raises(StaleOwnerError, match="taken over"):
        store.clear_policy()
    assert new.read_policy() == BLOCKING
    new.clear_policy()
    with pytest.raises(StaleOwnerError):
        store.clear_policy()


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (b"", ""),
        (b"{}", ""),
        (
            b'{"retryLimit":-1,"firstDelayMs":1,"growth":1,"maxDelayMs":1,"jitter":0,"onFailure":"continue"}',
            "",
        ),
        (b'{"format":2}', "has format 2, written by a newer version.*upgrade"),
    ],
)
def test_a_damaged_or_newer_mark_is_an_error_and_never_no_mark(
    store_world: StoreWorld, stored: bytes, said: str
) -> None:
    """If the mark was taken for missing, whole batches would be acked. A newer version may treat
    failures in ways that this one does not know.
    """
    store_world.put("tracked", stored)
    with pytest.raises(StoredDataError, match=f"flights/tracked.*{said}"):
        store_world.open().read_policy()
