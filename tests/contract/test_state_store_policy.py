"""The contract of the state store, for memory and ZooKeeper alike: the mark of an application that
tracks its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import StaleOwnerError, StoredDataError
from state.report import OnFailure, OutcomePolicy
from state.retry_policy import RetryPolicy
from tests.support.state import state_values
from tests.support.state.state_stores import OTHER, owned

if TYPE_CHECKING:
    from tests.support.state.state_stores import StoreWorld

BLOCKING = OutcomePolicy(
    retry=RetryPolicy(retry_limit=7, max_age_ms=5_000, jitter=0.25), on_failure=OnFailure.BLOCK_KEY
)


@pytest.fixture(scope="session")
def many_policies() -> list[OutcomePolicy]:
    return state_values.sample(state_values.outcome_policies, 10)


def test_policies_come_back_as_they_were_written(
    store_world: StoreWorld, many_policies: list[OutcomePolicy]
) -> None:
    """Marking again changes the policy. It needs neither ownership nor earlier state."""
    marking = store_world.open()
    assert marking.reports.read_policy() is None
    for policy in many_policies:
        marking.reports.mark_tracked(policy)
        assert store_world.open().reports.read_policy() == policy


def test_only_the_owner_takes_the_mark_off(store_world: StoreWorld) -> None:
    """Neither a process that never owned the application nor one that was overtaken, or else failed
    records would be acked. Also when there is no mark.
    """
    store = owned(store_world)
    store.reports.mark_tracked(BLOCKING)
    with pytest.raises(StaleOwnerError, match="acquire it first"):
        store_world.open().reports.clear_policy()
    store_world.lose_session(store)
    new = owned(store_world, OTHER)
    with pytest.raises(StaleOwnerError, match="taken over"):
        store.reports.clear_policy()
    assert new.reports.read_policy() == BLOCKING
    for _ in range(2):
        new.reports.clear_policy()
        assert new.reports.read_policy() is None
    with pytest.raises(StaleOwnerError):
        store.reports.clear_policy()
    new.reports.mark_tracked(BLOCKING)
    assert new.reports.read_policy() == BLOCKING


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
        store_world.open().reports.read_policy()
