from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.codec.values import MAX_VALUE_BYTES, decode, encode
from state.errors import StateTooLargeError, StoredDataError
from state.plan import PlanPointer, PlanStatus, TaskPlan
from state.state_store import StartPin, StreamIdentity
from tests.support.state import state_values

if TYPE_CHECKING:
    from state.owner.owner_info import OwnerInfo

PATH = "/root/app/stream/start"


@given(
    value=st.one_of(
        state_values.task_plans,
        state_values.stream_identities,
        state_values.start_pins,
        state_values.owner_infos,
    )
)
def test_everything_stored_comes_back_as_it_was(
    value: TaskPlan | StreamIdentity | StartPin | OwnerInfo,
) -> None:
    """Every field of every struct survives encoding and decoding."""
    assert decode(encode(value, PATH), type(value), PATH) == value


@pytest.mark.parametrize("kind", [TaskPlan, StreamIdentity, StartPin])
def test_a_newer_format_is_an_error_that_says_to_upgrade(kind: type) -> None:
    """Whatever shape the newer version gave it."""
    with pytest.raises(StoredDataError, match=r"has format 2, written by a newer version.*upgrade"):
        decode(b'{"format":2,"token":7}', kind, PATH)


def test_an_unknown_status_is_an_error() -> None:
    """A plan's status decides whether its records are acked."""
    assert decode(b'{"id":"1-a","status":"open"}', PlanPointer, PATH) == PlanPointer(
        "1-a", PlanStatus.OPEN
    )
    with pytest.raises(StoredDataError):
        decode(b'{"id":"1-a","status":"half"}', PlanPointer, PATH)


def test_a_value_above_the_limit_is_refused() -> None:
    """The limit is half of what ZooKeeper accepts in one request."""
    identity = StreamIdentity(arn="a" * MAX_VALUE_BYTES, name="n", created_ms=1)
    with pytest.raises(StateTooLargeError, match=PATH):
        encode(identity, PATH)
